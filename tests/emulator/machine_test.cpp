// That the emulator finds what it is for: kernels with one fault each, beside the same without it.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>

#include "primitives/cuda/memory.cuh"

namespace stretto::cuda {
namespace {

struct Memory {
  alignas(16) uint64_t data[512];
  uint64_t flag;
};

// One block, or two on streams of their own, over memory that all share; what is complained of.
class OnMachine : public ::testing::Test {
 protected:
  std::string run(std::initializer_list<std::function<void(Memory*)>> kernels, unsigned threads = 64) {
    auto* const memory = reinterpret_cast<Memory*>(machine_.allocate(sizeof(Memory)));
    for (const auto& kernel : kernels) {
      machine_.launch(machine_.makeStream(), {1, threads, false}, [=] { kernel(memory); });
    }
    machine_.run();
    return machine_.complaint();
  }

  Machine machine_{{.seed = 7, .keepsOrder = true}};
};

void sendWarpChunk(Memory* memory, bool ordered) {
  storePack(&memory->data[2 * threadIdx.x], {threadIdx.x, 1});
  if (ordered) __syncthreads();
  if (threadIdx.x == 0) storeRelease(&memory->flag, 1);
}

void readWarpChunk(Memory* memory, bool ordered) {
  if (threadIdx.x == 0) {
    while (loadAcquire(&memory->flag) == 0) {
    }
  }
  // Both let the warp go on together; one of them says what its thread has seen.
  if (ordered) {
    __syncwarp();
  } else {
    (void)__all_sync(0xffffffff, true);
  }
  (void)loadPack(&memory->data[2 * threadIdx.x]);
}

TEST_F(OnMachine, ReleaseAndAcquireOrderWhatTheBarriersAroundThemSay) {
  EXPECT_EQ(run({[](Memory* m) { sendWarpChunk(m, true); }, [](Memory* m) { readWarpChunk(m, true); }}, 32),
            "");
}
TEST_F(OnMachine, FindsAReleaseBeforeOtherThreadsHaveWritten) {
  EXPECT_NE(run({[](Memory* m) { sendWarpChunk(m, false); }, [](Memory* m) { readWarpChunk(m, true); }}, 32),
            "");
}
TEST_F(OnMachine, FindsAVoteInPlaceOfABarrier) {
  EXPECT_NE(run({[](Memory* m) { sendWarpChunk(m, true); }, [](Memory* m) { readWarpChunk(m, false); }}, 32),
            "");
}

// A fence of the block does not serve another GPU.
TEST_F(OnMachine, FindsAFenceOfTheWrongScope) {
  const auto send = [](bool system) {
    return [=](Memory* memory) {
      if (threadIdx.x != 0) return;
      storePack(memory->data, {1, 2});
      system ? fenceSystem() : fenceBlock();
      storeRelaxed64(&memory->flag, 1);
    };
  };
  const auto read = [](Memory* memory) {
    if (threadIdx.x != 0) return;
    while (loadRelaxed64(&memory->flag) == 0) {
    }
    fenceSystem();
    (void)loadPack(memory->data);
  };
  EXPECT_EQ(run({send(true), read}), "");
  EXPECT_NE(run({send(false), read}), "");
}

TEST_F(OnMachine, FindsAWriteBeyondABuffer) {
  EXPECT_NE(run({[](Memory* memory) { storeUnit(memory->data, 514 + threadIdx.x, 1); }}), "");
}

TEST_F(OnMachine, FindsAnAccessThatIsNotAligned) {
  EXPECT_NE(run({[](Memory* memory) { (void)loadPack(&memory->data[threadIdx.x % 2]); }}), "");
}

// What one kernel wrote, the next reads before its turn.
TEST_F(OnMachine, FindsAReadBeforeTheTurn) {
  auto* const memory = reinterpret_cast<Memory*>(machine_.allocate(sizeof(Memory)));
  auto* const stream = machine_.makeStream();
  for (int turn = 0; turn < 6; ++turn) {
    machine_.launch(stream, {1, 32, true}, [=] {
      letNextBegin();
      __syncthreads();
      if (threadIdx.x == 0) (void)loadPack(memory->data);
      awaitPrevious();
      storePack(memory->data, {1, 2});
    });
  }
  machine_.run();
  EXPECT_GT(machine_.earlyStarts(), 0u);
  EXPECT_NE(machine_.complaint(), "");
}

TEST_F(OnMachine, FindsAPlainLoadOfALine) {
  const auto send = [](Memory* memory) { storeRelaxed(memory->data, {1, 2}); };
  const auto read = [](bool relaxed) {
    return [=](Memory* memory) {
      while ((relaxed ? loadRelaxed(memory->data) : loadPack(memory->data)).low == 0) {
      }
    };
  };
  EXPECT_EQ(run({send, read(true)}), "");
  EXPECT_NE(run({send, read(false)}), "");
}

TEST_F(OnMachine, FindsHalvesOfAWarpAtDifferentBarriers) {
  EXPECT_NE(run({[](Memory*) { syncThreads(1 + static_cast<int>(threadIdx.x % 2), 32); }}), "");
}

TEST_F(OnMachine, FindsThreadsOfAWarpThatMeetInDifferentPlaces) {
  EXPECT_NE(run({[](Memory*) {
              if (threadIdx.x % 2 == 0) {
                __syncwarp();
              } else {
                (void)__any_sync(0xffffffff, true);
              }
            }}),
            "");
}

TEST_F(OnMachine, SaysWhoWaitsForEver) {
  try {
    (void)run({[](Memory*) {
      if (threadIdx.x != 0) __syncthreads();
    }});
    FAIL() << "it came to an end";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::strstr(error.what(), "63 threads of stream 1, block 0 wait at a barrier"), nullptr)
        << error.what();
  }
}

TEST_F(OnMachine, VotesShufflesAndBarriersSayWhatTheyShould) {
  const auto kernel = [](Memory* memory) {
    const int channel = static_cast<int>(threadIdx.x % 32);
    const bool fine = __shfl_sync(0xffffffff, channel, channel ^ 1) == (channel ^ 1) &&
                      __any_sync(0xffffffff, channel == 3) != 0 &&
                      __all_sync(0xffffffff, channel < 31) == 0 &&
                      anyThread(1, static_cast<int>(blockDim.x), threadIdx.x == 40) &&
                      !anyThread(1, static_cast<int>(blockDim.x), false);
    storeUnit(memory->data, threadIdx.x, fine ? 1 : 0);
  };
  auto* const memory = reinterpret_cast<Memory*>(machine_.allocate(sizeof(Memory)));
  machine_.launch(machine_.makeStream(), {1, 64, false}, [=] { kernel(memory); });
  machine_.run();
  for (int thread = 0; thread < 64; ++thread) EXPECT_EQ(memory->data[thread], 1u) << thread;
}

// Kernels of one stream follow each other; what one wrote the next may read. One that may begin early does,
// and waits where it says so.
TEST_F(OnMachine, KernelsOfAStreamFollowEachOther) {
  auto* const memory = reinterpret_cast<Memory*>(machine_.allocate(sizeof(Memory)));
  auto* const stream = machine_.makeStream();
  for (uint64_t turn = 0; turn < 8; ++turn) {
    machine_.launch(stream, {2, 64, turn % 2 == 1}, [=] {
      letNextBegin();
      __syncthreads();
      awaitPrevious();
      __syncthreads();
      const size_t place = blockIdx.x * 64 + threadIdx.x;
      const uint64_t before = loadUnit(memory->data, place);
      storeUnit(memory->data, place, before == turn ? turn + 1 : 1000);
    });
  }
  machine_.run();
  for (int place = 0; place < 128; ++place) EXPECT_EQ(memory->data[place], 8u);
  EXPECT_GT(machine_.earlyStarts(), 0u);
  EXPECT_EQ(machine_.complaint(), "");
}

}  // namespace
}  // namespace stretto::cuda
