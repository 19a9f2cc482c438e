// What communicators that have ended leave of the heap: two threads make one, use it and end it, again and
// again. `loop` destroys them, `loop abort` aborts them.
//
//   g++ -std=c++20 -Iinclude loop.cpp -Lbuild -l:libnccl.so.2 -pthread -Wl,-rpath,build -o loop
#include <malloc.h>

#include <cstdio>
#include <thread>

#include "nccl.h"

int main(int arguments, char**) {
  for (int round = 0; round <= 4000; ++round) {
    ncclComm_t comms[2];
    if (ncclCommInitAll(comms, 2, nullptr) != ncclSuccess) return puts(ncclGetLastError(nullptr)), 1;
    const auto use = [&](ncclComm_t comm) {
      float values[256] = {};
      ncclAllReduce(values, values, 256, ncclFloat, ncclSum, comm, nullptr);
      arguments > 1 ? ncclCommAbort(comm) : ncclCommDestroy(comm);
    };
    std::thread one([&] { use(comms[0]); }), other([&] { use(comms[1]); });
    one.join();
    other.join();
    if (round % 500 != 0 && round != 25) continue;
    long pages = 0, resident = 0, shared = 0;
    FILE* const statm = fopen("/proc/self/statm", "r");
    if (statm == nullptr || fscanf(statm, "%ld %ld %ld", &pages, &resident, &shared) != 3) return 1;
    fclose(statm);
    printf("%d: heap %zu bytes, resident %ld KiB\n", round, mallinfo2().uordblks, (resident - shared) * 4);
  }
}
