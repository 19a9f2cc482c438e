// Two ranks as threads of one process, which never wait where they are counted: rank 1 calls when rank 0's
// part has come. For an instrument that counts instructions by thread; every result is verified.
// cc -O2 -I include calls.c -ldl -lpthread; see README.md. ./a.out LIBRARY all-reduce|message BYTES CALLS
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ncclUniqueId id;
static pthread_barrier_t step;
static int isMessage, calls;
static size_t bytes;
static long wrong;
static ncclResult_t (*init)(ncclComm_t*, int, ncclUniqueId, int);
static ncclResult_t (*allReduce)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                                 cudaStream_t);
static ncclResult_t (*send)(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
static ncclResult_t (*receive)(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);

static void must(ncclResult_t result) {
  if (result != ncclSuccess) exit(1);
}

static void* runRank(void* argument) {
  const int rank = (int)(long)argument;
  const size_t n = bytes / sizeof(float);
  float in[4096], out[4096];
  ncclComm_t comm;
  must(init(&comm, 2, id, rank));
  for (int i = 0; i < calls; ++i) {
    for (size_t k = 0; k < n; ++k) in[k] = (float)(i + rank), out[k] = -1;
    pthread_barrier_wait(&step);
    if (isMessage) {
      if (rank == 0) must(send(in, n, ncclFloat32, 1, comm, 0));
      pthread_barrier_wait(&step);
      if (rank == 1) must(receive(out, n, ncclFloat32, 0, comm, 0));
    } else {
      if (rank == 1) usleep(1000);
      must(allReduce(in, out, n, ncclFloat32, ncclSum, comm, 0));
    }
    const float expected = isMessage ? (float)i : (float)(2 * i + 1);
    for (size_t k = 0; k < n && (rank == 1 || !isMessage); ++k)
      if (out[k] != expected) __sync_fetch_and_add(&wrong, 1);
  }
  return NULL;
}

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return 2;
  isMessage = strcmp(argv[2], "message") == 0;
  bytes = strtoul(argv[3], NULL, 10);
  calls = atoi(argv[4]);
  ncclResult_t (*uniqueId)(ncclUniqueId*) = NULL;
  *(void**)&uniqueId = dlsym(library, "ncclGetUniqueId");
  *(void**)&init = dlsym(library, "ncclCommInitRank");
  *(void**)&allReduce = dlsym(library, "ncclAllReduce");
  *(void**)&send = dlsym(library, "ncclSend");
  *(void**)&receive = dlsym(library, "ncclRecv");
  must(uniqueId(&id));
  pthread_barrier_init(&step, NULL, 2);
  pthread_t threads[2];
  for (long rank = 0; rank < 2; ++rank) pthread_create(&threads[rank], NULL, runRank, (void*)rank);
  for (int rank = 0; rank < 2; ++rank) pthread_join(threads[rank], NULL);
  printf("%ld wrong\n", wrong);
  return wrong != 0;
}
