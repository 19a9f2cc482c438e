// Two builds of the library, loaded side by side by two ranks and measured in turns of a millisecond: what
// one costs more than the other, to a fraction of a percent on a machine where two runs differ by several.
// Every result is verified. cc -O2 -I include turns.c -ldl; ./a.out OLD/libnccl.so.2 NEW/libnccl.so.2
// [SECONDS of each row] [MOST BYTES]
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kLibraries = 2, kMostPairs = 4000, kSizes = 8, kOperations = 3 };
static const size_t kBytes[kSizes] = {8, 256, 1024, 4096, 65536, 1 << 20, 4 << 20, 16 << 20};
static const char* const kNames[kOperations] = {"all-reduce", "all-gather", "ping-pong"};

struct Library {
  ncclResult_t (*uniqueId)(ncclUniqueId*);
  ncclResult_t (*init)(ncclComm_t*, int, ncclUniqueId, int);
  ncclResult_t (*allReduce)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                            cudaStream_t);
  ncclResult_t (*allGather)(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
  ncclResult_t (*send)(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
  ncclResult_t (*receive)(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
  ncclResult_t (*destroy)(ncclComm_t);
  ncclComm_t comm;
};

struct Shared {
  ncclUniqueId id[kLibraries];
  volatile int ready;
  volatile long wrong;
};

static struct Shared* shared;
static int rank;
static float *in, *out;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}
static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}
static void must(ncclResult_t result) {
  if (result != ncclSuccess) exit(1);
}

static void load(struct Library* library, const char* path) {
  void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  *(void**)&library->uniqueId = dlsym(handle, "ncclGetUniqueId");
  *(void**)&library->init = dlsym(handle, "ncclCommInitRank");
  *(void**)&library->allReduce = dlsym(handle, "ncclAllReduce");
  *(void**)&library->allGather = dlsym(handle, "ncclAllGather");
  *(void**)&library->send = dlsym(handle, "ncclSend");
  *(void**)&library->receive = dlsym(handle, "ncclRecv");
  *(void**)&library->destroy = dlsym(handle, "ncclCommDestroy");
}

static void call(const struct Library* l, int what, size_t n) {
  if (what == 0) must(l->allReduce(in, out, n, ncclFloat32, ncclSum, l->comm, 0));
  if (what == 1) must(l->allGather(in, out, n, ncclFloat32, l->comm, 0));
  if (what == 2 && rank == 0) must(l->send(in, n, ncclFloat32, 1, l->comm, 0));
  if (what == 2) must(l->receive(out, n, ncclFloat32, 1 - rank, l->comm, 0));
  if (what == 2 && rank == 1) must(l->send(in, n, ncclFloat32, 0, l->comm, 0));
}

static void verify(int what, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float zero = (float)(i % 1000), one = zero + 1;
    if (what == 0) shared->wrong += out[i] != zero + one;
    if (what == 1) shared->wrong += (out[i] != zero) + (out[n + i] != one);
    if (what == 2) shared->wrong += out[i] != (rank == 0 ? one : zero);
    out[i] = -1;
  }
}

static double batch(const struct Library* library, int what, size_t n, int calls) {
  const double began = now();
  for (int i = 0; i < calls; ++i) call(library, what, n);
  const double took = (now() - began) / calls;
  verify(what, n);
  return took;
}

// Rank 0's value, on both ranks.
static int agree(const struct Library* library, int value) {
  if (rank == 0) must(library->send(&value, 1, ncclInt32, 1, library->comm, 0));
  if (rank == 1) must(library->receive(&value, 1, ncclInt32, 0, library->comm, 0));
  return value;
}

// Pairs of batches, the first library first in every second pair; the median ratio with the interval that
// holds it with 95 %, by the order of the ratios.
static void row(struct Library libraries[kLibraries], int what, size_t bytes, double seconds) {
  static double ratios[kMostPairs], old[kMostPairs];
  const size_t n = bytes / sizeof(float);
  for (int i = 0; i < kLibraries; ++i) (void)batch(&libraries[i], what, n, 3);
  double usual = batch(&libraries[0], what, n, 3);
  for (int i = 0; i < 9; ++i) {
    const double again = batch(&libraries[0], what, n, 3);
    if (again < usual) usual = again;
  }
  const int calls = agree(&libraries[0], usual > 1000 ? 1 : (int)(1000 / usual) + 1);
  const double until = now() + seconds * 1e6;
  int pairs = 0, goesOn = 1;
  while (goesOn) {
    double took[kLibraries];
    for (int i = 0; i < kLibraries; ++i) {
      const int which = i ^ (pairs & 1);
      took[which] = batch(&libraries[which], what, n, calls);
    }
    old[pairs] = took[0];
    ratios[pairs++] = took[1] / took[0];
    goesOn = agree(&libraries[0], now() < until && pairs < kMostPairs);
  }
  if (rank != 0) return;
  qsort(ratios, pairs, sizeof *ratios, compare);
  qsort(old, pairs, sizeof *old, compare);
  double root = 1;  // of the number of pairs
  while (root * root < pairs) root += 0.5;
  const int half = (int)(0.98 * root);
  const int low = pairs / 2 - half < 0 ? 0 : pairs / 2 - half;
  const int high = pairs / 2 + half >= pairs ? pairs - 1 : pairs / 2 + half;
  printf("%-10s %9zu B  %9.3f us  ratio %.4f  (%.4f to %.4f)  %d pairs of %d calls\n", kNames[what], bytes,
         old[pairs / 2], ratios[pairs / 2], ratios[low], ratios[high], pairs, calls);
  fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const double seconds = argc > 3 ? atof(argv[3]) : 2;
  const size_t largest = argc > 4 ? strtoul(argv[4], NULL, 10) : kBytes[kSizes - 1];
  shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const pid_t child = fork();
  rank = child == 0;
  struct Library libraries[kLibraries];
  for (int i = 0; i < kLibraries; ++i) load(&libraries[i], argv[1 + i]);
  for (int i = 0; i < kLibraries && rank == 0; ++i) must(libraries[i].uniqueId(&shared->id[i]));
  if (rank == 0) {
    __sync_synchronize();
    shared->ready = 1;
  }
  while (!shared->ready) usleep(50);
  for (int i = 0; i < kLibraries; ++i) must(libraries[i].init(&libraries[i].comm, 2, shared->id[i], rank));
  const size_t most = kBytes[kSizes - 1];
  in = malloc(most);
  out = malloc(2 * most);
  for (size_t i = 0; i < most / sizeof(float); ++i) in[i] = (float)(i % 1000 + rank);
  for (int what = 0; what < kOperations; ++what) {
    for (int k = 0; k < kSizes && kBytes[k] <= largest; ++k) row(libraries, what, kBytes[k], seconds);
  }
  for (int i = 0; i < kLibraries; ++i) must(libraries[i].destroy(libraries[i].comm));
  if (rank == 1) return 0;
  int status = 0;
  waitpid(child, &status, 0);
  printf("%ld wrong\n", shared->wrong);
  return shared->wrong != 0 || status != 0;
}
