// OpenMPI as a peer of `stretto p2p`: two ranks under mpirun, of which rank 0 reads the commands of
// net/net_driver.cpp from its stdin and answers them as that does, with MPI_Isend and MPI_Irecv. Its only end
// is 0. Arguments: the CPU of each rank, to run on that one alone.
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "p2p_pattern.hpp"

namespace {

using stretto::bench::MessagePattern;

struct Order {
  int way = 0;  // 0: there, 1: both, 2: there and back; -1: no more
  long bytes = 0;
  long count = 0;
  long inFlight = 1;
};

using Buffers = std::vector<std::vector<unsigned char>>;

// Up to buffers.size() requests under way; the oldest is tested, as a window has it.
class Window {
 public:
  Window(Buffers& buffers, long count, bool sends) : buffers_(buffers), count_(count), sends_(sends) {}
  bool step() {
    while (begun_ < count_ && begun_ - done_ < static_cast<long>(buffers_.size())) {
      std::vector<unsigned char>& bytes = buffers_[begun_ % buffers_.size()];
      MPI_Request& request = requests_[begun_ % 32];
      const int size = static_cast<int>(bytes.size());
      if (sends_) {
        MPI_Isend(bytes.data(), size, MPI_BYTE, other(), 0, MPI_COMM_WORLD, &request);
      } else {
        MPI_Irecv(bytes.data(), size, MPI_BYTE, other(), 0, MPI_COMM_WORLD, &request);
      }
      ++begun_;
    }
    for (int done = 1; done != 0 && done_ < begun_;) {
      MPI_Test(&requests_[done_ % 32], &done, MPI_STATUS_IGNORE);
      done_ += done != 0 ? 1 : 0;
    }
    return done_ == count_;
  }
  void finish() {
    while (!step()) {
    }
  }

 private:
  static int other() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return 1 - rank;
  }
  Buffers& buffers_;
  const long count_;
  const bool sends_;
  long begun_ = 0;
  long done_ = 0;
  MPI_Request requests_[32];
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void exchange(const Order& order, int rank, Buffers& out, Buffers& in, std::vector<double>& halves) {
  if (order.way == 0) {
    Window(rank == 0 ? out : in, order.count, rank == 0).finish();
  } else if (order.way == 1) {
    Window there(out, order.count, true);
    Window here(in, order.count, false);
    for (bool sent = false, received = false; !sent || !received;) {
      sent = sent || there.step();
      received = received || here.step();
    }
  } else {
    for (long i = 0; i < order.count; ++i) {
      const double begin = now();
      Window(rank == 0 ? out : in, 1, rank == 0).finish();
      Window(rank == 0 ? in : out, 1, rank != 0).finish();
      halves.push_back((now() - begin) * 1e6 / 2);
    }
  }
}

// The turn as both ranks see it; rank 0 prints.
void turn(const Order& order, int rank) {
  Buffers out(order.inFlight, std::vector<unsigned char>(order.bytes));
  Buffers in(order.inFlight, std::vector<unsigned char>(order.bytes, 0xa5));
  static uint64_t turns = 0;
  ++turns;
  for (size_t i = 0; i < out.size(); ++i) MessagePattern(i, turns, rank).fill(out[i].data(), out[i].size());
  std::vector<double> halves;
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = now();
  exchange(order, rank, out, in, halves);
  char done = 1;
  if (rank == 0) MPI_Recv(&done, 1, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank == 1) MPI_Send(&done, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
  const double seconds = now() - begin;
  long wrong = 0;
  for (size_t i = 0; i < in.size() && (rank == 1 || order.way != 0); ++i) {
    wrong += static_cast<long>(MessagePattern(i, turns, 1 - rank).countWrong(in[i].data(), in[i].size()));
  }
  long all = 0;
  MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank != 0) return;
  printf("{\"ok\":true,\"seconds\":%.9f,\"wrong\":%ld,\"halves\":[", seconds, all);
  for (size_t i = 0; i < halves.size(); ++i) printf("%s%.3f", i == 0 ? "" : ",", halves[i]);
  printf("]}\n");
  fflush(stdout);
}

Order nextOrder() {
  Order order;
  std::string line, verb, way;
  int end = 0;
  if (!std::getline(std::cin, line)) {
    order.way = -1;
    return order;
  }
  std::istringstream words(line);
  words >> verb >> end >> way >> order.bytes >> order.count >> order.inFlight;
  order.way = way == "both" ? 1 : way == "pingpong" ? 2 : way == "there" ? 0 : -1;
  return order;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank + 1 < argc) {
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(atoi(argv[rank + 1]), &own);
    sched_setaffinity(0, sizeof own, &own);
  }
  if (rank == 0) printf("{\"ok\":true,\"net\":\"openmpi\"}\n");
  fflush(stdout);
  for (;;) {
    Order order;
    if (rank == 0) order = nextOrder();
    // Who waits for the next order sleeps: it must take nothing from the others' turns.
    MPI_Request request;
    MPI_Ibcast(&order, sizeof order, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
    for (int done = 0; done == 0;) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done == 0) usleep(200);
    }
    if (order.way < 0) break;
    turn(order, rank);
  }
  MPI_Finalize();
  return 0;
}
