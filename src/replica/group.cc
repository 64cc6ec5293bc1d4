#include "replica/group.h"

namespace samara {

RankGroup::RankGroup(const World& world, RankLinks& links, const CommunicatorOptions& options)
    : world_(world),
      store_(std::move(links.store)),
      communicator_(std::make_unique<Communicator>(std::move(links.transport), options)) {}

Result<std::unique_ptr<RankGroup>> RankGroup::Make(const World& world, RankLinks links,
                                                   const CommunicatorOptions& options) {
  std::unique_ptr<RankGroup> group(new RankGroup(world, links, options));
  if (links.monitor) {
    ASSIGN_OR_RETURN(group->monitor_, links.monitor([g = group.get()](const Status& why) {
      g->communicator_->Abort(why);
      g->failed_ = true;
    }));
    group->communicator_->SetMonitor(group->monitor_.get());
  }
  return group;
}

RankGroup::~RankGroup() { Leave(); }

Result<std::vector<std::string>> RankGroup::Exchange(const std::string& what,
                                                     std::string_view mine) {
  std::vector<std::vector<std::byte>> parts;
  RETURN_IF_ERROR(communicator_->AllGatherRagged({.operation = what, .operand = {}},
                                                 std::as_bytes(std::span(mine)), parts));
  std::vector<std::string> all;
  for (const auto& part : parts)
    all.emplace_back(reinterpret_cast<const char*>(part.data()), part.size());
  return all;
}

void RankGroup::Fail(const Status& why) {
  if (!communicator_->failure().ok()) return;
  if (monitor_) monitor_->Fail(why);
  communicator_->Abort(why);
  failed_ = true;
}

void RankGroup::Leave() {
  if (monitor_) monitor_->Leave();
}

}  // namespace samara
