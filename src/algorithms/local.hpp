// What one rank does alone: what is sent is what is received, divided by nothing and reduced with nobody.
#pragma once

#include "base/anywhere.hpp"
#include "base/status.hpp"
#include "primitives/backend.hpp"

namespace stretto::algorithms {

template <AnyBackend B>
STRETTO_ANYWHERE Status copyLocal(B& b, const Arguments& a) {
  b.copy(b.coop(), a.receive, a.send, a.bytes(), a.stream);
  return kOkStatus;
}

}  // namespace stretto::algorithms
