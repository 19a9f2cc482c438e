// Measured tables of communicators on GPUs, which are made up here (fake_devices.cpp): what they are kept by
// and that all ranks must have the same.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/version.hpp"
#include "harness/ranks.hpp"
#include "stretto.h"

void fakeSetDevice(int device);

namespace stretto {
namespace {

using namespace stretto::testing;

std::string tableFile(const char* name, int blocks) {
  const std::string path = ::testing::TempDir() + "stretto_gpu_table_" + name + std::to_string(getpid());
  FILE* const file = fopen(path.c_str(), "w");
  if (file == nullptr) return {};
  fprintf(
      file,
      "{\"schema\": \"stretto.table/1\", \"machine\": {}, \"entries\": [{\"collective\": \"all_gather\", "
      "\"ranks\": 2, \"same_process\": true, \"gpu\": \"made-up GPU\", \"links\": \"nvlink\", \"version\": "
      "\"%s\", \"rows\": [{\"bytes\": 4096, \"algorithm\": \"push\", \"protocol\": \"wide\", "
      "\"chunk_bytes\": 0, \"blocks\": %d, \"us\": 2.5}]}]}",
      kLibraryVersion, blocks);
  fclose(file);
  return path;
}

std::string explained(Member& member) {
  const strettoQuestion_t question{"all_gather", 8192, ncclFloat, ncclSum, 0, 0, 0};
  char text[32768];
  size_t needed = 0;
  member.expect(strettoExplain(member.comm, &question, text, sizeof text, &needed), "explain");
  return text;
}

TEST(GpuTables, AreForTheGpusAndTheLinksOfTheRanksInProcesses) {
  const std::string path = tableFile("good", 3);
  const auto body = connected([](Member& member) {
    const std::string text = explained(member);
    for (const char* part : {R"("gpu":"made-up GPU")", R"("links":"nvlink")", R"("why":"table")",
                             R"("blocks":3)", R"("same_process":false)"}) {
      if (text.find(part) == std::string::npos) member.complain("no %s in %s", part, text.c_str());
    }
  });
  asProcesses(2, [&](Member& member) {
    setenv("STRETTO_TABLE", path.c_str(), 1);
    fakeSetDevice(member.rank);
    body(member);
  });
  unlink(path.c_str());
}

TEST(GpuTables, MustBeTheSameOnAllRanksInProcesses) {
  const std::string paths[] = {tableFile("one", 3), tableFile("other", 4)};
  asProcesses(2, [&](Member& member) {
    setenv("STRETTO_TABLE", paths[member.rank].c_str(), 1);
    fakeSetDevice(member.rank);
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    member.expect(ncclCommInitRank(&member.comm, 2, id, member.rank), "init", ncclInvalidUsage);
    member.expectError("init", {"different measured tables", "STRETTO_TABLE"});
  });
  for (const std::string& path : paths) unlink(path.c_str());
}

}  // namespace
}  // namespace stretto
