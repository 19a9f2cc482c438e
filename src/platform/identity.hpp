// Who this process is, in a form that travels between ranks as plain bytes, so that two of them can decide
// what they share: the host (shared memory, /proc), the network (loopback), the process itself. Any folder
// may include this.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/status.hpp"

namespace stretto {

struct ProcessIdentity {
  char hostname[65] = {};  // for people; always ends with a zero
  char hostId[64] = {};    // NCCL_HOSTID's text, empty when that is not set
  uint8_t bootId[16] =
      {};  // the kernel's id of this boot (Windows: of machine and boot); all zero only when hostId is set
  uint8_t reserved[3] = {};
  uint32_t pid = 0;             // as seen in its own pid namespace
  uint64_t startTime = 0;       // clock ticks after boot (Windows: FILETIME): tells a reused pid apart
  uint64_t mountNamespace = 0;  // inode numbers of /proc/self/ns/* (Windows: of the session)
  uint64_t pidNamespace = 0;
  uint64_t networkNamespace = 0;

  bool operator==(const ProcessIdentity&) const = default;
};
static_assert(sizeof(ProcessIdentity) <= 256 && std::is_trivially_copyable_v<ProcessIdentity>);

// What it says of the kernel: bootId and the namespaces. Of currentIdentity(), which has filled in the rest.
Status completeIdentity(ProcessIdentity& identity);

// Reads it afresh (a forked child is another process). kInvalidUsage when NCCL_HOSTID is longer than 63
// bytes, kSystem when /proc does not answer and NCCL_HOSTID does not stand in.
Result<ProcessIdentity> currentIdentity();

// One kernel and one view of files and processes; or, when either says NCCL_HOSTID, both say the same.
bool sameHost(const ProcessIdentity& a, const ProcessIdentity& b);
bool sameProcess(const ProcessIdentity& a, const ProcessIdentity& b);
// One running kernel, whatever host they say they are on: its cores are the same.
bool sameKernel(const ProcessIdentity& a, const ProcessIdentity& b);
// Whether loopback reaches from one to the other: one kernel and one network namespace.
bool sameNetwork(const ProcessIdentity& a, const ProcessIdentity& b);

// The startTime at which process `pid` started; 0 when no such process runs, or none is to be seen.
uint64_t startTimeOf(uint32_t pid);

}  // namespace stretto
