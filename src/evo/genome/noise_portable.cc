// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "evo/genome/noise_kernel_impl.h"

namespace samara {

const NoiseKernel kNormalPortable = {kNormalGroup, FillNormal, AddNormal};
const NoiseKernel kQuantile8Portable = {kQuantile8Group, FillQuantile8, AddQuantile8};

}  // namespace samara
