// One table of a plugin, whatever its version, called through the shape of version 12: what is missing in
// older ones is left out, what is narrower is checked. For net/plugin only.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "net/net.hpp"
#include "net/plugin/abi.hpp"
#include "platform/dynamic_library.hpp"

namespace stretto::net::plugin {

// Results are NCCL's; nothing here checks what a plugin says.
class ForeignTable {
 public:
  virtual ~ForeignTable() = default;
  virtual int version() const = 0;
  virtual const char* name() const = 0;
  // Whether every function that we call is there.
  virtual bool isWhole() const = 0;
  virtual int mostRequests() const = 0;
  virtual int init(abi::Logger logger) = 0;
  virtual int finalize() = 0;
  virtual int devices(int* count) = 0;
  virtual int properties(int device, Properties& properties) = 0;
  virtual int listen(int device, void* handle, void** listener) = 0;
  virtual int connect(int device, void* handle, void** sender) = 0;
  virtual int accept(void* listener, void** receiver) = 0;
  virtual int enrol(void* connection, void* at, size_t bytes, int pointer, void** memory) = 0;
  virtual int release(void* connection, void* memory) = 0;
  virtual int send(void* sender, void* data, size_t bytes, int tag, void* memory, void** request) = 0;
  virtual int receive(void* receiver, int count, void** data, size_t* bytes, int* tags, void** memories,
                      void** request) = 0;
  virtual int test(void* request, int* done, int* bytes) = 0;
  virtual void closeSender(void* sender) = 0;
  virtual void closeReceiver(void* receiver) = 0;
  virtual void closeListener(void* listener) = 0;
};

template <typename Table, int kVersion>
class ForeignTableOf final : public ForeignTable {
 public:
  explicit ForeignTableOf(const Table& table) : table_(table) {}

  int version() const override { return kVersion; }
  const char* name() const override { return table_.name != nullptr ? table_.name : "without a name"; }
  bool isWhole() const override {
    bool whole = table_.init && table_.devices && table_.getProperties && table_.listen && table_.connect &&
                 table_.accept && table_.regMr && table_.deregMr && table_.isend && table_.irecv &&
                 table_.test && table_.closeSend && table_.closeRecv && table_.closeListen;
    if constexpr (kVersion >= 11) whole = whole && table_.finalize;
    return whole;
  }
  int mostRequests() const override { return kVersion == 6 ? abi::kMostRequestsOfV6 : kMostRequests; }

  int init(abi::Logger logger) override {
    if constexpr (kVersion >= 11) {
      abi::ConnectionConfig config{-1};
      return table_.init(&context_, reinterpret_cast<uint64_t>(this), &config, logger, nullptr);
    } else if constexpr (kVersion == 10) {
      return table_.init(logger, nullptr);
    } else {
      return table_.init(logger);
    }
  }
  int finalize() override {
    if constexpr (kVersion >= 11) return table_.finalize(context_);
    return abi::kSuccess;
  }
  int devices(int* count) override { return table_.devices(count); }

  int properties(int device, Properties& properties) override {
    typename Table::Properties said{};
    const int result = table_.getProperties(device, &said);
    if (result != abi::kSuccess) return result;
    properties.name = said.name != nullptr ? said.name : "";
    properties.pciPath = said.pciPath != nullptr ? said.pciPath : "";
    properties.guid = said.guid;
    properties.takesDevice = (said.pointers & abi::kPointerCuda) != 0;
    properties.bitsPerSecond = int64_t{said.speed} * 1000000;
    properties.port = said.port;
    properties.microseconds = said.latency;
    properties.mostConnections = said.mostConnections;
    properties.mostGrouped = said.mostGrouped;
    properties.mostBytes = std::numeric_limits<int>::max();
    if constexpr (kVersion >= 9) properties.mostBytes = said.mostBytes;
    return result;
  }

  int listen(int device, void* handle, void** listener) override {
    if constexpr (kVersion >= 11)
      return table_.listen(context_, device, handle, listener);
    else
      return table_.listen(device, handle, listener);
  }
  int connect(int device, void* handle, void** sender) override {
    abi::DeviceHandle* offload = nullptr;  // none is asked for
    if constexpr (kVersion >= 11) {
      return table_.connect(context_, device, handle, sender, &offload);
    } else if constexpr (kVersion == 10) {
      abi::ConnectionConfig config{-1};
      return table_.connect(device, &config, handle, sender, &offload);
    } else if constexpr (kVersion >= 7) {
      return table_.connect(device, handle, sender, &offload);
    } else {
      return table_.connect(device, handle, sender);
    }
  }
  int accept(void* listener, void** receiver) override {
    abi::DeviceHandle* offload = nullptr;
    if constexpr (kVersion >= 7)
      return table_.accept(listener, receiver, &offload);
    else
      return table_.accept(listener, receiver);
  }

  int enrol(void* connection, void* at, size_t bytes, int pointer, void** memory) override {
    if constexpr (kVersion >= 8) return table_.regMr(connection, at, bytes, pointer, memory);
    if (!fitsInt(bytes)) return abi::kInvalidArgument;
    return table_.regMr(connection, at, static_cast<int>(bytes), pointer, memory);
  }
  int release(void* connection, void* memory) override { return table_.deregMr(connection, memory); }

  int send(void* sender, void* data, size_t bytes, int tag, void* memory, void** request) override {
    if constexpr (kVersion >= 10) {
      return table_.isend(sender, data, bytes, tag, memory, nullptr, request);
    } else if constexpr (kVersion == 9) {
      return table_.isend(sender, data, bytes, tag, memory, request);
    } else {
      if (!fitsInt(bytes)) return abi::kInvalidArgument;
      return table_.isend(sender, data, static_cast<int>(bytes), tag, memory, request);
    }
  }
  int receive(void* receiver, int count, void** data, size_t* bytes, int* tags, void** memories,
              void** request) override {
    if constexpr (kVersion >= 10) {
      void* profiled[kMostGrouped] = {};
      return table_.irecv(receiver, count, data, bytes, tags, memories, profiled, request);
    } else if constexpr (kVersion == 9) {
      return table_.irecv(receiver, count, data, bytes, tags, memories, request);
    } else {
      int narrow[kMostGrouped] = {};
      for (int i = 0; i < count; ++i) {
        if (!fitsInt(bytes[i])) return abi::kInvalidArgument;
        narrow[i] = static_cast<int>(bytes[i]);
      }
      return table_.irecv(receiver, count, data, narrow, tags, memories, request);
    }
  }
  int test(void* request, int* done, int* bytes) override { return table_.test(request, done, bytes); }
  void closeSender(void* sender) override { table_.closeSend(sender); }
  void closeReceiver(void* receiver) override { table_.closeRecv(receiver); }
  void closeListener(void* listener) override { table_.closeListen(listener); }

 private:
  static bool fitsInt(size_t bytes) { return bytes <= size_t{std::numeric_limits<int>::max()}; }

  const Table& table_;
  void* context_ = nullptr;
};

// The newest table that a library exports, up to version `newest`; null if it exports none.
std::unique_ptr<ForeignTable> newestTable(const platform::DynamicLibrary& library, int newest);

}  // namespace stretto::net::plugin
