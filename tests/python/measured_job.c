// Two ranks, threads of one process, all-reduce buffers of the sizes that are asked for, and write down when each called
// and when it was done: size, rank, operation, begin and end in nanoseconds of CLOCK_MONOTONIC, one line each.
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kRanks = 2, kOperations = 30 };

static ncclComm_t comms[kRanks];
static int sizes;
static char** wanted;
static long long (*stamps)[kRanks][kOperations][2];

static long long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void* work(void* argument) {
  const long rank = (long)argument;
  for (int size = 0; size < sizes; ++size) {
    const size_t bytes = strtoull(wanted[size], NULL, 10);
    float* data = calloc(1, bytes);
    for (int operation = 0; operation < kOperations; ++operation) {
      long long* stamp = stamps[size][rank][operation];
      stamp[0] = now();
      if (ncclAllReduce(data, data, bytes / 4, ncclFloat32, ncclSum, comms[rank], NULL) != ncclSuccess) exit(1);
      stamp[1] = now();
    }
    free(data);
  }
  return NULL;
}

int main(int argc, char** argv) {
  sizes = argc - 1;
  wanted = argv + 1;
  stamps = calloc((size_t)sizes, sizeof *stamps);
  if (ncclCommInitAll(comms, kRanks, NULL) != ncclSuccess) return 1;
  pthread_t threads[kRanks];
  for (long rank = 0; rank < kRanks; ++rank) pthread_create(&threads[rank], NULL, work, (void*)rank);
  for (int rank = 0; rank < kRanks; ++rank) pthread_join(threads[rank], NULL);
  for (int size = 0; size < sizes; ++size)
    for (int rank = 0; rank < kRanks; ++rank)
      for (int operation = 0; operation < kOperations; ++operation) {
        const long long* stamp = stamps[size][rank][operation];
        printf("%s %d %d %lld %lld\n", wanted[size], rank, operation, stamp[0], stamp[1]);
      }
  for (int rank = 0; rank < kRanks; ++rank) ncclCommDestroy(comms[rank]);
  return 0;
}
