// Torch's Python headers after the door to torch.
#pragma once
#include "nn/torch/torch.h"
// after the door
#include <torch/extension.h>
