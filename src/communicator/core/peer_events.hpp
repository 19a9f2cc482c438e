// What a rank hears of the others while it does something else: who is lost, who asks for something. It
// becomes the communicator's error, or an answer. On the bootstrap's thread, so it waits for nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "bootstrap/membership.hpp"
#include "communicator/core/connect.hpp"
#include "communicator/core/control_plane.hpp"
#include "communicator/core/health.hpp"
#include "communicator/core/identity.hpp"
#include "communicator/core/submission.hpp"

namespace stretto::communicator {

class PeerEvents {
 public:
  PeerEvents(const Identity& self, ControlPlane& plane, Health& health, Submission& submission,
             const Connections& connections)
      : self_(self), plane_(plane), health_(health), submission_(submission), connections_(connections) {}

  void lost(const bootstrap::PeerLoss& loss);
  // A message, or the wish that this rank looks what its peers need; of rank `rank`.
  void heard(int rank, std::span<const uint8_t> message);

 private:
  std::string disagreementBehind(int lost) const;
  Status whyLost(const bootstrap::PeerLoss& loss, std::string& words) const;

  const Identity& self_;
  ControlPlane& plane_;
  Health& health_;
  Submission& submission_;
  const Connections& connections_;
};

}  // namespace stretto::communicator
