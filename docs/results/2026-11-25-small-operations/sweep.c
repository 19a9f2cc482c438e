// Every collective at every size, by one or two builds of the library and by OpenMPI, in turns within the same two
// processes: mpirun -n 2 ./sweep LIBRARY [LIBRARY]. A turn is a barrier and a batch of calls of about a millisecond;
// its time is that of the slower rank; the table has the medians over all turns of a row. Every result is verified.
// As in `stretto bench`: sizes are bytes of the larger buffer, the types are fp32, operations are out of place,
// and an OpenMPI root of a broadcast copies its input to its output, because ncclBroadcast does.
//
// Nothing of MPI is needed to compile it (cc -O2 -I include sweep.c -ldl): OpenMPI's functions and objects are looked up in
// the library that SWEEP_MPI names, libmpi.so.40 if it is not set. Environment: SWEEP_SECONDS of each row (0.25),
// SWEEP_ONLY a collective, SWEEP_FROM and SWEEP_TO bytes, SWEEP_STEP the factor between sizes (2).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <nccl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMostContestants = 3, kMostTurns = 600, kRanks = 2 };
enum { kAllReduce, kReduceScatter, kAllGather, kAllToAll, kBroadcast, kReduce, kGather, kScatter, kPingPong, kCollectives };
static const char* const kNames[kCollectives] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast",
                                                 "reduce",     "gather",         "scatter",    "send_recv"};
static const size_t kMostBytes = (size_t)64 << 20;

