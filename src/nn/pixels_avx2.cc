// SPDX-License-Identifier: Apache-2.0 OR MIT
#define SAMARA_PIXEL_OPS Avx2Ops
#include "nn/pixels_impl.h"
