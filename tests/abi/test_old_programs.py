"""A program that was compiled against the header of 2.28.9 runs on our library as it is now."""

import os
import subprocess
from pathlib import Path

from abi_header import STUBS
from abi_wheel import OLD, build, wheel

# What lies behind the old structs must be neither read nor written.
PROGRAM = """
#include <nccl.h>
#include <stdio.h>
#include <string.h>

struct { ncclConfig_t config; unsigned char behind[256]; } guarded = {NCCL_CONFIG_INITIALIZER, {0}};
struct { ncclSimInfo_t info; unsigned char behind[256]; } simulated = {NCCL_SIM_INFO_INITIALIZER, {0}};

static int untouched(const unsigned char* bytes) {
  for (int i = 0; i < 256; i++) if (bytes[i] != 0x7f) return 0;
  return 1;
}

int main(void) {
  ncclUniqueId id;
  ncclComm_t comm, child;
  int value = 21, sum = 0;
  memset(guarded.behind, 0x7f, sizeof guarded.behind);
  memset(simulated.behind, 0x7f, sizeof simulated.behind);
  guarded.config.commName = "old";
  guarded.config.maxCTAs = 8;
  if (ncclGetUniqueId(&id) != ncclSuccess) return 1;
  if (ncclCommInitRankConfig(&comm, 1, id, 0, &guarded.config) != ncclSuccess) {
    fprintf(stderr, "%s", ncclGetLastError(NULL));
    return 2;
  }
  if (ncclAllReduce(&value, &sum, 1, ncclInt, ncclSum, comm, NULL) != ncclSuccess || sum != 21) return 3;
  if (ncclCommSplit(comm, 0, 0, &child, &guarded.config) != ncclSuccess) return 4;
  ncclGroupStart();
  ncclAllReduce(&value, &sum, 1, ncclInt, ncclSum, child, NULL);
  if (ncclGroupSimulateEnd(&simulated.info) != ncclSuccess) return 5;
  if (ncclCommDestroy(child) != ncclSuccess || ncclCommDestroy(comm) != ncclSuccess) return 6;
  return untouched(guarded.behind) && untouched(simulated.behind) ? 0 : 7;
}
"""


def test_a_program_of_the_old_header_runs(tmp_path: Path) -> None:
    source, program = tmp_path / "old.c", tmp_path / "old"
    source.write_text(PROGRAM)
    where = [f"-I{wheel(OLD) / 'include'}", f"-I{STUBS / 'cuda'}"]
    linked = [str(build() / "libnccl.so.2"), f"-Wl,-rpath,{build()}"]
    compiler = ["gcc", "-std=gnu11", *where, str(source), *linked, "-o", str(program)]
    subprocess.run(compiler, check=True, timeout=120)
    environment = {**os.environ, "STRETTO_DEVICE": "cpu"}
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
