#include "platform/identity.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/parameters.hpp"

namespace stretto {
namespace {

// The first bytes of a small file; empty when it cannot be read.
std::string readSmallFile(const char* path) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return {};
  }
  char text[2048];
  const ssize_t got = ::read(fd, text, sizeof text);
  ::close(fd);
  return std::string(text, got > 0 ? static_cast<size_t>(got) : 0);
}

int hexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// "01234567-89ab-…" into 16 bytes; false unless all are there.
bool parseUuid(const std::string& text, uint8_t (&bytes)[16]) {
  int digits = 0;
  for (const char c : text) {
    const int value = hexDigit(c);
    if (value < 0) continue;
    if (digits == 32) return false;
    uint8_t& byte = bytes[digits / 2];
    byte = static_cast<uint8_t>((byte << 4) | value);
    ++digits;
  }
  return digits == 32;
}

uint64_t inodeOf(const char* path) {
  struct stat status {};
  return ::stat(path, &status) == 0 ? status.st_ino : 0;
}

// Field 22 of /proc/PID/stat. The name in field 2 may hold spaces and brackets: count after the last one.
uint64_t parseStartTime(const std::string& text) {
  size_t at = text.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) {
    at = text.find(' ', at + 1);
  }
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at, nullptr, 10);
}

Status readHost(ProcessIdentity& identity) {
  if (::gethostname(identity.hostname, sizeof identity.hostname - 1) != 0) {
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
  constexpr const char* kBootId = "/proc/sys/kernel/random/boot_id";
  if (!parseUuid(readSmallFile(kBootId), identity.bootId)) {
    std::memset(identity.bootId, 0, sizeof identity.bootId);
    if (identity.hostId[0] == 0) {
      return fail(Code::kSystem, "cannot read %s to tell hosts apart; set %s to a text of this host's own",
                  kBootId, parameters::kHostId.name());
    }
  }
  return kOkStatus;
}

}  // namespace

Result<ProcessIdentity> currentIdentity() {
  ProcessIdentity identity;
  STRETTO_TRY(readHost(identity));
  identity.pid = static_cast<uint32_t>(::getpid());
  identity.startTime = startTimeOf(identity.pid);
  identity.mountNamespace = inodeOf("/proc/self/ns/mnt");
  identity.pidNamespace = inodeOf("/proc/self/ns/pid");
  identity.networkNamespace = inodeOf("/proc/self/ns/net");
  const bool complete = identity.startTime != 0 && identity.mountNamespace != 0 &&
                        identity.pidNamespace != 0 && identity.networkNamespace != 0;
  if (!complete && identity.hostId[0] == 0) {
    return fail(Code::kSystem, "cannot read /proc/self to tell what ranks share; mount /proc or set %s",
                parameters::kHostId.name());
  }
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

uint64_t startTimeOf(uint32_t pid) {
  return parseStartTime(readSmallFile(("/proc/" + std::to_string(pid) + "/stat").c_str()));
}

}  // namespace stretto
