#include "platform/identity.hpp"

#include <cstring>

#include "base/hash.hpp"
#include "base/parameters.hpp"
#include "platform/windows/native.hpp"

namespace stretto {
namespace {

using namespace platform::windows;

// The machine's own text of its registry; empty where there is none.
std::string machineGuid() {
  char text[64] = "";
  DWORD bytes = sizeof text - 1;
  const LSTATUS status = RegGetValueA(HKEY_LOCAL_MACHINE, "SOFTWARE\\Microsoft\\Cryptography", "MachineGuid",
                                      RRF_RT_REG_SZ | RRF_SUBKEY_WOW6464KEY, nullptr, text, &bytes);
  return status == ERROR_SUCCESS ? text : "";
}

// When the kernel was started, as FILETIME; 0 if it does not say.
uint64_t bootTime() {
  struct TimeOfDay {
    LARGE_INTEGER boot;
    LARGE_INTEGER rest[5];
  } facts{};
  constexpr auto kTimeOfDay = static_cast<SYSTEM_INFORMATION_CLASS>(3);
  ULONG got = 0;
  const NTSTATUS status = NtQuerySystemInformation(kTimeOfDay, &facts, sizeof facts, &got);
  return status >= 0 ? static_cast<uint64_t>(facts.boot.QuadPart) : 0;
}

}  // namespace

// Kernel objects with names, which sleepers need, are of one session: that stands in for a namespace.
Status completeIdentity(ProcessIdentity& identity) {
  const uint64_t boot = bootTime();
  if (boot == 0 && identity.hostId[0] == 0) {
    return fail(Code::kSystem,
                "the kernel does not say when it was started; set %s to a text of this host's own",
                parameters::kHostId.name());
  }
  const std::string machine = machineGuid() + identity.hostname;
  Hash hash;
  hash.add(machine.data(), machine.size());
  const uint64_t halves[2] = {boot, hash.value()};
  if (boot != 0) std::memcpy(identity.bootId, halves, sizeof identity.bootId);
  DWORD session = 0;
  ProcessIdToSessionId(identity.pid, &session);
  identity.mountNamespace = identity.pidNamespace = uint64_t{session} + 1;
  identity.networkNamespace = 1;
  return kOkStatus;
}

uint64_t startTimeOf(uint32_t pid) {
  const UniqueHandle process =
      own(OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | SYNCHRONIZE, FALSE, static_cast<DWORD>(pid)));
  FILETIME start{}, end{}, kernel{}, user{};
  // One that has ended stays as long as somebody has it open.
  if (process == nullptr || WaitForSingleObject(process.get(), 0) != WAIT_TIMEOUT ||
      !GetProcessTimes(process.get(), &start, &end, &kernel, &user)) {
    return 0;
  }
  return static_cast<uint64_t>(start.dwHighDateTime) << 32 | start.dwLowDateTime;
}

}  // namespace stretto
