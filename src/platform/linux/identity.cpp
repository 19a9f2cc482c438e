#include "platform/identity.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/parameters.hpp"
#include "platform/small_file.hpp"

namespace stretto {
namespace {

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

// Field 22 of /proc/PID/stat; 0 of a process that has ended and that its parent has not asked for yet. The
// name in field 2 may hold spaces and brackets: count after the last one.
uint64_t parseStartTime(const std::string& text) {
  size_t at = text.rfind(')');
  if (at != std::string::npos && text.find_first_of("ZX", at) == at + 2) return 0;
  for (int field = 2; field < 22 && at != std::string::npos; ++field) {
    at = text.find(' ', at + 1);
  }
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at, nullptr, 10);
}

Status readBoot(ProcessIdentity& identity) {
  constexpr const char* kBootId = "/proc/sys/kernel/random/boot_id";
  if (!parseUuid(platform::readSmallFile(kBootId), identity.bootId)) {
    std::memset(identity.bootId, 0, sizeof identity.bootId);
    if (identity.hostId[0] == 0) {
      return fail(Code::kSystem, "cannot read %s to tell hosts apart; set %s to a text of this host's own",
                  kBootId, parameters::kHostId.name());
    }
  }
  return kOkStatus;
}

}  // namespace

Status completeIdentity(ProcessIdentity& identity) {
  STRETTO_TRY(readBoot(identity));
  identity.mountNamespace = inodeOf("/proc/self/ns/mnt");
  identity.pidNamespace = inodeOf("/proc/self/ns/pid");
  identity.networkNamespace = inodeOf("/proc/self/ns/net");
  const bool complete = identity.startTime != 0 && identity.mountNamespace != 0 &&
                        identity.pidNamespace != 0 && identity.networkNamespace != 0;
  if (!complete && identity.hostId[0] == 0) {
    return fail(Code::kSystem, "cannot read /proc/self to tell what ranks share; mount /proc or set %s",
                parameters::kHostId.name());
  }
  return kOkStatus;
}

uint64_t startTimeOf(uint32_t pid) {
  return parseStartTime(platform::readSmallFile("/proc/" + std::to_string(pid) + "/stat"));
}

}  // namespace stretto
