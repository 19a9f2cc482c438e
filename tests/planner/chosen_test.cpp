// That every form in the table of algorithms is chosen by somebody: by a shipped table or by the model, on
// some machine. What nobody chooses costs every reader and every build.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "communicator/device/layout.hpp"
#include "communicator/device/side.hpp"
#include "planner/choose.hpp"
#include "planner/model.hpp"
#include "planner/table.hpp"
#include "primitives/window.hpp"

namespace stretto::planner {
namespace {

using Forms = std::set<std::string>;

std::string formOf(Collective collective, Algorithm algorithm, Protocol protocol) {
  return std::string(nameOf(collective)) + " " + algorithms::nameOf(algorithm) + " " +
         algorithms::nameOf(protocol);
}

Forms formsOf(algorithms::Device device) {
  Forms all;
  for (const Descriptor& row : algorithms::descriptors(device)) {
    all.insert(formOf(row.collective, row.algorithm, row.protocol));
  }
  return all;
}

// By what the library ships and by the model alone.
void ask(const Request& request, const Machine& machine, Forms& chosen) {
  static const Table* const kShipped = new Table(Table::shipped().value());
  static const Table* const kNone = new Table;
  for (const Table* table : {kNone, kShipped}) {
    const auto plan = choose(request, machine, *table, {});
    if (plan.ok()) chosen.insert(formOf(request.collective, plan.value().algorithm, plan.value().protocol));
  }
}

// Every collective, from 16 bytes to 32 GB, by so many ranks.
template <typename Ask>
void forEachRequest(int ranks, Ask ask) {
  for (int i = 0; i < kCollectives; ++i) {
    for (int shift = 4; shift < 36; ++shift) {
      for (const size_t quarters : {4, 5, 6, 7}) {
        Request request;
        request.collective = static_cast<Collective>(i);
        request.bytes = (quarters << shift) / 4;
        request.ranks = ranks;
        ask(request);
      }
    }
  }
}

TEST(Chosen, OnHostsIsEveryForm) {
  Forms left = formsOf(algorithms::Device::kHost);
  Forms chosen;
  for (const int ranks : {1, 2, 3, 4, 6, 8, 16, 64}) {
    forEachRequest(ranks, [&](const Request& request) {
      for (const int cores : {1, 2, 64}) {
        // On two hosts with different numbers of ranks, or equally many; on one without reach, with it, one
        // process.
        for (const int reach : {-2, -1, 0, 1, 2}) {
          Machine machine;
          machine.hosts = reach < 0 ? 2 : 1;
          machine.perHost = reach == -1 && ranks % 2 == 0 ? ranks / 2 : 0;
          machine.nearChunk = 65536;
          machine.farChunk = size_t{512} << 10;
          machine.cores = cores;
          machine.reach = reach > 0;
          machine.sameProcess = reach == 2;
          machine.slotBytes = (size_t{1} << 20) / static_cast<size_t>(ranks) / 4096 * 4096;
          machine.linkChunk = 65536;
          ask(request, machine, chosen);
        }
      }
    });
  }
  for (const std::string& form : chosen) left.erase(form);
  EXPECT_EQ(left, Forms{});
}

TEST(Chosen, OnGpusAreAllFormsButThoseToCompareWith) {
  Forms left = formsOf(algorithms::Device::kCuda);
  Forms chosen;
  for (const int ranks : {1, 2, 3, 4, 8, 16, 64}) {
    for (const char* const gpu : {"NVIDIA H200", "another"}) {
      for (const int channels : {1, 8, 128}) {  // users allow fewer, and ranks that share a GPU have fewer
        Gpus gpus;
        std::strcpy(gpus.name, gpu);
        gpus.links = Links::kNvlink;
        Machine machine;
        ASSERT_TRUE(communicator::describe(communicator::deviceShape(ranks, channels), gpus, machine).ok());
        machine.fewBlocks = channels < communicator::kMostChannels;
        forEachRequest(ranks, [&](Request request) {
          for (const DataType type : {DataType::kFloat32, DataType::kInt32}) {
            request.type = type;
            for (const int windows : {0, 1, 2, 3}) {  // none, of the input, of the results, of both
              request.windowed = (windows & 2) != 0;
              request.pullsOnce = (windows & 1) != 0;
              request.pullsTwice = windows == 3;
              ask(request, machine, chosen);
            }
          }
        });
      }
    }
  }
  for (const std::string& form : chosen) left.erase(form);
  // Serving engines' all-reduces have these forms; benchmarks compare with them on equal terms.
  const Forms kept = {"all_reduce one_shot pull_nosync", "all_reduce two_shot pull",
                      "all_reduce two_shot pull_nosync"};
  EXPECT_EQ(left, kept);
}

}  // namespace
}  // namespace stretto::planner
