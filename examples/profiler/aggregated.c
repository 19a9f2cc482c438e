/* Aggregated operations: one device per thread, five collectives in one group. A profiler plugin (see
 * one_device_per_thread.c for how to name one) is told of one GroupApi, one KernelLaunch and one Group for
 * each thread, and of five CollApi and five Coll. */
#include <pthread.h>

#include "device.h"

static ncclUniqueId id;

static void* rankMain(void* argument) {
  const int rank = *(int*)argument;
  ncclComm_t comm;
  float *one, *all;
  useDevice(rank);
  one = newBuffer(kCount);
  all = newBuffer((size_t)kRanks * kCount);
  CHECK(ncclCommInitRank(&comm, kRanks, id, rank));
  CHECK(ncclGroupStart());
  CHECK(ncclAllReduce(one, one, kCount, ncclFloat, ncclSum, comm, 0));
  CHECK(ncclBroadcast(one, one, kCount, ncclFloat, 1, comm, 0));
  CHECK(ncclReduce(one, one, kCount, ncclFloat, ncclMax, 0, comm, 0));
  CHECK(ncclAllGather(one, all, kCount, ncclFloat, comm, 0));
  CHECK(ncclReduceScatter(all, one, kCount, ncclFloat, ncclSum, comm, 0));
  CHECK(ncclGroupEnd());
  waitForDevice();
  CHECK(ncclCommDestroy(comm));
  CHECK(ncclMemFree(one));
  CHECK(ncclMemFree(all));
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
  printf("%d threads, five collectives of %d floats in one group\n", kRanks, kCount);
  return 0;
}
