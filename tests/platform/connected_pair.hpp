// Two sockets of this process that are connected with each other.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "platform/socket.hpp"

namespace stretto::testing {

// Whether it becomes ready within the time.
inline bool waitUntilReady(const FileDescriptor& socket, Poller::For what, int milliseconds = 5000) {
  Result<Poller> poller = Poller::create();
  Poller::Event event[1];
  return poller.ok() && poller.value().add(socket, 1, what).ok() &&
         poller.value().wait(event, milliseconds) == 1;
}
inline bool waitReadable(const FileDescriptor& socket, int milliseconds = 5000) {
  return waitUntilReady(socket, Poller::For::kReading, milliseconds);
}

struct Pair {
  FileDescriptor client;
  FileDescriptor server;
};

inline Pair connected() {
  Result<FileDescriptor> listener = listenOn(loopbackAddress());
  EXPECT_TRUE(listener.ok()) << lastError();
  Pair pair;
  pair.client = beginConnect(boundAddress(listener.value()).value());
  EXPECT_TRUE(waitReadable(listener.value()));
  pair.server = acceptFrom(listener.value());
  EXPECT_TRUE(pair.server.valid());
  EXPECT_EQ(connectError(pair.client), 0);
  return pair;
}

inline Transfer sendText(const FileDescriptor& socket, std::string text) {
  const IoSpan pieces[] = {{text.data(), 1}, {text.data() + 1, text.size() - 1}};
  return sendSome(socket, pieces);
}

}  // namespace stretto::testing
