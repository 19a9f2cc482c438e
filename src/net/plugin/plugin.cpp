#include "net/plugin/plugin.hpp"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <future>
#include <mutex>

#include "base/log.hpp"
#include "base/names.hpp"
#include "net/plugin/foreign.hpp"
#include "platform/own_thread.hpp"

namespace stretto::net::plugin {
namespace {

using platform::DynamicLibrary;

constexpr int kMostDevices = 1024;

// A plugin's threads, and what it runs at the end of ours, may outlive us: its library is never closed.
void keepOpen(DynamicLibrary&& library) {
  static auto* const mutex = new std::mutex;
  static auto* const all = new std::vector<DynamicLibrary>;
  std::lock_guard lock(*mutex);
  all->push_back(std::move(library));
}

// One plugin in use. Whoever holds something of it holds this.
struct LoadedPlugin {
  DynamicLibrary library;
  std::unique_ptr<ForeignTable> table;
  bool ready = false;  // init has succeeded

  ~LoadedPlugin() {
    if (ready) table->finalize();
    keepOpen(std::move(library));
  }
};
using Shared = std::shared_ptr<LoadedPlugin>;

// NCCL's logger for plugins.
[[gnu::format(printf, 5, 6)]] void logFor(int level, unsigned long flags, const char* file, int line,
                                          const char* format, ...) {
  const auto ours = static_cast<log::Level>(level);
  const auto subsystem = static_cast<log::Subsystem>(flags);
  if (!log::enabled(ours, subsystem)) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  log::write(ours, subsystem, "%s:%d %s", file != nullptr ? file : "net plugin", line, text);
}

Code codeOf(int result) {
  switch (result) {
    case abi::kUnhandledCudaError:
    case abi::kSystemError:
      return Code::kSystem;
    case abi::kInvalidArgument:
      return Code::kInvalidArgument;
    case abi::kInvalidUsage:
      return Code::kInvalidUsage;
    case abi::kRemoteError:
      return Code::kRemote;
    default:
      return Code::kInternal;
  }
}

// Of one call. kInProgress is no failure: what is asked for is not there yet.
Status checked(const LoadedPlugin& loaded, const char* call, int result) {
  if (result == abi::kSuccess || result == abi::kInProgress) return kOkStatus;
  return fail(codeOf(result), "net plugin %s: its %s returned %d (%s)", loaded.table->name(), call, result,
              nameOf(codeOf(result)));
}

class ForeignRegistration final : public Registration {
 public:
  ForeignRegistration(Shared loaded, void* connection, void* itsMemory)
      : memory(itsMemory), loaded_(std::move(loaded)), connection_(connection) {}
  ~ForeignRegistration() override { loaded_->table->release(connection_, memory); }

  void* const memory;

 private:
  const Shared loaded_;
  void* const connection_;
};

void* memoryOf(Registration* registration) {
  return registration == nullptr ? nullptr : static_cast<ForeignRegistration*>(registration)->memory;
}

// The requests of one connection, and what both kinds of connection do alike.
class ForeignConnection {
 public:
  ForeignConnection(Shared loaded, void* foreign) : loaded_(std::move(loaded)), foreign_(foreign) {}

  Result<std::unique_ptr<Registration>> enrolMemory(std::byte* at, size_t bytes, Memory kind) {
    void* memory = nullptr;
    const int pointer = kind == Memory::kHost ? abi::kPointerHost : abi::kPointerCuda;
    STRETTO_TRY(checked(*loaded_, "regMr", loaded_->table->enrol(foreign_, at, bytes, pointer, &memory)));
    return std::unique_ptr<Registration>(std::make_unique<ForeignRegistration>(loaded_, foreign_, memory));
  }

