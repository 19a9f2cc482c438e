#include "memory/window.hpp"

#include <mutex>
#include <unordered_map>
#include <utility>

namespace stretto::memory {

namespace {

// Windows of this process by token. Never destroyed: communicators may be, after static objects were.
struct Windows {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::weak_ptr<Window>> byToken;
};
Windows& windows() {
  static auto* all = new Windows;
  return *all;
}

}  // namespace

Window::~Window() {
  if (memory_.data() == nullptr) return;
  std::lock_guard lock(windows().mutex);
  windows().byToken.erase(header().token);
}

Result<std::shared_ptr<Window>> Window::create(int rank, const WindowLayout& layout, uint64_t token) {
  auto memory = platform::SharedMemory::create("stretto-window", layout.bytes());
  if (!memory.ok()) return memory.status();
  std::shared_ptr<Window> window(new Window);
  window->memory_ = std::move(memory.value());
  WindowHeader& header = window->header();
  header.version = kWindowVersion;
  header.rank = static_cast<uint32_t>(rank);
  header.ranks = layout.ranks;
  header.slotBytes = layout.slotBytes;
  header.linkChunk = layout.linkChunk;
  header.token = token;
  header.magic = kWindowMagic;
  std::lock_guard lock(windows().mutex);
  windows().byToken.emplace(token, window);
  return window;
}

std::shared_ptr<Window> Window::find(uint64_t token) {
  std::lock_guard lock(windows().mutex);
  const auto found = windows().byToken.find(token);
  return found == windows().byToken.end() ? nullptr : found->second.lock();
}

Status checkWindow(const WindowHeader& header, int rank, const WindowLayout& layout, uint64_t token) {
  if (header.magic != kWindowMagic || header.version != kWindowVersion || header.token != token) {
    return failAbout(rank, Code::kInternal,
                     "what was mapped is not the window of rank %d of this communicator", rank);
  }
  if (header.rank != static_cast<uint32_t>(rank) || header.ranks != layout.ranks ||
      header.slotBytes != layout.slotBytes || header.linkChunk != layout.linkChunk) {
    return failAbout(
        rank, Code::kInvalidUsage,
        "rank %d laid out its window for %u ranks, %u byte slots and %u byte links, this rank for %u, %u "
        "and %u: STRETTO_SLOT_BYTES must be the same everywhere",
        rank, header.ranks, header.slotBytes, header.linkChunk, layout.ranks, layout.slotBytes,
        layout.linkChunk);
  }
  return kOkStatus;
}

}  // namespace stretto::memory
