"""Programs that were compiled against the headers of 2.19.3 and of 2.28.9 run on our library as it is now."""

import os
import subprocess
from pathlib import Path

from abi_header import STUBS
from abi_wheel import OLD, build, wheel

# What lies behind the old structs must be neither read nor written.
PROGRAM = """
#include <nccl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define HAS_SIMULATION (NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0))

struct { ncclConfig_t config; unsigned char behind[256]; } guarded = {NCCL_CONFIG_INITIALIZER, {0}};
#if HAS_SIMULATION
struct { ncclSimInfo_t info; unsigned char behind[256]; } simulated = {NCCL_SIM_INFO_INITIALIZER, {0}};
#endif

static int untouched(const unsigned char* bytes) {
  for (int i = 0; i < 256; i++) if (bytes[i] != 0x7f) return 0;
  return 1;
}

int main(void) {
  ncclUniqueId id;
  ncclComm_t comm, child;
  int value = 21, sum = 0, size = 0;
  memset(guarded.behind, 0x7f, sizeof guarded.behind);
#if HAS_SIMULATION
  memset(simulated.behind, 0x7f, sizeof simulated.behind);
  guarded.config.commName = "old";
#else
  /* The padding at the end, where later versions have a member: a program leaves there what it likes. */
  memset((char*)&guarded.config + offsetof(ncclConfig_t, splitShare) + sizeof(int), 0x7f,
         sizeof guarded.config - offsetof(ncclConfig_t, splitShare) - sizeof(int));
#endif
  guarded.config.maxCTAs = 8;
  guarded.config.splitShare = 1;
  if (ncclGetUniqueId(&id) != ncclSuccess) return 1;
  if (ncclCommInitRankConfig(&comm, 1, id, 0, &guarded.config) != ncclSuccess) {
    fprintf(stderr, "%s", ncclGetLastError(NULL));
    return 2;
  }
  if (ncclAllReduce(&value, &sum, 1, ncclInt, ncclSum, comm, NULL) != ncclSuccess || sum != 21) return 3;
  if (ncclCommSplit(comm, 0, 0, &child, &guarded.config) != ncclSuccess) return 4;
  if (ncclCommCount(child, &size) != ncclSuccess || size != 1) return 5;
#if HAS_SIMULATION
  ncclGroupStart();
  ncclAllReduce(&value, &sum, 1, ncclInt, ncclSum, child, NULL);
  if (ncclGroupSimulateEnd(&simulated.info) != ncclSuccess || !untouched(simulated.behind)) return 6;
#endif
  if (ncclCommDestroy(child) != ncclSuccess || ncclCommDestroy(comm) != ncclSuccess) return 7;
  return untouched(guarded.behind) ? 0 : 8;
}
"""

# What the program uses of the nccl.h in nvidia-nccl-cu12 2.19.3, the oldest release whose programs are promised to
# work. Written down here because that wheel has 166 MB.
NCCL_2_19 = """
#include <limits.h>
#include <stddef.h>

#define NCCL_VERSION_CODE 21903
#define NCCL_VERSION(X, Y, Z) ((X) * 10000 + (Y) * 100 + (Z))
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL

typedef struct ncclComm* ncclComm_t;
typedef struct CUstream_st* cudaStream_t;
typedef struct { char internal[128]; } ncclUniqueId;
typedef enum { ncclSuccess = 0 } ncclResult_t;
typedef enum { ncclInt = 2 } ncclDataType_t;
typedef enum { ncclSum = 0 } ncclRedOp_t;

typedef struct ncclConfig_v21700 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
} ncclConfig_t;
_Static_assert(sizeof(ncclConfig_t) == 48 && offsetof(ncclConfig_t, splitShare) == 40, "as in 2.19.3");

#define NCCL_CONFIG_INITIALIZER \\
  {sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION(2, 19, 3), \\
   NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \\
   NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t* config);
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
const char* ncclGetLastError(ncclComm_t comm);
"""


def run_program(folder: Path, headers: list[Path]) -> None:
    """Compiles the program in `folder` with the nccl.h of one of `headers`, links it with our library and runs it."""
    source, program = folder / "old.c", folder / "old"
    source.write_text(PROGRAM)
    linked = [str(build() / "libnccl.so.2"), f"-Wl,-rpath,{build()}"]
    compiler = ["gcc", "-std=gnu11", *(f"-I{one}" for one in headers), str(source), *linked, "-o", str(program)]
    subprocess.run(compiler, check=True, timeout=120)
    environment = {**os.environ, "STRETTO_DEVICE": "cpu"}
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_a_program_of_2_28_9_runs(tmp_path: Path) -> None:
    run_program(tmp_path, [wheel(OLD) / "include", STUBS / "cuda"])


def test_a_program_of_2_19_3_runs(tmp_path: Path) -> None:
    (tmp_path / "nccl.h").write_text(NCCL_2_19)
    run_program(tmp_path, [tmp_path])