typedef struct {
  ncclResult_t (*uniqueId)(ncclUniqueId*);
  ncclResult_t (*init)(ncclComm_t*, int, ncclUniqueId, int);
  ncclResult_t (*allReduce)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
  ncclResult_t (*reduceScatter)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
  ncclResult_t (*allGather)(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
  ncclResult_t (*allToAll)(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
  ncclResult_t (*broadcast)(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
  ncclResult_t (*reduce)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, cudaStream_t);
  ncclResult_t (*gather)(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
  ncclResult_t (*scatter)(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
  ncclResult_t (*send)(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
  ncclResult_t (*receive)(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
  ncclResult_t (*destroy)(ncclComm_t);
  ncclComm_t comm;
} Library;

// OpenMPI's binary interface: handles are addresses of objects that the library exports.
static struct {
  int (*init)(int*, char***);
  int (*rank)(void*, int*);
  int (*allReduce)(const void*, void*, int, void*, void*, void*);
  int (*reduceScatter)(const void*, void*, int, void*, void*, void*);
  int (*allGather)(const void*, int, void*, void*, int, void*, void*);
  int (*allToAll)(const void*, int, void*, void*, int, void*, void*);
  int (*broadcast)(void*, int, void*, int, void*);
  int (*reduce)(const void*, void*, int, void*, void*, int, void*);
  int (*gather)(const void*, int, void*, void*, int, void*, int, void*);
  int (*scatter)(const void*, int, void*, void*, int, void*, int, void*);
  int (*send)(const void*, int, void*, int, int, void*);
  int (*receive)(void*, int, void*, int, int, void*, void*);
  int (*barrier)(void*);
  int (*finalize)(void);
  void *world, *real, *doubles, *bytes, *sum, *most;
} mpi;

static Library libraries[kMostContestants];
static int contestants;  // the last one is OpenMPI
static int rank;
static float *in, *out;
static long wrong;

static void must(int failed, const char* what) {
  if (!failed) return;
  fprintf(stderr, "rank %d: %s\n", rank, what);
  exit(1);
}
static void* symbol(void* library, const char* name) {
  void* const found = library == NULL ? NULL : dlsym(library, name);
  must(found == NULL, dlerror());
  return found;
}
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}
static double number(const char* variable, double otherwise) {
  const char* const text = getenv(variable);
  return text == NULL ? otherwise : atof(text);
}

static void loadMpi(int* argc, char*** argv) {
  const char* const path = getenv("SWEEP_MPI");
  void* const l = dlopen(path == NULL ? "libmpi.so.40" : path, RTLD_NOW | RTLD_GLOBAL);
  *(void**)&mpi.init = symbol(l, "MPI_Init");
  *(void**)&mpi.rank = symbol(l, "MPI_Comm_rank");
  *(void**)&mpi.allReduce = symbol(l, "MPI_Allreduce");
  *(void**)&mpi.reduceScatter = symbol(l, "MPI_Reduce_scatter_block");
  *(void**)&mpi.allGather = symbol(l, "MPI_Allgather");
  *(void**)&mpi.allToAll = symbol(l, "MPI_Alltoall");
  *(void**)&mpi.broadcast = symbol(l, "MPI_Bcast");
  *(void**)&mpi.reduce = symbol(l, "MPI_Reduce");
  *(void**)&mpi.gather = symbol(l, "MPI_Gather");
  *(void**)&mpi.scatter = symbol(l, "MPI_Scatter");
  *(void**)&mpi.send = symbol(l, "MPI_Send");
  *(void**)&mpi.receive = symbol(l, "MPI_Recv");
  *(void**)&mpi.barrier = symbol(l, "MPI_Barrier");
  *(void**)&mpi.finalize = symbol(l, "MPI_Finalize");
  mpi.world = symbol(l, "ompi_mpi_comm_world");
  mpi.real = symbol(l, "ompi_mpi_float");
  mpi.doubles = symbol(l, "ompi_mpi_double");
  mpi.bytes = symbol(l, "ompi_mpi_byte");
  mpi.sum = symbol(l, "ompi_mpi_op_sum");
  mpi.most = symbol(l, "ompi_mpi_op_max");
  must(mpi.init(argc, argv), "MPI_Init");
  must(mpi.rank(mpi.world, &rank), "MPI_Comm_rank");
}

static void loadLibrary(Library* library, const char* path) {
  void* const l = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  *(void**)&library->uniqueId = symbol(l, "ncclGetUniqueId");
  *(void**)&library->init = symbol(l, "ncclCommInitRank");
  *(void**)&library->allReduce = symbol(l, "ncclAllReduce");
  *(void**)&library->reduceScatter = symbol(l, "ncclReduceScatter");
  *(void**)&library->allGather = symbol(l, "ncclAllGather");
  *(void**)&library->allToAll = symbol(l, "ncclAlltoAll");
  *(void**)&library->broadcast = symbol(l, "ncclBroadcast");
  *(void**)&library->reduce = symbol(l, "ncclReduce");
  *(void**)&library->gather = symbol(l, "ncclGather");
  *(void**)&library->scatter = symbol(l, "ncclScatter");
  *(void**)&library->send = symbol(l, "ncclSend");
  *(void**)&library->receive = symbol(l, "ncclRecv");
  *(void**)&library->destroy = symbol(l, "ncclCommDestroy");
  ncclUniqueId id;
  if (rank == 0) must(library->uniqueId(&id), "ncclGetUniqueId");
  must(mpi.broadcast(&id, sizeof id, mpi.bytes, 0, mpi.world), "MPI_Bcast");
  must(library->init(&library->comm, kRanks, id, rank), "ncclCommInitRank");
}

static int callLibrary(const Library* l, int what, size_t n) {
  const int peer = 1 - rank;
  switch (what) {
    case kAllReduce:
      return l->allReduce(in, out, n, ncclFloat32, ncclSum, l->comm, 0);
    case kReduceScatter:
      return l->reduceScatter(in, out, n, ncclFloat32, ncclSum, l->comm, 0);
    case kAllGather:
      return l->allGather(in, out, n, ncclFloat32, l->comm, 0);
    case kAllToAll:
      return l->allToAll(in, out, n, ncclFloat32, l->comm, 0);
    case kBroadcast:
      return l->broadcast(in, out, n, ncclFloat32, 0, l->comm, 0);
    case kReduce:
      return l->reduce(in, out, n, ncclFloat32, ncclSum, 0, l->comm, 0);
    case kGather:
      return l->gather(in, out, n, ncclFloat32, 0, l->comm, 0);
    case kScatter:
      return l->scatter(in, out, n, ncclFloat32, 0, l->comm, 0);
  }
  if (rank == 0) must(l->send(in, n, ncclFloat32, peer, l->comm, 0), "ncclSend");
  must(l->receive(out, n, ncclFloat32, peer, l->comm, 0), "ncclRecv");
  return rank == 1 ? l->send(in, n, ncclFloat32, peer, l->comm, 0) : 0;
}

static int callMpi(int what, int n) {
  const int peer = 1 - rank;
  switch (what) {
    case kAllReduce:
      return mpi.allReduce(in, out, n, mpi.real, mpi.sum, mpi.world);
    case kReduceScatter:
      return mpi.reduceScatter(in, out, n, mpi.real, mpi.sum, mpi.world);
    case kAllGather:
      return mpi.allGather(in, n, mpi.real, out, n, mpi.real, mpi.world);
    case kAllToAll:
      return mpi.allToAll(in, n, mpi.real, out, n, mpi.real, mpi.world);
    case kBroadcast:
      if (rank == 0) memcpy(out, in, n * sizeof *in);
      return mpi.broadcast(out, n, mpi.real, 0, mpi.world);
    case kReduce:
      return mpi.reduce(in, out, n, mpi.real, mpi.sum, 0, mpi.world);
    case kGather:
      return mpi.gather(in, n, mpi.real, out, n, mpi.real, 0, mpi.world);
    case kScatter:
      return mpi.scatter(in, n, mpi.real, out, n, mpi.real, 0, mpi.world);
  }
  if (rank == 0) must(mpi.send(in, n, mpi.real, peer, 0, mpi.world), "MPI_Send");
  must(mpi.receive(out, n, mpi.real, peer, 0, mpi.world, NULL), "MPI_Recv");
  return rank == 1 ? mpi.send(in, n, mpi.real, peer, 0, mpi.world) : 0;
}

static void call(int which, int what, size_t n) {
  must(which + 1 == contestants ? callMpi(what, (int)n) : callLibrary(&libraries[which], what, n), "the call failed");
}

// What element i of `owner`'s input is.
static float input(int owner, size_t i) { return (float)(i % 1000 + owner); }

static void verify(int what, size_t n) {
  const int isRoot = rank == 0;
  for (size_t i = 0; i < n; ++i) {
    const float sum = input(0, i) + input(1, i);
    const size_t own = rank * n + i;  // in what is scattered
    if (what == kAllReduce || (what == kReduce && isRoot)) wrong += out[i] != sum;
    if (what == kReduceScatter) wrong += out[i] != input(0, own) + input(1, own);
    if (what == kAllGather || (what == kGather && isRoot)) wrong += out[i] != input(0, i) || out[n + i] != input(1, i);
    if (what == kAllToAll) wrong += out[i] != input(0, own) || out[n + i] != input(1, own);
    if (what == kBroadcast) wrong += out[i] != input(0, i);
    if (what == kScatter) wrong += out[i] != input(0, own);
    if (what == kPingPong) wrong += out[i] != input(1 - rank, i);
    out[i] = out[n + i] = -1;
  }
}

// Means of a batch, in microseconds.
static double turn(int which, int what, size_t n, int calls, int verifies) {
  call(which, what, n);  // so that none finds in the caches what another has left there
  // The contestants' own barriers, as each makes its own progress: an all-reduce of one element.
  if (which + 1 == contestants) {
    must(mpi.barrier(mpi.world), "MPI_Barrier");
  } else {
    must(callLibrary(&libraries[which], kAllReduce, 1), "the barrier failed");
  }
  const double began = now();
  for (int i = 0; i < calls; ++i) call(which, what, n);
  const double took = (now() - began) / calls;
  if (verifies) verify(what, n);
  return what == kPingPong ? took / 2 : took;
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

// Rank 0's value, on both ranks.
static int agree(int value) {
  must(mpi.broadcast(&value, sizeof value, mpi.bytes, 0, mpi.world), "MPI_Bcast");
  return value;
}

// Enough calls for a millisecond; the same on both ranks.
static int callsFor(int which, int what, size_t n) {
  double usual = turn(which, what, n, 2, 1);
  for (int i = 0; i < 4; ++i) {
    const double again = turn(which, what, n, agree(usual > 300 ? 1 : 20), 0);
    if (again < usual) usual = again;
  }
  return agree(usual > 500 ? 1 : (int)(1000 / usual) + 1);
}

// Medians over the turns, each the time of the slower rank.
static void row(int what, size_t bytes, double seconds, double medians[kMostContestants]) {
  static double mine[kMostContestants][kMostTurns], slower[kMostContestants][kMostTurns];
  const int split = what == kReduceScatter || what == kAllGather || what == kAllToAll || what == kGather || what == kScatter;
  const size_t n = bytes / sizeof(float) / (split ? kRanks : 1);
  int calls[kMostContestants], turns = 0, goesOn = 1;
  for (int i = 0; i < contestants; ++i) calls[i] = callsFor(i, what, n);
  const double until = now() + seconds * 1e6;
  while (goesOn) {
    for (int i = 0; i < contestants; ++i) {
      const int which = (i + turns) % contestants;
      mine[which][turns] = turn(which, what, n, calls[which], bytes < 65536 || turns < 2);
    }
    ++turns;
    goesOn = agree((now() < until && turns < kMostTurns) || turns < 5);
  }
  for (int i = 0; i < contestants; ++i) {
    must(mpi.allReduce(mine[i], slower[i], turns, mpi.doubles, mpi.most, mpi.world), "MPI_Allreduce");
    qsort(slower[i], turns, sizeof *slower[i], compare);
    medians[i] = slower[i][turns / 2];
  }
}

static void bind(void) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < kRanks) return;
  for (int core = 0, seen = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || seen++ != rank) continue;
    CPU_ZERO(&allowed);
    CPU_SET(core, &allowed);
    sched_setaffinity(0, sizeof allowed, &allowed);
    return;
  }
}

int main(int argc, char** argv) {
  must(argc < 2 || argc > kMostContestants, "usage: mpirun -n 2 sweep LIBRARY [LIBRARY]");
  loadMpi(&argc, &argv);
  bind();
  contestants = argc;
  for (int i = 0; i + 1 < contestants; ++i) loadLibrary(&libraries[i], argv[1 + i]);
  must(posix_memalign((void**)&in, 4096, kMostBytes) || posix_memalign((void**)&out, 4096, 2 * kMostBytes), "no memory");
  memset(out, 0, 2 * kMostBytes);
  for (size_t i = 0; i < kMostBytes / sizeof *in; ++i) in[i] = input(rank, i);
  const char* const only = getenv("SWEEP_ONLY");
  for (int what = 0; what < kCollectives; ++what) {
    if (only != NULL && strcmp(only, kNames[what]) != 0) continue;
    const double step = number("SWEEP_STEP", 2), to = number("SWEEP_TO", kMostBytes);
    for (double bytes = number("SWEEP_FROM", 8); bytes <= to; bytes *= step) {
      double us[kMostContestants];
      row(what, (size_t)bytes, number("SWEEP_SECONDS", 0.25), us);
      if (rank != 0) continue;
      printf("%-14s %9.0f", kNames[what], bytes);
      for (int i = 0; i < contestants; ++i) printf(" %10.3f", us[i]);
      printf("  openmpi / library %.3f", us[contestants - 1] / us[0]);
      if (contestants > 2) printf("  library / other %.3f", us[0] / us[1]);
      printf("\n");
      fflush(stdout);
    }
  }
  long all[2] = {wrong, 0};
  double sum = (double)wrong, total = 0;
  must(mpi.allReduce(&sum, &total, 1, mpi.doubles, mpi.sum, mpi.world), "MPI_Allreduce");
  all[1] = (long)total;
  if (rank == 0) printf("%ld wrong\n", all[1]);
  for (int i = 0; i + 1 < contestants; ++i) must(libraries[i].destroy(libraries[i].comm), "ncclCommDestroy");
  mpi.finalize();
  return all[1] != 0;
}
