#include "net/calls.hpp"

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "base/log.hpp"
#include "base/parameters.hpp"
#include "net/tcp/tcp.hpp"
#include "net/tcp/wire.hpp"
#include "platform/encryption.hpp"

namespace stretto::net::exported {
namespace {

// A connection that is being made, and the handle that it was begun with.
struct Attempt {
  std::unique_ptr<Connecting> connecting;
  Handle handle{};
};
struct Process {
  std::mutex mutex;
  std::shared_ptr<Net> net;
  int users = 0;
  uint64_t attempts = 0;
  std::map<uint64_t, std::shared_ptr<Attempt>> open;
  std::set<std::string> texts;
};
// Never destroyed: NCCL's threads may outlive static objects.
Process& process() {
  static auto* instance = new Process;
  return *instance;
}

std::shared_ptr<Net> net() {
  std::lock_guard lock(process().mutex);
  return process().net;
}

int resultOf(Status status) {
  switch (status.code) {
    case Code::kOk:
      return abi::kSuccess;
    case Code::kInvalidArgument:
      return abi::kInvalidArgument;
    case Code::kInvalidUsage:
      return abi::kInvalidUsage;
    case Code::kSystem:
      return abi::kSystemError;
    case Code::kRemote:
    case Code::kTimeout:
    case Code::kAborted:
      return abi::kRemoteError;
    default:
      return abi::kInternalError;
  }
}

struct Connection;
// NCCL asks about a request without saying of which connection it is.
struct Pending {
  Connection* connection = nullptr;
  Request* request = nullptr;  // null: not used
  int count = 1;
  size_t bytes = 0;  // of a send
};
struct Connection {
  std::unique_ptr<Sender> sender;  // one of the two
  std::unique_ptr<Receiver> receiver;
  std::array<Pending, kMostRequests> pending;

