#include "communicator/handover/foreign_library.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>

#include "base/parameters.hpp"
#include "memory/user_memory.hpp"
#include "platform/cuda/device.hpp"
#include "platform/loaded_files.hpp"

namespace stretto::communicator {
namespace {

constexpr const char* kName = "libnccl.so.2";
constexpr int kOldest = NCCL_VERSION(2, 19, 0);
constexpr int kOldestOfNextMajor = NCCL_VERSION(3, 0, 0);

std::string textOf(int version) {
  const int major = version / (version < 10000 ? 1000 : 10000);
  const int minor = version / 100 % (version < 10000 ? 10 : 100);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(version % 100);
}

// "…/site-packages/" of a file that lies below one; empty for others.
std::string packagesOf(const std::string& file) {
  for (const char* folder : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = file.find(folder);
    if (at != std::string::npos) return file.substr(0, at + std::string(folder).size());
  }
  return {};
}

template <typename Function>
bool load(const platform::DynamicLibrary& library, const char* name, Function& into) {
  into = Function(library.symbol(name));
  return into != nullptr;
}

Status resolve(ForeignLibrary& found) {
#define STRETTO_FOREIGN_LOAD(name)          \
  if (!load(found.file, #name, found.name)) \
    return fail(Code::kInvalidUsage, "%s is not NCCL 2.19 or later: it has no " #name, found.path.c_str());
  STRETTO_FOREIGN_ALWAYS(STRETTO_FOREIGN_LOAD)
#undef STRETTO_FOREIGN_LOAD
#define STRETTO_FOREIGN_LOAD(name) (void)load(found.file, #name, found.name);
  STRETTO_FOREIGN_SOMETIMES(STRETTO_FOREIGN_LOAD)
#undef STRETTO_FOREIGN_LOAD
  return kOkStatus;
}

Status checkVersion(ForeignLibrary& found) {
  if (found.ncclGetVersion(&found.version) != ncclSuccess) {
    return fail(Code::kInvalidUsage, "%s does not say which version it is", found.path.c_str());
  }
  if (found.version >= kOldest && found.version < kOldestOfNextMajor) return kOkStatus;
  return fail(Code::kInvalidUsage,
              "%s is NCCL %s; communicators can be handed to 2.19 and later releases of 2",
              found.path.c_str(), textOf(found.version).c_str());
}

Result<std::unique_ptr<ForeignLibrary>> open(const std::string& path) {
  auto found = std::make_unique<ForeignLibrary>();
  found->path = path;
  std::string why;
  found->file = platform::DynamicLibrary::openApart(path, &why);
  if (!found->file.isOpen()) return fail(Code::kSystem, "cannot load %s: %s", path.c_str(), why.c_str());
  if (found->file.symbol("strettoVersion") != nullptr) {
    return fail(Code::kInvalidUsage, "%s is this library, not NVIDIA's", path.c_str());
  }
  STRETTO_TRY(resolve(*found));
  STRETTO_TRY(checkVersion(*found));
  return found;
}

Result<std::unique_ptr<ForeignLibrary>> openNamed(const std::string& path) {
  if (path == "none") {
    return fail(Code::kInvalidUsage, "STRETTO_REAL_NCCL=none forbids to hand it to NVIDIA's NCCL");
  }
  if (path.front() != '/') {
    return fail(Code::kInvalidUsage,
                "STRETTO_REAL_NCCL=%s: write the absolute path of NVIDIA's libnccl.so.2, or none",
                path.c_str());
  }
  auto opened = open(path);
  if (opened.ok()) return opened;
  return fail(Code::kInvalidUsage, "STRETTO_REAL_NCCL: %s", std::string(lastError()).c_str());
}

Result<std::unique_ptr<ForeignLibrary>> openFound() {
  std::string tried;
  for (const std::string& path : foreignCandidates(platform::mappedFiles(), platform::librarySearchPath())) {
    if (!platform::isFile(path) || platform::sameFile(path, platform::ownFile())) continue;
    auto opened = open(path);
    if (opened.ok()) return opened;
    tried += "; " + lastError();
  }
  return fail(
      Code::kSystem,
      "no libnccl.so.2 of NVIDIA's was found in this process, on its libraries' search paths or beside "
      "its Python packages%s: set STRETTO_REAL_NCCL to its absolute path (pip's package puts it into "
      "site-packages/nvidia/nccl/lib)",
      tried.c_str());
}

// What NCCL's ncclMemAlloc gave out.
struct Allocations {
  std::mutex mutex;
  std::set<void*> theirs;
};
Allocations& allocations() {
  static auto* instance = new Allocations;
  return *instance;
}

std::atomic<const ForeignLibrary*>& loaded() {
  static std::atomic<const ForeignLibrary*> library{nullptr};
  return library;
}

thread_local int insideDepth = 0;

}  // namespace

InsideForeign::InsideForeign() {
  ++insideDepth;
}
InsideForeign::~InsideForeign() {
  --insideDepth;
}
bool InsideForeign::here() {
  return insideDepth > 0;
}

std::string ForeignLibrary::versionText() const {
  return textOf(version);
}

bool namedNccl(const std::string& file) {
  const size_t slash = file.rfind('/');
  return file.compare(slash == std::string::npos ? 0 : slash + 1, 10, "libnccl.so") == 0;
}

std::vector<std::string> foreignCandidates(const std::vector<std::string>& mapped,
                                           const std::vector<std::string>& folders) {
  std::vector<std::string> all;
  const auto add = [&](const std::string& path) {
    if (std::find(all.begin(), all.end(), path) == all.end()) all.push_back(path);
  };
  for (const std::string& file : mapped) {
    if (namedNccl(file)) add(file);
  }
  for (const std::string& folder : folders) add(folder + "/" + kName);
  for (const std::string& file : mapped) {
    const std::string packages = packagesOf(file);
    if (!packages.empty()) add(packages + "nvidia/nccl/lib/" + kName);
  }
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu/", "/usr/lib/aarch64-linux-gnu/", "/usr/lib64/",
                             "/usr/local/lib/", "/usr/local/cuda/lib64/"}) {
    add(std::string(folder) + kName);
  }
  return all;
}

Result<const ForeignLibrary*> foreignLibrary() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  const bool forbidden = parameters::kRealNccl.text() == "none";
  if (const ForeignLibrary* known = loaded().load(); known != nullptr && !forbidden) return known;
  auto opened = parameters::kRealNccl.isSet() ? openNamed(parameters::kRealNccl.text()) : openFound();
  if (!opened.ok()) return opened.status();
  const ForeignLibrary* const kept = opened.value().release();  // never freed: its communicators point here
  loaded().store(kept);
  return kept;
}

const ForeignLibrary* foreignLibraryIfLoaded() {
  return loaded().load();
}

Result<void*> allocateForBoth(int device, size_t bytes) {
  const ForeignLibrary* const library = foreignLibraryIfLoaded();
  if (library == nullptr) return memory::allocateOn(device, bytes);
  const platform::cuda::ScopedDevice current(device);
  STRETTO_TRY(current.status());
  void* pointer = nullptr;
  if (const ncclResult_t result = library->ncclMemAlloc(&pointer, bytes); result != ncclSuccess) {
    return fail(Code::kSystem, "ncclMemAlloc of %s gives no %zu bytes of GPU %d: %s", library->path.c_str(),
                bytes, device, library->ncclGetErrorString(result));
  }
  std::lock_guard lock(allocations().mutex);
  allocations().theirs.insert(pointer);
  return pointer;
}

Status releaseForBoth(void* pointer) {
  bool isOurs = false;
  {
    std::lock_guard lock(allocations().mutex);
    isOurs = allocations().theirs.erase(pointer) == 0;
  }
  if (isOurs) return memory::release(pointer);
  const ForeignLibrary& library = *foreignLibraryIfLoaded();
  const ncclResult_t result = library.ncclMemFree(pointer);
  if (result == ncclSuccess) return kOkStatus;
  return fail(Code::kSystem, "ncclMemFree of %s: %s", library.path.c_str(),
              library.ncclGetErrorString(result));
}

}  // namespace stretto::communicator
