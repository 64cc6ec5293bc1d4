// The transport of a group of one.
#pragma once

#include <memory>

#include "replica/collectives/transport.h"

namespace samara {

std::unique_ptr<Transport> MakeAloneTransport();

}  // namespace samara
