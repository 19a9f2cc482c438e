// A peer as an algorithm sees it: where its window is, and whether its ordinary memory can be reached. A
// plain value that crosses to a device; `communicator/core/connect` fills it, whoever owns the mapping
// outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/shareable.hpp"
#include "base/status.hpp"
#include "primitives/window.hpp"

namespace stretto {

// How this rank can reach memory of the peer that lies outside its window.
enum class PeerAccess : uint8_t {
  kNone,     // not at all: everything goes through windows
  kAddress,  // its addresses are ours (same process)
  kCopy,     // the kernel copies (process_vm_readv)
};

// What gives a backend addresses in other processes. Implemented and handed in by the communicator.
class Importer {
 public:
  virtual ~Importer() = default;
  // What `address` (of `bytes`) is in, if it is shareable memory of this process; else `id` 0.
  virtual Shareable describe(const void* address, size_t bytes) = 0;
  // `what`, a buffer of `peer`, in our address space. kRemote: the process has ended; kSystem: the system
  // refuses.
  virtual Result<const std::byte*> map(int peer, int process, const Shareable& what) = 0;
};

struct Peer {
  std::byte* window = nullptr;  // base of the peer's window in our address space
  int32_t rank = -1;
  int32_t process = 0;
  PeerAccess reach = PeerAccess::kNone;

  WindowHeader& header() const { return *reinterpret_cast<WindowHeader*>(window); }
};
static_assert(std::is_standard_layout_v<Peer> && std::is_trivially_destructible_v<Peer>);

}  // namespace stretto
