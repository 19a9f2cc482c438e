/* Several devices per thread: one thread drives all ranks, so that their calls stand in one group. A profiler
 * plugin (see one_device_per_thread.c for how to name one) is told of a single GroupApi, which belongs to the
 * first rank's communicator, and of everything else once for each rank. */
#include "device.h"

int main(void) {
  ncclComm_t comms[kRanks];
  float* data[kRanks];
  CHECK(ncclCommInitAll(comms, kRanks, NULL));
  for (int rank = 0; rank < kRanks; rank++) {
    useDevice(rank);
    data[rank] = newBuffer(kCount);
  }
  CHECK(ncclGroupStart());
  for (int rank = 0; rank < kRanks; rank++)
    CHECK(ncclAllReduce(data[rank], data[rank], kCount, ncclFloat, ncclSum, comms[rank], 0));
  CHECK(ncclGroupEnd());
  for (int rank = 0; rank < kRanks; rank++) {
    useDevice(rank);
    waitForDevice();
  }
  for (int rank = 0; rank < kRanks; rank++) {
    CHECK(ncclCommDestroy(comms[rank]));
    CHECK(ncclMemFree(data[rank]));
  }
  printf("one thread, %d ranks, one all-reduce of %d floats\n", kRanks, kCount);
  return 0;
}