  struct Pending final : Request {
    void* foreign = nullptr;  // null: not used
    int count = 0;
  };
  // Null if as many as the plugin takes are under way.
  Pending* freeRequest() {
    const auto end = pending_.begin() + loaded_->table->mostRequests();
    const auto free = std::find_if(pending_.begin(), end, [](const Pending& one) { return !one.foreign; });
    return free == end ? nullptr : &*free;
  }
  Status testRequest(Pending& pending, bool& done, size_t* sizes) {
    int isDone = 0;
    int said[kMostGrouped] = {};
    STRETTO_TRY(checked(*loaded_, "test", loaded_->table->test(pending.foreign, &isDone, said)));
    done = isDone != 0;
    if (!done) return kOkStatus;
    for (int i = 0; i < pending.count && sizes != nullptr; ++i) {
      if (said[i] < 0) {
        return fail(Code::kInternal, "net plugin %s: its test says that %d bytes came",
                    loaded_->table->name(), said[i]);
      }
      sizes[i] = static_cast<size_t>(said[i]);
    }
    pending.foreign = nullptr;
    return kOkStatus;
  }

 protected:
  const Shared loaded_;
  void* const foreign_;
  std::array<Pending, kMostRequests> pending_;
};

class ForeignSender final : public Sender, private ForeignConnection {
 public:
  using ForeignConnection::ForeignConnection;
  ~ForeignSender() override { loaded_->table->closeSender(foreign_); }
  Result<std::unique_ptr<Registration>> enrol(std::byte* at, size_t bytes, Memory kind) override {
    return enrolMemory(at, bytes, kind);
  }
  Status send(const std::byte* from, size_t bytes, int tag, Registration* memory,
              Request*& request) override {
    request = nullptr;
    Pending* const free = freeRequest();
    if (free == nullptr) return kOkStatus;
    void* foreign = nullptr;
    auto* const data = const_cast<std::byte*>(from);
    STRETTO_TRY(checked(*loaded_, "isend",
                        loaded_->table->send(foreign_, data, bytes, tag, memoryOf(memory), &foreign)));
    if (foreign == nullptr) return kOkStatus;
    free->foreign = foreign;
    request = free;
    return kOkStatus;
  }
  Status test(Request* request, bool& done) override {
    return testRequest(*static_cast<Pending*>(request), done, nullptr);
  }
};

class ForeignReceiver final : public Receiver, private ForeignConnection {
 public:
  using ForeignConnection::ForeignConnection;
  ~ForeignReceiver() override { loaded_->table->closeReceiver(foreign_); }
  Result<std::unique_ptr<Registration>> enrol(std::byte* at, size_t bytes, Memory kind) override {
    return enrolMemory(at, bytes, kind);
  }
  Status receive(const Receive* receives, int count, Request*& request) override {
    request = nullptr;
    if (count < 1 || count > kMostGrouped) {
      return fail(Code::kInvalidUsage, "%d receives in one request: 1 to %d are possible", count,
                  kMostGrouped);
    }
    Pending* const free = freeRequest();
    if (free == nullptr) return kOkStatus;
    void* data[kMostGrouped] = {};
    size_t bytes[kMostGrouped] = {};
    int tags[kMostGrouped] = {};
    void* memories[kMostGrouped] = {};
    for (int i = 0; i < count; ++i) {
      data[i] = receives[i].to;
      bytes[i] = receives[i].bytes;
      tags[i] = receives[i].tag;
      memories[i] = memoryOf(receives[i].memory);
    }
    void* foreign = nullptr;
    STRETTO_TRY(checked(*loaded_, "irecv",
                        loaded_->table->receive(foreign_, count, data, bytes, tags, memories, &foreign)));
    if (foreign == nullptr) return kOkStatus;
    free->foreign = foreign;
    free->count = count;
    request = free;
    return kOkStatus;
  }
  Status test(Request* request, bool& done, size_t* sizes) override {
    return testRequest(*static_cast<Pending*>(request), done, sizes);
  }
};

class ForeignListener final : public Listener {
 public:
  ForeignListener(Shared loaded, void* foreign, const Handle& handle)
      : loaded_(std::move(loaded)), foreign_(foreign), handle_(handle) {}
  ~ForeignListener() override { loaded_->table->closeListener(foreign_); }
  const Handle& handle() const override { return handle_; }
  Status accept(std::unique_ptr<Receiver>& connection) override {
    void* receiver = nullptr;
    STRETTO_TRY(checked(*loaded_, "accept", loaded_->table->accept(foreign_, &receiver)));
    if (receiver != nullptr) connection = std::make_unique<ForeignReceiver>(loaded_, receiver);
    return kOkStatus;
  }

