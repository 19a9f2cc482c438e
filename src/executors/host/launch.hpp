// The code of planned collectives on the Host backend: a table from (collective, algorithm, protocol) to the
// instantiated template. Decides nothing. The communicator runs it on whichever thread runs the operation.
#pragma once

#include "algorithms/registry.hpp"
#include "primitives/host/host.hpp"

namespace stretto::executors::host {

using Run = Status (*)(Host&, const Arguments&);
// Null, with the error said, if the registry has no such row. `spread`: for ranks of several hosts, whose
// Host is a SpreadHost.
Run codeOf(Collective collective, algorithms::Algorithm algorithm, algorithms::Protocol protocol,
           bool spread);

}  // namespace stretto::executors::host
