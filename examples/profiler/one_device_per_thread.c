/* One device per thread: what a profiler plugin sees of an all-reduce when every rank has a thread of its
 * own. Build as examples/01_hello.c says (add -pthread); run with
 *
 *   NCCL_PROFILER_PLUGIN=/path/to/libnccl-profiler-....so ./one_device_per_thread
 *
 * Every thread gives its plugin the whole sequence: init; one GroupApi with a CollApi and a KernelLaunch; one
 * Group with a Coll in it; finalize. */
#include <pthread.h>

#include "device.h"

static ncclUniqueId id;

static void* rankMain(void* argument) {
  const int rank = *(int*)argument;
  ncclComm_t comm;
  float* data;
  useDevice(rank);
  data = newBuffer(kCount);
  CHECK(ncclCommInitRank(&comm, kRanks, id, rank));
  CHECK(ncclAllReduce(data, data, kCount, ncclFloat, ncclSum, comm, 0));
  waitForDevice();
  CHECK(ncclCommDestroy(comm));
  CHECK(ncclMemFree(data));
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
  printf("%d threads, one all-reduce of %d floats\n", kRanks, kCount);
  return 0;
}