 private:
  const Shared loaded_;
  void* const foreign_;
  const Handle handle_;
};

// Plugins keep what they know of an attempt in the handle.
class ForeignConnecting final : public Connecting {
 public:
  ForeignConnecting(Shared loaded, int device, const Handle& handle)
      : loaded_(std::move(loaded)), device_(device), handle_(handle) {}
  Status poll(std::unique_ptr<Sender>& connection) override {
    void* sender = nullptr;
    STRETTO_TRY(checked(*loaded_, "connect", loaded_->table->connect(device_, handle_.data(), &sender)));
    if (sender != nullptr) connection = std::make_unique<ForeignSender>(loaded_, sender);
    return kOkStatus;
  }

 private:
  const Shared loaded_;
  const int device_;
  alignas(16) Handle handle_;
};

class ForeignNet final : public Net {
 public:
  ForeignNet(Shared loaded, std::vector<Properties> devices)
      : loaded_(std::move(loaded)), devices_(std::move(devices)) {}
  const char* name() const override { return loaded_->table->name(); }
  int devices() const override { return static_cast<int>(devices_.size()); }
  Result<Properties> properties(int device) const override {
    STRETTO_TRY(checkDevice(device));
    return devices_[static_cast<size_t>(device)];
  }
  Result<std::unique_ptr<Listener>> listen(int device) override {
    STRETTO_TRY(checkDevice(device));
    alignas(16) Handle handle{};
    void* listener = nullptr;
    STRETTO_TRY(checked(*loaded_, "listen", loaded_->table->listen(device, handle.data(), &listener)));
    if (listener == nullptr) {
      return fail(Code::kInternal, "net plugin %s: its listen returned success and no listener", name());
    }
    return std::unique_ptr<Listener>(std::make_unique<ForeignListener>(loaded_, listener, handle));
  }
  Result<std::unique_ptr<Connecting>> connect(int device, const Handle& handle) override {
    STRETTO_TRY(checkDevice(device));
    return std::unique_ptr<Connecting>(std::make_unique<ForeignConnecting>(loaded_, device, handle));
  }

 private:
  Status checkDevice(int device) const {
    if (device >= 0 && device < devices()) return kOkStatus;
    return fail(Code::kInvalidArgument, "net plugin %s has %d devices, and no device %d", name(), devices(),
                device);
  }

