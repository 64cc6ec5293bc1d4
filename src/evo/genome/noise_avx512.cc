// SPDX-License-Identifier: Apache-2.0 OR MIT
// Compiled with instruction-set flags (CMakeLists.txt) where the compiler has them; elsewhere, and
// on CPUs without them, nothing here is called.
#include "evo/genome/noise_kernel_impl.h"

namespace samara {

const NoiseKernel kNormalAvx512 = {kNormalGroup, FillNormal, AddNormal};
const NoiseKernel kQuantile8Avx512 = {kQuantile8Group, FillQuantile8, AddQuantile8};

}  // namespace samara
