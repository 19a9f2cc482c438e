// Who is told what becomes of each chunk of a collective that goes over a net: the profiler's host
// (communicator/profiler/far_steps.hpp). Called by SpreadHost on the thread that runs the operation.
#pragma once

#include <cstddef>

namespace stretto::links::net {

class ChunkWatch {
 public:
  // Of a chunk to `peer`, in this order. The first is left out where there is room at once.
  virtual void waitsForRoom(int peer) = 0;
  virtual void fills(int peer, size_t bytes) = 0;  // there is room
  virtual void handsOver(int peer) = 0;            // it lies there, and is the net's from now on
  // Of the oldest chunk to `peer` of which this has not been said yet: the net has begun to send it, because
  // the peer has a receive for it; the net does not need it any more.
  virtual void begins(int peer) = 0;
  virtual void leaves(int peer) = 0;

  // Of a chunk from `peer`, in this order.
  virtual void waitsForData(int peer) = 0;
  virtual void comes(int peer, size_t bytes) = 0;
  virtual void isRead(int peer) = 0;

 protected:
  ~ChunkWatch() = default;
};

}  // namespace stretto::links::net
