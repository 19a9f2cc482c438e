/* Twenty rounds of four collectives and an exchange between two ranks, each a thread, for plugins to report.
 * The pause at the end lets a plugin that writes in the background write. */
#include <pthread.h>
#include <unistd.h>

#include "../../examples/profiler/device.h"

enum { kRounds = 20, kFloats = 8192 };
static ncclUniqueId id;

static void oneRound(float* from, float* to, int peer, ncclComm_t comm) {
  CHECK(ncclAllReduce(from, to, kFloats, ncclFloat, ncclSum, comm, 0));
  CHECK(ncclAllGather(from, to, kFloats, ncclFloat, comm, 0));
  CHECK(ncclReduceScatter(from, to, kFloats, ncclFloat, ncclSum, comm, 0));
  CHECK(ncclBroadcast(from, to, kFloats, ncclFloat, 0, comm, 0));
  CHECK(ncclGroupStart());
  CHECK(ncclSend(from, kFloats, ncclFloat, peer, comm, 0));
  CHECK(ncclRecv(to, kFloats, ncclFloat, peer, comm, 0));
  CHECK(ncclGroupEnd());
}

static void* rankMain(void* argument) {
  const int rank = *(int*)argument;
  ncclComm_t comm;
  float *from, *to;
  useDevice(rank);
  from = newBuffer((size_t)kRanks * kFloats);
  to = newBuffer((size_t)kRanks * kFloats);
  CHECK(ncclCommInitRank(&comm, kRanks, id, rank));
  for (int round = 0; round < kRounds; round++) oneRound(from, to, 1 - rank, comm);
  waitForDevice();
  usleep(200000);
  CHECK(ncclCommDestroy(comm));
  CHECK(ncclMemFree(from));
  CHECK(ncclMemFree(to));
  return NULL;
}

int main(void) {
  pthread_t threads[kRanks];
  int ranks[kRanks];
  CHECK(ncclGetUniqueId(&id));
  for (int rank = 0; rank < kRanks; rank++) {
    ranks[rank] = rank;
    if (pthread_create(&threads[rank], NULL, rankMain, &ranks[rank]) != 0) return 1;
  }
  for (int rank = 0; rank < kRanks; rank++) pthread_join(threads[rank], NULL);
  return 0;
}
