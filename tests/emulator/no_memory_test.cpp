// A GPU without room for a device window: every rank learns of it from its first operation, and why.
#include "api/cuda/sides.hpp"
#include "emulator/machine.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

class NoMemory : public AmongGpus {};

TEST_P(NoMemory, IsSaidByEveryRank) {
  // Those of several processes share no emulated memory: only rank 1's has none there.
  const bool threads = GetParam().threads;
  run([threads](Member& member) {
    auto& machine = emulator::Machine::current();
    if (threads || member.rank == 1) machine.refuseFrom(size_t{1} << 20);
    member.board.meet();
    const ncclResult_t first = ncclAllReduce(member.device->at(0, nullptr), member.device->at(1, nullptr),
                                             100, ncclFloat, ncclSum, member.comm, member.stream());
    member.check(first == ncclSystemError || first == ncclRemoteError, "the first operation");
    member.expectError("why", {"memory of device"});
    member.board.meet();
    machine.refuseFrom(SIZE_MAX);
    const ncclResult_t second = ncclAllReduce(member.device->at(0, nullptr), member.device->at(1, nullptr),
                                              100, ncclFloat, ncclSum, member.comm, member.stream());
    member.check(second != ncclSuccess, "the communicator goes on");
    member.board.meet();
    member.expect(ncclCommAbort(member.comm), "abort");
    member.comm = nullptr;
  });
}

INSTANTIATE_TEST_SUITE_P(Among, NoMemory,
                         ::testing::Values(Among{true, 2}, Among{true, 3}, Among{false, 2}, Among{false, 4}),
                         nameOfAmong);

}  // namespace
}  // namespace stretto
