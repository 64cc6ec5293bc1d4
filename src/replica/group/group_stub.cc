// Ranks in a program without torch: every call is refused with a message.
#include "replica/group/group.h"

namespace samara {

Result<RankLinks> Connect(const World&, const LinkOptions&) {
  return Status(Code::kConfig,
                "this program was built without torch, whose store connects ranks: build with "
                "-DSAMARA_TORCH=ON");
}

}  // namespace samara