  const Shared loaded_;
  const std::vector<Properties> devices_;
};

// What a plugin says of a device, as far as we count on it; empty if that is sound.
std::string nonsenseIn(const Properties& properties) {
  if (properties.name.empty()) return "a device without a name";
  if (properties.bitsPerSecond < 0) return "a speed below zero";
  if (properties.mostGrouped < 1) return "a device that takes no receive";
  if (properties.mostBytes < 1) return "a device that takes no bytes";
  return "";
}

// Init and what comes right after it. Empty if it went well.
std::string start(LoadedPlugin& loaded, std::vector<Properties>& devices) {
  ForeignTable& table = *loaded.table;
  if (const int result = table.init(logFor); result != abi::kSuccess) {
    return "its init returned " + std::to_string(result);
  }
  loaded.ready = true;
  int count = 0;
  if (const int result = table.devices(&count); result != abi::kSuccess) {
    return "its devices returned " + std::to_string(result);
  }
  if (count < 1) return "it has no device here";
  if (count > kMostDevices) return "it says that it has " + std::to_string(count) + " devices";
  for (int device = 0; device < count; ++device) {
    Properties properties;
    if (const int result = table.properties(device, properties); result != abi::kSuccess) {
      return "its getProperties returned " + std::to_string(result);
    }
    if (const std::string nonsense = nonsenseIn(properties); !nonsense.empty()) {
      return "it speaks of " + nonsense;
    }
    properties.mostGrouped = std::min(properties.mostGrouped, kMostGrouped);
    devices.push_back(std::move(properties));
  }
  return "";
}

struct Started {
  std::string why;
  std::vector<Properties> devices;
};

// In a thread of its own, since it may take for ever.
std::string startWithin(double seconds, const Shared& loaded, std::vector<Properties>& devices) {
  auto promise = std::make_shared<std::promise<Started>>();
  std::future<Started> future = promise->get_future();
  const bool begun = platform::startAlone([promise, loaded] {
    Started started;
    started.why = start(*loaded, started.devices);
    promise->set_value(std::move(started));
  });
  if (!begun) return std::string("there is no thread for its init: ") + platform::kNoThread;
  if (future.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready) {
    char text[128];
    snprintf(text, sizeof text, "its init has not returned within %g s", seconds);
    return text;
  }
  Started started = future.get();
  devices = std::move(started.devices);
  return started.why;
}

DynamicLibrary find(const std::string& name, std::string& why) {
  if (equalsIgnoringCase(name, "STATIC_PLUGIN")) return DynamicLibrary::program(&why);
  DynamicLibrary library = DynamicLibrary::open(name, &why);
  if (library.isOpen() || name.find('/') != std::string::npos) return library;
  std::string words;
  library = DynamicLibrary::open("libnccl-net-" + name + ".so", &words);
  if (!library.isOpen()) why += "; " + words;
  return library;
}

template <typename Table, int kVersion>
std::unique_ptr<ForeignTable> tableOf(const DynamicLibrary& library) {
  const std::string symbol = "ncclNetPlugin_v" + std::to_string(kVersion);
  const auto* const table = static_cast<const Table*>(library.symbol(symbol.c_str()));
  return table == nullptr ? nullptr : std::make_unique<ForeignTableOf<Table, kVersion>>(*table);
}

}  // namespace

std::unique_ptr<ForeignTable> newestTable(const DynamicLibrary& library, int newest) {
  struct Version {
    int number;
    std::unique_ptr<ForeignTable> (*tableOf)(const DynamicLibrary&);
  };
  constexpr Version kNewestFirst[] = {{12, tableOf<abi::TableV12, 12>}, {11, tableOf<abi::TableV11, 11>},
                                      {10, tableOf<abi::TableV10, 10>}, {9, tableOf<abi::TableV9, 9>},
                                      {8, tableOf<abi::TableV8, 8>},    {7, tableOf<abi::TableV7, 7>},
                                      {6, tableOf<abi::TableV6, 6>}};
  for (const Version& version : kNewestFirst) {
    if (version.number > newest) continue;
    if (auto found = version.tableOf(library)) return found;
  }
  return nullptr;
}

std::unique_ptr<Net> open(const std::string& name, const std::string& wanted, double seconds,
                          std::string& why, int newest) {
  auto loaded = std::make_shared<LoadedPlugin>();
  loaded->library = find(name, why);
  if (!loaded->library.isOpen()) return nullptr;
  loaded->table = newestTable(loaded->library, newest);
  if (loaded->table == nullptr) {
    why = "it exports none of ncclNetPlugin_v6 to ncclNetPlugin_v12";
    return nullptr;
  }
  if (!wanted.empty() && !equalsIgnoringCase(wanted, loaded->table->name())) {
    why = std::string("it is ") + loaded->table->name() + ", and " + wanted + " is wanted";
    return nullptr;
  }
  if (!loaded->table->isWhole()) {
    why = "its table lacks functions";
    return nullptr;
  }
  std::vector<Properties> devices;
  why = startWithin(seconds, loaded, devices);
  if (!why.empty()) return nullptr;
  STRETTO_LOG(kInfo, kNet, "net plugin %s (%s): version %d of the table, %zu devices", name.c_str(),
              loaded->table->name(), loaded->table->version(), devices.size());
  return std::make_unique<ForeignNet>(std::move(loaded), std::move(devices));
}

}  // namespace stretto::net::plugin
