/* The same between four threads' worth of ranks in one process, through NCCL's own interface. Build and run:
 *
 *   cc examples/01_hello.c -I$(python -c 'import stretto; print(stretto.include_path())') \
 *      $(python -c 'import stretto; print(stretto.library_path())') -Wl,-rpath,$(dirname \
 *      $(python -c 'import stretto; print(stretto.library_path())')) -o hello && ./hello
 *
 * One thread drives all four ranks, so their calls stand in one group: alone, the first would wait for the
 * others. */
#include <nccl.h>
#include <stdio.h>

int main(void) {
  ncclComm_t comms[4];
  float x[4] = {0, 1, 2, 3};
  ncclCommInitAll(comms, 4, NULL);
  ncclGroupStart();
  for (int rank = 0; rank < 4; rank++)
    ncclAllReduce(&x[rank], &x[rank], 1, ncclFloat, ncclSum, comms[rank], 0);
  if (ncclGroupEnd() != ncclSuccess) return fprintf(stderr, "%s\n", ncclGetLastError(NULL)), 1;
  for (int rank = 0; rank < 4; rank++) printf("rank %d of 4: %g\n", rank, x[rank]);
  for (int rank = 0; rank < 4; rank++) ncclCommDestroy(comms[rank]);
  return 0;
}
