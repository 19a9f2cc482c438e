// Runs one planned collective on the Host backend: a table from (collective, algorithm, protocol) to the
// instantiated template. Decides nothing. Called by the communicator on whichever thread runs the operation.
#pragma once

#include "algorithms/registry.hpp"
#include "primitives/host/host.hpp"

namespace stretto::executors::host {

// kInternal if the registry has no such row.
Status launch(Host& host, Collective collective, algorithms::Algorithm algorithm,
              algorithms::Protocol protocol, const Arguments& arguments);

}  // namespace stretto::executors::host