  Pending* freeRequest() {
    for (Pending& one : pending) {
      if (one.request == nullptr) return &one;
    }
    return nullptr;
  }
};
Connection& connectionOf(void* pointer) {
  return *static_cast<Connection*>(pointer);
}

// The last bytes of a handle are ours to keep the number of an attempt in: NCCL calls connect with the same
// handle until the connection is there. Handles come from other hosts, so a number counts only with the rest
// of the handle that it was given out for.
static_assert(tcp::kRendezvousBytes + sizeof(uint64_t) <= kHandleBytes);
std::shared_ptr<Attempt> attemptOf(const std::byte* handle) {
  uint64_t number = 0;
  std::memcpy(&number, handle + tcp::kRendezvousBytes, sizeof number);
  std::lock_guard lock(process().mutex);
  const auto at = process().open.find(number);
  if (at == process().open.end()) return nullptr;
  const bool same = std::memcmp(at->second->handle.data(), handle, tcp::kRendezvousBytes) == 0;
  return same ? at->second : nullptr;
}

Status begin(Net& with, int device, std::byte* handle, std::shared_ptr<Attempt>& attempt) {
  attempt = std::make_shared<Attempt>();
  std::memcpy(attempt->handle.data(), handle, kHandleBytes);
  auto connecting = with.connect(device, attempt->handle);
  if (!connecting.ok()) return connecting.status();
  attempt->connecting = std::move(connecting.value());
  std::lock_guard lock(process().mutex);
  const uint64_t number = ++process().attempts;
  process().open[number] = attempt;
  std::memcpy(handle + tcp::kRendezvousBytes, &number, sizeof number);
  return kOkStatus;
}

void endAttempt(const std::byte* handle) {
  uint64_t number = 0;
  std::memcpy(&number, handle + tcp::kRendezvousBytes, sizeof number);
  std::lock_guard lock(process().mutex);
  process().open.erase(number);
}

}  // namespace

int init() {
  Process& here = process();
  std::lock_guard lock(here.mutex);
  if (here.net == nullptr) {
    const auto encryption = encryptionOfProcess();
    if (!encryption.ok()) return resultOf(encryption.status());
    auto opened = tcp::open(encryption.value());
    if (!opened.ok()) return resultOf(opened.status());
    here.net = std::move(opened.value());
    if (encryption.value().on) {
      STRETTO_LOG(
          kWarn, kNet,
          "NET/Stretto: what NCCL sends through this plugin is encrypted, but NCCL's bootstrap hands "
          "the keys around in plain text: who hears that, and can change what is sent, reads everything");
    }
    for (int device = 0; device < here.net->devices(); ++device) {
      const auto properties = here.net->properties(device);
      STRETTO_LOG(kInfo, kNet, "NET/Stretto: TCP over %s", properties.value().name.c_str());
    }
  }
  ++here.users;
  return abi::kSuccess;
}

int finalize(void*) {
  Process& here = process();
  std::lock_guard lock(here.mutex);
  if (here.users > 0 && --here.users == 0) {
    here.open.clear();
    here.net.reset();
  }
  return abi::kSuccess;
}

int devices(int* count) {
  const auto here = net();
  if (here == nullptr) return abi::kInvalidUsage;
  *count = here->devices();
  return abi::kSuccess;
}

int properties(int device, Properties& properties) {
  const auto here = net();
  if (here == nullptr) return abi::kInvalidUsage;
  auto known = here->properties(device);
  if (!known.ok()) return resultOf(known.status());
  properties = std::move(known.value());
  const auto grouped = parameters::kNetGrouped.integer(1, kMostGrouped);
  if (!grouped.ok()) return resultOf(grouped.status());
  properties.mostGrouped = static_cast<int>(grouped.value());
  return abi::kSuccess;
}

char* keep(const std::string& text) {
  std::lock_guard lock(process().mutex);
  return const_cast<char*>(process().texts.insert(text).first->c_str());
}

int listen(int device, void* handle, void** listener) {
  *listener = nullptr;
  const auto here = net();
  if (here == nullptr) return abi::kInvalidUsage;
  auto made = here->listen(device);
  if (!made.ok()) return resultOf(made.status());
  std::memcpy(handle, made.value()->handle().data(), kHandleBytes);
  *listener = made.value().release();
  return abi::kSuccess;
}

int connect(int device, void* handle, void** sender) {
  *sender = nullptr;
  const auto here = net();
  if (here == nullptr) return abi::kInvalidUsage;
  auto* const bytes = static_cast<std::byte*>(handle);
  std::shared_ptr<Attempt> attempt = attemptOf(bytes);
  if (attempt == nullptr) {
    const Status begun = begin(*here, device, bytes, attempt);
    if (!begun.ok()) return resultOf(begun);
  }
  std::unique_ptr<Sender> made;
  const Status status = attempt->connecting->poll(made);
  if (!status.ok() || made != nullptr) endAttempt(bytes);
  if (!status.ok() || made == nullptr) return resultOf(status);
  *sender = new Connection{std::move(made), nullptr, {}};
  return abi::kSuccess;
}

int accept(void* listener, void** receiver) {
  *receiver = nullptr;
  std::unique_ptr<Receiver> made;
  const Status status = static_cast<Listener*>(listener)->accept(made);
  if (status.ok() && made != nullptr) *receiver = new Connection{nullptr, std::move(made), {}};
  return resultOf(status);
}

int regMr(void* connection, void* data, size_t bytes, int pointer, void** memory) {
  Connection& here = connectionOf(connection);
  const Memory kind = pointer == abi::kPointerHost ? Memory::kHost : Memory::kDevice;
  auto* const at = static_cast<std::byte*>(data);
  auto made =
      here.sender != nullptr ? here.sender->enrol(at, bytes, kind) : here.receiver->enrol(at, bytes, kind);
  if (!made.ok()) return resultOf(made.status());
  *memory = made.value().release();
  return abi::kSuccess;
}

int regMrDmaBuf(void*, void*, size_t, int, uint64_t, int, void**) {
  return resultOf(fail(Code::kInvalidUsage, "NET/Stretto takes no memory of devices"));
}

int deregMr(void*, void* memory) {
  delete static_cast<Registration*>(memory);
  return abi::kSuccess;
}

int isend(void* sender, void* data, size_t bytes, int tag, void* memory, void*, void** request) {
  *request = nullptr;
  Connection& here = connectionOf(sender);
  Pending* const free = here.freeRequest();
  if (free == nullptr) return abi::kSuccess;
  const Status status = here.sender->send(static_cast<const std::byte*>(data), bytes, tag,
                                          static_cast<Registration*>(memory), free->request);
  if (!status.ok() || free->request == nullptr) return resultOf(status);
  free->connection = &here;
  free->bytes = bytes;
  *request = free;
  return abi::kSuccess;
}

// `*request` comes with a hint in it that does not matter here.
int irecv(void* receiver, int count, void** data, size_t* bytes, int* tags, void** memories, void**,
          void** request) {
  *request = nullptr;
  Connection& here = connectionOf(receiver);
  if (count < 1 || count > kMostGrouped) return abi::kInvalidArgument;
  Pending* const free = here.freeRequest();
  if (free == nullptr) return abi::kSuccess;
  Receive receives[kMostGrouped];
  for (int i = 0; i < count; ++i) {
    receives[i] = {static_cast<std::byte*>(data[i]), bytes[i], tags[i],
                   static_cast<Registration*>(memories[i])};
  }
  const Status status = here.receiver->receive(receives, count, free->request);
  if (!status.ok() || free->request == nullptr) return resultOf(status);
  free->connection = &here;
  free->count = count;
  *request = free;
  return abi::kSuccess;
}

// Of host memory there is nothing to flush.
int iflush(void*, int, void**, int*, void**, void** request) {
  *request = nullptr;
  return abi::kSuccess;
}

int test(void* request, int* done, int* bytes) {
  Pending& pending = *static_cast<Pending*>(request);
  Connection& here = *pending.connection;
  bool isDone = false;
  size_t sizes[kMostGrouped] = {pending.bytes};
  const Status status = here.sender != nullptr ? here.sender->test(pending.request, isDone)
                                               : here.receiver->test(pending.request, isDone, sizes);
  *done = isDone ? 1 : 0;
  if (!isDone) return resultOf(status);
  const int count = here.sender != nullptr ? 1 : pending.count;
  for (int i = 0; i < count && bytes != nullptr; ++i) bytes[i] = static_cast<int>(sizes[i]);
  pending.request = nullptr;
  return abi::kSuccess;
}

int closeSend(void* sender) {
  delete static_cast<Connection*>(sender);
  return abi::kSuccess;
}
int closeRecv(void* receiver) {
  delete static_cast<Connection*>(receiver);
  return abi::kSuccess;
}
int closeListen(void* listener) {
  delete static_cast<Listener*>(listener);
  return abi::kSuccess;
}

}  // namespace stretto::net::exported
