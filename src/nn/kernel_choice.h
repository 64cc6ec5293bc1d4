// SPDX-License-Identifier: Apache-2.0 OR MIT
// The inner loops of an instruction set, for the executors of this folder.
#pragma once

#include "core/cpu.h"
#include "nn/kernel_ops.h"
#include "nn/network.h"

namespace samara {

// REQUIRES: the CPU has `isa`.
const kernel::Ops& KernelOps(IsaLevel isa);
// Returns AVX-512's, with kernel::ProductBf16 as their product. REQUIRES: HasBf16Products().
const kernel::Ops& KernelOpsWithBf16();
kernel::Act KernelActivation(Activation activation);
kernel::Format KernelFormat(Storage storage);

}  // namespace samara
