/* A library that stands before Stretto's by LD_PRELOAD and does wrong what AUDIT_FAULT lists: what
 * `stretto audit` must find and name. The rank that is at fault is AUDIT_RANK (default 1;
 * -2: all of them).
 *
 *   corrupt  changes one word of what an all-reduce gives the rank
 *   stale    leaves out every other receive, so that what was there before stays
 *   protocol changes one word of what an all-reduce gives the rank while its protocol is forced
 *   window   changes one word of what a collective gives the rank in memory of ncclMemAlloc
 *   pressed  changes one word of what the rank sends while another thread of its process works
 *   overtake signals first and puts the data a moment later
 *   swap     puts every second array before the one that was put before it
 *   deny     refuses puts into memory that is not of ncclMemAlloc, and reads of other processes' memory
 *   late     goes on 100 ms after each all-reduce
 *   doze     goes on 1 ms after each all-reduce
 *   slow     adds 2 ms to each all-reduce, on all ranks
 *   narrow   moves large messages of the rank at 0.02 GB/s
 *   crawl    puts large arrays of the rank at 0.1 GB/s
 *   thin     moves large all-reduces at 0.02 GB/s, on all ranks
 *   init     adds 0.15 s to each communicator of more than one rank, on all ranks
 *   leak     keeps 1 MB for each communicator
 *   heavy    keeps 64 MB for each communicator
 *   fds      keeps a descriptor for each communicator
 *   threads  keeps a thread for each communicator
 *   spend    keeps 16 KB for each all-reduce, and a descriptor and a thread for every 50th
 *   allocate says that it has allocated memory for each operation
 *   crash    ends the process in its 200th call
 *   hang     stays in its 200th call, or with -soon in its 20th
 *   stuck    does not return from making a communicator
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <nccl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <stretto.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int rank_of_process = -1;
static int calls = 0;

static int faulty(const char* fault) {
  static const char* wanted;
  if (wanted == NULL) wanted = getenv("AUDIT_FAULT");
  return wanted != NULL && strstr(wanted, fault) != NULL;
}

static int here(void) {
  const char* rank = getenv("AUDIT_RANK");
  const int wanted = rank != NULL ? atoi(rank) : 1;
  return wanted == -2 || rank_of_process == wanted;
}

/* Python has the library in a scope of its own, where RTLD_NEXT does not look. */
static void* next(const char* name) {
  void* library = dlopen("libstretto.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == NULL) library = dlopen("libstretto.so.0", RTLD_LAZY | RTLD_NOLOAD);
  return library != NULL ? dlsym(library, name) : dlsym(RTLD_NEXT, name);
}

/* The function that this one stands before, looked for once. */
#define REAL(name)               \
  static __typeof__(&name) real; \
  if (real == NULL) real = (__typeof__(real))next(#name)

static void* sleep_for_ever(void* nothing) {
  for (;;) pause();
  return nothing;
}

static size_t bytes_of(size_t count, ncclDataType_t type) {
  return count * (type == ncclFloat32 ? 4 : type == ncclUint8 ? 1 : 8);
}

static int forced = 0; /* a protocol */
static char *window, *window_end;

static int in_window(const void* memory) {
  return (char*)memory >= window && (char*)memory < window_end;
}

/* Whether another thread of this process has worked for 30 ms. Those of the library sleep nearly always. */
static int pressed(void) {
  unsigned long ticks = 0;
  DIR* const tasks = opendir("/proc/self/task");
  for (const struct dirent* one; tasks != NULL && (one = readdir(tasks)) != NULL;) {
    char path[300], text[256];
    unsigned long user = 0, system = 0;
    if (one->d_name[0] == '.' || atoi(one->d_name) == gettid()) continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/stat", one->d_name);
    FILE* const file = fopen(path, "r");
    if (file == NULL) continue;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    const char* const name = strrchr(text, ')');
    const char* const fields = " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu";
    if (name != NULL && sscanf(name + 1, fields, &user, &system) == 2) ticks += user + system;
  }
  if (tasks != NULL) closedir(tasks);
  return ticks * 1000 / (unsigned long)sysconf(_SC_CLK_TCK) >= 30;
}

static void spend(void) {
  static int times = 0;
  static void* volatile kept;
  memset(kept = malloc(16 << 10), 1, 16 << 10);
  if (++times % 50 != 0) return;
  open("/dev/null", O_RDONLY);
  pthread_t thread;
  pthread_create(&thread, NULL, sleep_for_ever, NULL);
}

static void count_call(void) {
  if (!here() || ++calls != (faulty("-soon") ? 20 : 200)) return;
  if (faulty("crash")) abort();
  if (faulty("hang")) sleep_for_ever(NULL);
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  REAL(ncclAllReduce);
  count_call();
  const size_t bytes = bytes_of(count, type);
  if (faulty("slow")) usleep(2000);
  if (faulty("thin") && bytes >= 1 << 20) usleep((useconds_t)((double)bytes / 20));
  const ncclResult_t result = real(send, receive, count, type, op, comm, stream);
  if (faulty("late") && here()) usleep(100000);
  if (faulty("doze") && here()) usleep(1000);
  if (faulty("spend") && here()) spend();
  /* Never words by which ranks only meet. */
  const int changed =
      faulty("corrupt") || (faulty("protocol") && forced) || (faulty("window") && in_window(receive));
  if (changed && here() && type == ncclUint64 && count > 4) ((uint64_t*)receive)[count / 2] ^= 0x10;
  return result;
}

ncclResult_t strettoCommForce(ncclComm_t comm, const char* collective, const char* algorithm,
                              const char* protocol, size_t bytes, int blocks) {
  REAL(strettoCommForce);
  forced = protocol != NULL;
  return real(comm, collective, algorithm, protocol, bytes, blocks);
}

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  REAL(ncclMemAlloc);
  const ncclResult_t result = real(memory, bytes);
  window = *memory;
  window_end = window + bytes;
  return result;
}

ncclResult_t ncclMemFree(void* memory) {
  REAL(ncclMemFree);
  window = window_end = NULL;
  return real(memory);
}

/* Signals that nobody waits for. */
enum { kNobodys = 63 };

ncclResult_t ncclPutSignal(const void* local, size_t count, ncclDataType_t type, int peer, ncclWindow_t win,
                           size_t offset, int signal, int context, unsigned int flags, ncclComm_t comm,
                           cudaStream_t stream) {
  REAL(ncclPutSignal);
  static __typeof__(&ncclSignal) signal_alone;
  if (signal_alone == NULL) signal_alone = (__typeof__(signal_alone))next("ncclSignal");
  static uint64_t kept[1 << 17];
  static size_t kept_count = 0, kept_offset = 0;
  if (faulty("deny") && window == NULL) return ncclInvalidUsage;
  if (faulty("crawl") && here() && bytes_of(count, type) >= 1 << 20) {
    usleep((useconds_t)((double)bytes_of(count, type) / 100));
  }
  if (faulty("overtake") && here()) {
    signal_alone(peer, signal, context, flags, comm, stream);
    usleep(500);
    return real(local, count, type, peer, win, offset, kNobodys, context, flags, comm, stream);
  }
  if (!faulty("swap") || !here() || type != ncclUint64) {
    return real(local, count, type, peer, win, offset, signal, context, flags, comm, stream);
  }
  if (kept_count == 0 && count > 1) {
    memcpy(kept, local, 8 * (kept_count = count));
    kept_offset = offset;
    return signal_alone(peer, signal, context, flags, comm, stream);
  }
  const ncclResult_t result =
      real(local, count, type, peer, win, offset, signal, context, flags, comm, stream);
  usleep(500);
  real(kept, kept_count, type, peer, win, kept_offset, kNobodys, context, flags, comm, stream);
  kept_count = 0;
  return result;
}

/* As where a process may not look at another (kernel.yama.ptrace_scope, seccomp). */
ssize_t process_vm_readv(pid_t pid, const struct iovec* local, unsigned long locals,
                         const struct iovec* other, unsigned long others, unsigned long flags) {
  if (!faulty("deny")) return syscall(SYS_process_vm_readv, pid, local, locals, other, others, flags);
  errno = EPERM;
  return -1;
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  REAL(ncclSend);
  const size_t bytes = bytes_of(count, type);
  if (faulty("narrow") && here() && bytes >= 1 << 20) usleep((useconds_t)((double)bytes / 20));
  static char changed[1 << 20];
  if (faulty("pressed") && here() && pressed() && bytes <= sizeof changed) {
    memcpy(changed, send, bytes);
    changed[bytes / 2] ^= 0x10;
    return real(changed, count, type, peer, comm, stream);
  }
  return real(send, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  REAL(ncclRecv);
  static int received = 0;
  static void* spare = NULL;
  if (faulty("stale") && here() && ++received % 2 == 0) {
    if (spare == NULL) spare = malloc(8 << 20);
    return real(spare, count, type, peer, comm, stream);
  }
  return real(receive, count, type, peer, comm, stream);
}

ncclResult_t strettoCommCounters(ncclComm_t comm, strettoCounters_t* counters) {
  REAL(strettoCommCounters);
  const ncclResult_t result = real(comm, counters);
  if (faulty("allocate") && here()) counters->allocations += counters->operations;
  return result;
}

static void made(int rank, int ranks) {
  rank_of_process = rank;
  if (faulty("init") && ranks > 1) usleep(150000);
  if (!here()) return;
  if (faulty("stuck")) sleep_for_ever(NULL);
  static void* volatile kept;
  if (faulty("leak")) memset(kept = malloc(1 << 20), 1, 1 << 20);
  if (faulty("heavy")) memset(kept = malloc(64 << 20), 1, 64 << 20);
  if (faulty("fds")) open("/dev/null", O_RDONLY);
  pthread_t thread;
  if (faulty("threads")) pthread_create(&thread, NULL, sleep_for_ever, NULL);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  REAL(ncclCommInitRank);
  made(rank, ranks);
  return real(comm, ranks, id, rank);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  REAL(ncclCommInitRankConfig);
  made(rank, ranks);
  return real(comm, ranks, id, rank, config);
}
