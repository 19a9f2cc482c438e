// Two ranks, threads of one process or processes, call one function with buffers of the sizes that are asked
// for, and write down when each called and when it was done: size, rank, operation, begin and end in
// nanoseconds of CLOCK_MONOTONIC, one line each. measured_job threads|processes FUNCTION BYTES...; bytes are
// those of the larger buffer.
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kRanks = 2, kOperations = 30 };

static const char* function;
static int sizes;
static char** wanted;

static long long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static ncclResult_t call(float* data, float* other, size_t count, ncclComm_t comm) {
  if (!strcmp(function, "AllReduce"))
    return ncclAllReduce(data, data, count, ncclFloat32, ncclSum, comm, NULL);
  if (!strcmp(function, "AllGather"))
    return ncclAllGather(data, other, count / kRanks, ncclFloat32, comm, NULL);
  if (!strcmp(function, "Broadcast")) return ncclBroadcast(data, data, count, ncclFloat32, 0, comm, NULL);
  if (!strcmp(function, "ReduceScatter"))
    return ncclReduceScatter(data, other, count / kRanks, ncclFloat32, ncclSum, comm, NULL);
  return ncclInvalidArgument;
}

typedef long long Stamps[kOperations][2];

// Stamps by size. Before each call the ranks meet in a small all-reduce, which also tells the report that
// events of this communicator end with their operations: a broadcast does not show it.
static Stamps* work(ncclComm_t comm) {
  Stamps* stamps = calloc((size_t)sizes, sizeof *stamps);
  float meeting = 0;
  for (int size = 0; size < sizes; ++size) {
    const size_t bytes = strtoull(wanted[size], NULL, 10);
    float *data = calloc(1, bytes), *other = calloc(1, bytes);
    for (int operation = 0; operation < kOperations; ++operation) {
      long long* stamp = stamps[size][operation];
      if (ncclAllReduce(&meeting, &meeting, 1, ncclFloat32, ncclSum, comm, NULL) != ncclSuccess) exit(1);
      stamp[0] = now();
      if (call(data, other, bytes / 4, comm) != ncclSuccess) exit(1);
      stamp[1] = now();
    }
    free(data);
    free(other);
  }
  return stamps;
}

static void show(int rank, Stamps* stamps) {
  for (int size = 0; size < sizes; ++size)
    for (int operation = 0; operation < kOperations; ++operation) {
      const long long* stamp = stamps[size][operation];
      printf("%s %d %d %lld %lld\n", wanted[size], rank, operation, stamp[0], stamp[1]);
    }
  fflush(stdout);
  free(stamps);
}

static void* thread(void* comm) {
  return work(comm);
}

static int threads(void) {
  ncclComm_t comms[kRanks];
  if (ncclCommInitAll(comms, kRanks, NULL) != ncclSuccess) return 1;
  pthread_t started[kRanks];
  for (int rank = 0; rank < kRanks; ++rank) pthread_create(&started[rank], NULL, thread, comms[rank]);
  for (int rank = 0; rank < kRanks; ++rank) {
    void* stamps;
    pthread_join(started[rank], &stamps);
    show(rank, stamps);
  }
  for (int rank = 0; rank < kRanks; ++rank) ncclCommDestroy(comms[rank]);
  return 0;
}

// The library is first called when both processes are there.
static int processes(void) {
  int way[2];
  if (pipe(way) != 0) return 1;
  const pid_t child = fork();
  ncclUniqueId id;
  if (child == 0 && read(way[0], &id, sizeof id) != (ssize_t)sizeof id) return 1;
  if (child != 0 && (ncclGetUniqueId(&id) != ncclSuccess || write(way[1], &id, sizeof id) < 0)) return 1;
  const int rank = child == 0;
  ncclComm_t comm;
  if (ncclCommInitRank(&comm, kRanks, id, rank) != ncclSuccess) return 1;
  Stamps* stamps = work(comm);
  ncclCommDestroy(comm);
  int status = 0;
  if (child != 0 && (waitpid(child, &status, 0) != child || status != 0)) return 1;
  show(rank, stamps);  // one after the other
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  function = argv[2];
  sizes = argc - 3;
  wanted = argv + 3;
  return strcmp(argv[1], "threads") ? processes() : threads();
}
