#include "platform/identity.hpp"

#include <cstring>
#include <string>

#include "base/os.hpp"
#include "base/parameters.hpp"

namespace stretto {

Result<ProcessIdentity> currentIdentity() {
  ProcessIdentity identity;
  if (!os::hostName(identity.hostname, sizeof identity.hostname)) {
    return failErrno("cannot read this host's name");
  }
  if (parameters::kHostId.isSet()) {
    const std::string text = parameters::kHostId.text();
    if (text.size() >= sizeof identity.hostId) {
      return fail(Code::kInvalidUsage, "%s has %zu bytes; at most %zu are kept", parameters::kHostId.name(),
                  text.size(), sizeof identity.hostId - 1);
    }
    std::memcpy(identity.hostId, text.c_str(), text.size());
  }
  identity.pid = static_cast<uint32_t>(os::processId());
  identity.startTime = startTimeOf(identity.pid);
  STRETTO_TRY(completeIdentity(identity));
  return identity;
}

bool sameKernel(const ProcessIdentity& a, const ProcessIdentity& b) {
  static constexpr uint8_t kUnknown[16] = {};
  return std::memcmp(a.bootId, b.bootId, sizeof a.bootId) == 0 &&
         std::memcmp(a.bootId, kUnknown, sizeof kUnknown) != 0;
}

bool sameHost(const ProcessIdentity& a, const ProcessIdentity& b) {
  if (a.hostId[0] != 0 || b.hostId[0] != 0) {
    return std::strncmp(a.hostId, b.hostId, sizeof a.hostId) == 0;
  }
  return sameKernel(a, b) && a.mountNamespace == b.mountNamespace && a.pidNamespace == b.pidNamespace;
}

bool sameProcess(const ProcessIdentity& a, const ProcessIdentity& b) {
  return sameHost(a, b) && a.pid == b.pid && a.pidNamespace == b.pidNamespace && a.startTime == b.startTime;
}

bool sameNetwork(const ProcessIdentity& a, const ProcessIdentity& b) {
  return sameKernel(a, b) && a.networkNamespace == b.networkNamespace;
}

}  // namespace stretto
