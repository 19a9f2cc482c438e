#include "api/pass_on.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "communicator/handover/foreign_library.hpp"
#include "platform/dynamic_library.hpp"
#include "platform/loaded_files.hpp"

namespace stretto::api {
namespace {

using communicator::foreignLibraryIfLoaded;
using platform::DynamicLibrary;

// Libraries that the program loaded and that were found to be NCCL. Never freed, and they stay loaded: calls
// go there. The lock is never held while the loader is asked, which may be waiting for a thread that wants
// it.
struct Known {
  std::mutex mutex;
  std::vector<std::pair<std::string, std::unique_ptr<const DynamicLibrary>>> all;
};
Known& known() {
  static auto* instance = new Known;
  return *instance;
}

// What a thread remembers of its last calls, because asking the loader is slow. An address belongs to the
// same library until that is unloaded, and neither NCCL nor its callers are.
struct Answer {
  const void* caller;
  const void* foreign;  // what foreignLibraryIfLoaded() was
  const DynamicLibrary* library;
};
struct PerThread {
  std::array<Answer, 16> answers;
  bool probes;    // answersItself() is running
  bool cameBack;  // and its question was put to this library
};
constinit thread_local PerThread perThread{};

// Empty: the first there is.
const DynamicLibrary* findKnown(const std::string& file) {
  Known& here = known();
  std::lock_guard lock(here.mutex);
  for (const auto& [name, library] : here.all) {
    if (file.empty() || name == file) return library.get();
  }
  return nullptr;
}

const DynamicLibrary* keep(const std::string& file, DynamicLibrary library) {
  auto kept = std::make_unique<const DynamicLibrary>(std::move(library));
  Known& here = known();
  std::lock_guard lock(here.mutex);
  for (const auto& [name, earlier] : here.all) {
    if (name == file) return earlier.get();
  }
  return here.all.emplace_back(file, std::move(kept)).second.get();
}

// A tool may define NCCL's functions and call ours from them. It must not be taken for an NCCL: a call that
// was passed on to it would come back for ever. Two signs of a tool: asked for its version, it asks this
// library; and it calls a function of ours from its own function of the same name, which NCCL never does.
bool answersItself(const DynamicLibrary& library) {
  const auto ask = reinterpret_cast<decltype(&::ncclGetVersion)>(library.symbol("ncclGetVersion"));
  int version = 0;
  perThread.probes = true;
  perThread.cameBack = false;
  const ncclResult_t result = ask(&version);
  perThread.probes = false;
  return result == ncclSuccess && !perThread.cameBack;
}

bool isWrapper(const std::string& function, const std::string& name) {
  return function == name || function == "p" + name;
}

// The NCCL in `file`, which is loaded; null if it is none, or is this library.
const DynamicLibrary* recognise(const std::string& file) {
  if (file.empty()) return nullptr;
  const auto* const foreign = foreignLibraryIfLoaded();
  if (foreign != nullptr && file == platform::placeOfCode(foreign->ncclGetVersion.address()).file) {
    return &foreign->file;
  }
  if (!communicator::namedNccl(file) || file == platform::ownFile()) return nullptr;
  if (const DynamicLibrary* const before = findKnown(file); before != nullptr) return before;
  DynamicLibrary library = DynamicLibrary::openLoaded(file);
  if (!library.isOpen() || library.symbol("strettoVersion") != nullptr) return nullptr;
  const void* const own = library.symbol("ncclGetVersion");
  if (own == nullptr || !platform::sameFile(platform::placeOfCode(own).file, file)) return nullptr;
  if (!answersItself(library)) return nullptr;
  return keep(file, std::move(library));
}

// The NCCL whose code called the entry point `name`; null when that was a user of ours.
const DynamicLibrary* ofCaller(PerThread& mine, const char* name, const void* caller) {
  const auto* const foreign = foreignLibraryIfLoaded();
  if (foreign != nullptr && communicator::InsideForeign::here()) return &foreign->file;
  const auto mixed = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(caller)) * 0x9e3779b97f4a7c15;
  Answer& answer = mine.answers[mixed >> 60];
  if (answer.caller != caller || answer.foreign != foreign) {
    // A call that does not return ends its function: what follows may be another.
    const auto place = platform::placeOfCode(static_cast<const char*>(caller) - 1);
    const bool wraps = isWrapper(place.function, name);
    answer = {caller, foreign, wraps ? nullptr : recognise(place.file)};
  }
  return answer.library;
}

// Whose handles there may be, where nothing else says.
const DynamicLibrary* anyLoaded() {
  if (const auto* const foreign = foreignLibraryIfLoaded(); foreign != nullptr) return &foreign->file;
  if (const DynamicLibrary* const before = findKnown(""); before != nullptr) return before;
  for (const std::string& file : platform::mappedFiles()) {
    if (const DynamicLibrary* const found = recognise(file); found != nullptr) return found;
  }
  return nullptr;
}

void* symbolOf(const DynamicLibrary* library, const char* name) {
  return library == nullptr ? nullptr : library->symbol(name);
}

}  // namespace

void* elsewhere(const char* name, const void* caller) noexcept try {
  PerThread& mine = perThread;
  if (mine.probes) [[unlikely]] {
    mine.cameBack = true;
    return nullptr;
  }
  return symbolOf(ofCaller(mine, name, caller), name);
} catch (...) {
  return nullptr;
}

void* elsewhereWithForeign(const char* name, const void* handle, const void* caller) noexcept try {
  const DynamicLibrary* const library = ofCaller(perThread, name, caller);
  return symbolOf(library == nullptr && handle != nullptr ? anyLoaded() : library, name);
} catch (...) {
  return nullptr;
}

}  // namespace stretto::api
