// What a program without torch has of ranks under a launcher: nothing, said plainly.
#include "replica/group/group.h"

namespace samara {

Result<RankLinks> Connect(const World&, const LinkOptions&) {
  return Status(Code::kConfig,
                "this program was built without torch, whose store connects ranks: build with "
                "-DSAMARA_TORCH=ON");
}

}  // namespace samara
