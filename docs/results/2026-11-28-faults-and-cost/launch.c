// One launch of turns.c for one operation and one size: OLD NEW SECONDS OPERATION BYTES. Memory lies elsewhere at each
// launch, which moves large operations by percents, so that only many launches say what a library costs.
// cc -O2 -I ../../../include launch.c -ldl
#define main turns_main
#include "../2026-11-25-after-a-fault/turns.c"
#undef main

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  const double seconds = atof(argv[3]);
  const int what = atoi(argv[4]);
  const size_t bytes = strtoul(argv[5], NULL, 10);
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
  for (int i = 0; i < kLibraries; ++i) {
    struct Library* const library = &libraries[i];
    must(library->init(&library->comm, 2, shared->id[i], rank));
  }
  in = malloc(bytes);
  out = malloc(2 * bytes);
  for (size_t i = 0; i < bytes / sizeof(float); ++i) in[i] = (float)(i % 1000 + rank);
  row(libraries, what, bytes, seconds);
  for (int i = 0; i < kLibraries; ++i) must(libraries[i].destroy(libraries[i].comm));
  if (rank == 1) return 0;
  int status = 0;
  waitpid(child, &status, 0);
  printf("%ld wrong\n", shared->wrong);
  return shared->wrong != 0 || status != 0;
}
