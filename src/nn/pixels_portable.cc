// SPDX-License-Identifier: Apache-2.0 OR MIT
#define SAMARA_PIXEL_OPS PortableOps
#include "nn/pixels_impl.h"
