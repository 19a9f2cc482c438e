#include "executors/cuda/engine.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "algorithms/shares.hpp"
#include "base/log.hpp"
#include "executors/cuda/check.hpp"
#include "executors/cuda/copies.hpp"
#include "executors/cuda/fused.hpp"
#include "executors/cuda/load.hpp"
#include "executors/cuda/norms.hpp"
#include "executors/cuda/one_sided.hpp"
#include "executors/cuda/pulls.hpp"
#include "executors/cuda/scale.cuh"
#include "executors/cuda/stamps.hpp"
#include "executors/cuda/threads.cuh"
#include "executors/cuda/transfers.cuh"
#include "platform/cuda/device.hpp"

namespace stretto::executors::cuda {
namespace {

using platform::cuda::ScopedDevice;
using stretto::cuda::ChannelState;
using stretto::cuda::Control;
using stretto::cuda::kindOf;
using stretto::cuda::LongLook;
using stretto::cuda::Stamp;
using stretto::cuda::Stamps;
using stretto::cuda::Unit;
using stretto::cuda::WholeTokens;

}  // namespace

class KernelEngine final : public Engine {
 public:
  explicit KernelEngine(const Setup& setup)
      : setup_(setup),
        regions_(setup.shape),
        copies_(setup.device, setup.rank, setup.ranks),
        signals_(setup_) {}
  ~KernelEngine() override;

  Status begin();
  Status useWindows(std::byte* const* windows) override;
  Status wantWindows() override;
  Status launch(const Launch& launch, StreamHandle stream) override;
  bool mayShare(const Launch& launch) const override;
  bool joins(std::span<const Launch> before, const Launch& next) const override;
  Status launchTogether(std::span<const Launch> launches, StreamHandle stream) override;
  Status launchTransfers(std::span<const DeviceTransfer> transfers, uint64_t sequence,
                         StreamHandle stream) override;
  Status launchSignal(const DeviceSignal& signal, StreamHandle stream) override;
  Status launchWait(int peer, uint32_t number, uint64_t count, StreamHandle stream) override;
  void abort(uint32_t word) override;
  Report report() const override;
  std::array<LongLook, stretto::cuda::kAwaited> longLooks() const override;
  KernelCounts finished() const override;
  Status wantStamps() override;
  Launched lastLaunch() const override { return launched_; }
  Launched lastOf(size_t index) const override { return together_[index]; }
  Launched lastTransfers(int peer, bool isSend) const override;
  size_t takeStamps(std::span<KernelStamp> stamps, uint64_t& lost) override;

 private:
  Context contextFor(uint64_t tag, uint64_t sequence) const;
  template <typename... Parameters>
  Status launchKernel(void (*kernel)(Parameters...), Size size, cudaStream_t stream,
                      const Parameters&... parameters);
  // An empty one for what needs none.
  const Kernel& kernelFor(const Launch& launch) const;
  Status findKernel(const Launch& launch, Kernel& found) const;
  Status launchLocal(const Launch& launch, cudaStream_t stream) const;
  Status launchNorm(const Launch& launch, cudaStream_t stream);
  Status launchNormApart(const Launch& launch, cudaStream_t stream);
  Status launchNormOf(const Arguments& sums, NormArguments norm, cudaStream_t stream) const;
  template <typename... Parameters>
  Status enqueueKernel(void (*kernel)(Parameters...), Size size, cudaStream_t stream,
                       const Parameters&... parameters) const;
  Status launchQueues(const Queues& queues, uint64_t sequence, cudaStream_t stream);
  template <typename What>
  Status launchOneSided(void (*kernel)(Context, What), Size size, StreamHandle stream, const What& what);
  Status launchCopies(const Launch& launch, StreamHandle stream);
  Status launchPull(const Launch& launch, cudaStream_t stream);
  Status scaleInput(const Launch& launch, Arguments& arguments, void*& scratch, cudaStream_t stream) const;
  int threadsFor(const Launch& launch, const Kernel& kernel) const {
    return executors::cuda::threadsFor(launch, kernel, setup_.ranks);
  }
  bool isTooLarge(const Launch& launch) const;

  struct LaunchedQueue {
    int peer;
    bool isSend;
    Launched launched;
  };

  const Setup setup_;
  const stretto::cuda::Regions regions_;
  ChannelState* channels_ = nullptr;
  std::byte* windows_[kMaxRanks] = {};  // by rank, once they are known
  std::byte** windowsThere_ = nullptr;  // a copy, in device memory
  platform::cuda::HostMapped control_;
  platform::cuda::HostMapped stamps_;          // once they are wanted
  std::array<uint64_t, kMostStamps> taken_{};  // stamps of each block
  Launched launched_;
  std::array<Launched, Fused::kMost> together_;   // of the last that were launched together
  std::vector<LaunchedQueue> transfersLaunched_;  // of the last group
  // For copies while kernels may wait for this rank. To create or destroy a stream at such a time can block
  // on those kernels, under a lock of the driver that other calls of the process need.
  cudaStream_t inspection_ = nullptr;
  Copies copies_;
  Signals signals_;
};

KernelEngine::~KernelEngine() {
  const ScopedDevice device(setup_.device);
  if (inspection_ != nullptr) (void)cudaStreamDestroy(inspection_);
  platform::cuda::release(setup_.device, reinterpret_cast<std::byte*>(channels_));
  platform::cuda::release(setup_.device, reinterpret_cast<std::byte*>(windowsThere_));
  platform::cuda::releaseHostMapped(setup_.device, control_);
  platform::cuda::releaseHostMapped(setup_.device, stamps_);
}

Status KernelEngine::begin() {
  const ScopedDevice device(setup_.device);
  STRETTO_TRY(device.status());
  if (setup_.shape.channels < 1 || setup_.ranks < 1 || setup_.ranks > kMaxRanks) {
    return fail(Code::kInternal, "an engine of %d ranks with %d channels", setup_.ranks,
                setup_.shape.channels);
  }
  const int states = std::max<int>(setup_.shape.channels, kMostStamps);
  auto channels = platform::cuda::allocate(setup_.device, sizeof(ChannelState) * static_cast<size_t>(states));
  if (!channels.ok()) return channels.status();
  channels_ = reinterpret_cast<ChannelState*>(channels.value());
  auto windows = platform::cuda::allocate(setup_.device, sizeof windows_);
  if (!windows.ok()) return windows.status();
  windowsThere_ = reinterpret_cast<std::byte**>(windows.value());
  auto control = platform::cuda::allocateHostMapped(setup_.device, sizeof(Control));
  if (!control.ok()) return control.status();
  control_ = control.value();
  STRETTO_TRY(signals_.begin());
  if (setup_.sharedDevice) {
    STRETTO_TRY(loadKernels(
        setup_.device,
        {reinterpret_cast<const void*>(cuda::transfers), reinterpret_cast<const void*>(scaleKernel),
         reinterpret_cast<const void*>(putKernel()), reinterpret_cast<const void*>(waitKernel())}));
    STRETTO_TRY(wantWindows());
  }
  return check(cudaStreamCreateWithFlags(&inspection_, cudaStreamNonBlocking), "creating a stream");
}

Status KernelEngine::useWindows(std::byte* const* windows) {
  const ScopedDevice device(setup_.device);
  STRETTO_TRY(device.status());
  std::copy_n(windows, setup_.ranks, windows_);
  return platform::cuda::copyNow(windowsThere_, windows_, sizeof windows_, inspection_);
}

Context KernelEngine::contextFor(uint64_t tag, uint64_t sequence) const {
  Context context{};
  std::copy_n(windows_, Context::kAtHand, context.windows);
  context.allWindows = windowsThere_;
  context.shape = setup_.shape;
  context.regions = regions_;
  context.channels = channels_;
  context.control = reinterpret_cast<Control*>(control_.device);
  context.stamps = reinterpret_cast<Stamps*>(stamps_.device);
  context.launch = launched_.number + 1;
  context.timeoutTicks = stretto::cuda::ticksOf(setup_.timeoutSeconds);
  context.called = {tag, sequence};
  context.rank = setup_.rank;
  context.ranks = setup_.ranks;
  return context;
}

// Ranks that share a device do without programmatic launch: kernels that only wait for their turn would keep
// those out that they wait for.
template <typename... Parameters>
Status KernelEngine::enqueueKernel(void (*kernel)(Parameters...), Size size, cudaStream_t stream,
                                   const Parameters&... parameters) const {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(size.blocks));
  config.blockDim = dim3(static_cast<unsigned>(size.threads));
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = setup_.sharedDevice || !size.early ? 0 : 1;
  return check(cudaLaunchKernelEx(&config, kernel, parameters...), "launching a kernel");
}

// One that has to do with peers, and is counted.
template <typename... Parameters>
Status KernelEngine::launchKernel(void (*kernel)(Parameters...), Size size, cudaStream_t stream,
                                  const Parameters&... parameters) {
  if (windows_[setup_.rank] == nullptr && setup_.ranks > 1) {
    return fail(Code::kInternal, "a kernel of rank %d before its windows are known", setup_.rank);
  }
  const int channels = size.reported ? std::min(size.blocks, kMostStamps) : 0;
  launched_ = {launched_.number + 1, channels, stamps_.host == nullptr ? 0 : channels, 1};
  return enqueueKernel(kernel, size, stream, parameters...);
}

// PreMulSum: the input is scaled first, into the receive buffer where that holds all of it.
Status KernelEngine::scaleInput(const Launch& launch, Arguments& arguments, void*& scratch,
                                cudaStream_t stream) const {
  Scale scale{};
  scale.type = arguments.reduce.type;
  scale.from = arguments.send;
  scale.bytes = arguments.bytes() * blocksSent(launch.collective, setup_.ranks);
  scale.scalarAt = static_cast<const uint8_t*>(launch.scalarPlace);
  std::memcpy(scale.scalar, launch.scalar, sizeof scale.scalar);
  scale.to = arguments.receive;
  if (launch.collective != Collective::kAllReduce) {
    STRETTO_TRY(check(cudaMallocAsync(&scratch, scale.bytes, stream), "allocating memory for PreMulSum"));
    scale.to = static_cast<std::byte*>(scratch);
  }
  constexpr unsigned kThreads = 256;
  const unsigned grid = static_cast<unsigned>(std::clamp<size_t>(scale.bytes / (kThreads * 64), 1, 256));
  arguments.send = scale.to;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid);
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return check(cudaLaunchKernelEx(&config, scaleKernel, scale), "scaling for PreMulSum");
}

Status KernelEngine::launchLocal(const Launch& launch, cudaStream_t stream) const {
  const Arguments& a = launch.arguments;
  if (a.send == a.receive || a.receive == nullptr) return kOkStatus;
  return check(cudaMemcpyAsync(a.receive, a.send, a.bytes(), cudaMemcpyDeviceToDevice, stream), "copying");
}

// The norm of sums that are there.
Status KernelEngine::launchNormOf(const Arguments& sums, NormArguments norm, cudaStream_t stream) const {
  constexpr size_t kMostBlocks = 1024;  // more take turns
  Arguments all = sums;
  all.norm = &norm;
  const Kernel& kernel =
      KernelTable::all().find(Collective::kAllReduceAddRmsNorm, algorithms::Algorithm::kLocal,
                              algorithms::Protocol::kSimple, kindOf(sums.reduce), 1);
  if (kernel.normed == nullptr) return fail(Code::kInternal, "no norm of %s", nameOf(sums.reduce.type));
  const int blocks = static_cast<int>(std::min(sums.count / norm.hidden, kMostBlocks));
  if (WholeTokens::serve(all, norm)) {
    const WholeTokens whole(all, norm, 1);
    return enqueueKernel(kernel.wholeFor(whole), Size{blocks, threadsOf(whole)}, stream, Context{}, whole);
  }
  const int threads = threadsForToken(all, kernel.mostThreads);
  all.norm = nullptr;
  return enqueueKernel(kernel.normed, Size{blocks, threads}, stream, Context{}, all, norm);
}

// By any all-reduce, whose sums have memory of their own where no buffer of the call can hold them.
Status KernelEngine::launchNormApart(const Launch& launch, cudaStream_t stream) {
  STRETTO_TRY(loadNorms(kindOf(launch.arguments.reduce)));
  NormArguments norm = *launch.arguments.norm;
  void* scratch = nullptr;
  std::byte* sums = bufferForSums(norm);
  if (sums == nullptr) {
    STRETTO_TRY(
        check(cudaMallocAsync(&scratch, launch.arguments.bytes(), stream), "allocating memory for sums"));
    sums = static_cast<std::byte*>(scratch);
  }
  Launch sum = launch;
  sum.collective = Collective::kAllReduce;
  sum.arguments.norm = nullptr;
  sum.arguments.receive = sums;
  Status status = this->launch(sum, stream);
  norm.reduced = nullptr;  // it has been written
  Arguments rest = sum.arguments;
  rest.send = sums;
  if (status.ok()) status = launchNormOf(rest, norm, stream);
  if (scratch != nullptr) {
    const Status freed = check(cudaFreeAsync(scratch, stream), "freeing memory of sums");
    if (status.ok()) status = freed;
  }
  return status;
}

Status KernelEngine::launchNorm(const Launch& launch, cudaStream_t stream) {
  const NormArguments norm = *launch.arguments.norm;
  if (launch.algorithm == algorithms::Algorithm::kLocal) return launchNormOf(launch.arguments, norm, stream);
  const Context context = contextFor(launch.tag, launch.sequence);
  Arguments all = algorithms::withShares(launch.arguments, launch.blocks);
  const algorithms::TokenCut cut = cutOf(launch, setup_);
  const auto blocks = static_cast<size_t>(launch.blocks);
  const auto form = cut.form(blocks);
  if (!kernelFor(launch).isThere() || form == algorithms::NormForm::kApart)
    return launchNormApart(launch, stream);
  Kernel kernel;
  STRETTO_TRY(findKernel(launch, kernel));
  if (form == algorithms::NormForm::kInRegisters && WholeTokens::serve(all, norm)) {
    const WholeTokens whole(all, norm, cut.ofBlock(blocks));
    return launchKernel(kernel.wholeFor(whole), Size{launch.blocks, threadsOf(whole) + kTagThreads}, stream,
                        context, whole);
  }
  all.norm = nullptr;
  return launchKernel(kernel.normed, Size{launch.blocks, threadsFor(launch, kernel)}, stream, context, all,
                      norm);
}

const Kernel& KernelEngine::kernelFor(const Launch& launch) const {
  const auto kind = reduces(launch.collective) ? kindOf(launch.arguments.reduce) : KernelTable::Kind::kAny;
  return KernelTable::all().find(launch.collective, launch.algorithm, launch.protocol, kind, setup_.ranks);
}

Status KernelEngine::findKernel(const Launch& launch, Kernel& found) const {
  if (launch.algorithm == algorithms::Algorithm::kLocal) return kOkStatus;
  const int channels = channelsOf(setup_.shape, launch.protocol);
  found = kernelFor(launch);
  const bool hasChannels = launch.blocks >= 1 && launch.firstChannel + launch.blocks <= channels;
  if (found.isThere() && hasChannels && !isTooLarge(launch)) return kOkStatus;
  return fail(Code::kInternal, "no kernel for %zu bytes of %s by %s with %s on %d of %d channels",
              launch.arguments.bytes(), nameOf(launch.collective), algorithms::nameOf(launch.algorithm),
              algorithms::nameOf(launch.protocol), launch.blocks, channels);
}

Status KernelEngine::launch(const Launch& launch, StreamHandle handle) {
  const ScopedDevice device(setup_.device);
  STRETTO_TRY(device.status());
  const auto stream = static_cast<cudaStream_t>(handle);
  Kernel kernel;
  launched_.channels = launched_.stamps = launched_.kernels = 0;
  if (launch.protocol == algorithms::Protocol::kCopy) return launchCopies(launch, stream);
  if (algorithms::isPull(launch.protocol)) return launchPull(launch, stream);
  if (launch.arguments.norm != nullptr) return launchNorm(launch, stream);
  STRETTO_TRY(findKernel(launch, kernel));
  Launch how = launch;
  void* scratch = nullptr;
  Status status;
  if (how.scaled) status = scaleInput(launch, how.arguments, scratch, stream);
  if (status.ok() && kernel.function == nullptr) {
    status = launchLocal(how, stream);
  } else if (status.ok()) {
    const Context context = contextFor(how.tag, how.sequence);
    status = launchKernel(kernel.function, Size{how.blocks, threadsFor(how, kernel)}, stream, context,
                          sharesOf(how, kernel, setup_.ranks));
  }
  if (scratch != nullptr) {
    const Status freed = check(cudaFreeAsync(scratch, stream), "freeing memory of PreMulSum");
    if (status.ok()) status = freed;
  }
  return status;
}

// By so many blocks as it has.
bool KernelEngine::isTooLarge(const Launch& launch) const {
  const auto blocks = static_cast<size_t>(std::max(1, launch.blocks));
  const size_t most = algorithms::mostInLamportLines(setup_.payload(), blocks, launch.collective,
                                                     launch.algorithm, setup_.ranks);
  return launch.protocol == algorithms::Protocol::kLamport && launch.arguments.bytes() > most;
}

// Kernels for several operations know of no rounds: how many threads they have depends on the launch.
bool KernelEngine::mayShare(const Launch& launch) const {
  const auto blocks = static_cast<size_t>(std::max(1, launch.blocks));
  const size_t most = algorithms::mostInLamportStep(setup_.payload(), blocks, launch.algorithm, setup_.ranks);
  const bool inOneStep =
      launch.protocol != algorithms::Protocol::kLamport || launch.arguments.bytes() <= most;
  return kernelFor(launch).fused != nullptr && isSmall(launch, setup_.ranks) && inOneStep;
}

bool KernelEngine::joins(std::span<const Launch> before, const Launch& next) const {
  return before.empty() ||
         (kernelFor(before.front()).fused == kernelFor(next).fused && hasRoomFor(before, next, setup_.ranks));
}

// As many threads as the operation with the most to do has: the others' wait at the end of each.
Status KernelEngine::launchTogether(std::span<const Launch> launches, StreamHandle stream) {
  if (launches.size() == 1 && launches.front().firstChannel == 0) {
    const Status status = launch(launches.front(), stream);
    together_[0] = launched_;
    return status;
  }
  const ScopedDevice device(setup_.device);
  STRETTO_TRY(device.status());
  Kernel kernel;
  Fused fused{};
  Size size{0, 0};
  for (const Launch& one : launches) {
    STRETTO_TRY(findKernel(one, kernel));
    fused.items[fused.count++] = {sharesOf(one, kernel, setup_.ranks),
                                  {one.tag, one.sequence},
                                  static_cast<uint16_t>(one.firstChannel),
                                  static_cast<uint16_t>(one.blocks)};
    size.blocks = std::max(size.blocks, one.firstChannel + one.blocks);
    size.threads = std::max(size.threads, std::min(threadsFor(one, kernel), Fused::kMostThreads));
  }
  const uint64_t before = launched_.number;
  STRETTO_TRY(launchKernel(kernel.fused, size, static_cast<cudaStream_t>(stream), contextFor(0, 0), fused));
  for (size_t i = 0; i < launches.size(); ++i) {
    const int channels = std::clamp(kMostStamps - launches[i].firstChannel, 0, launches[i].blocks);
    together_[i] = {before + 1 + i, channels, stamps_.host == nullptr ? 0 : channels, 1};
  }
  launched_ = together_[launches.size() - 1];
  return kOkStatus;
}

Status KernelEngine::wantWindows() {
  const ScopedDevice device(setup_.device);
  STRETTO_TRY(device.status());
  STRETTO_TRY(copies_.prepare());
  return preparePulls();
}

// All kernels of an operation by copy engines are one launch to whoever reads stamps, of which the first and
// the last leave some.
Status KernelEngine::launchCopies(const Launch& launch, StreamHandle stream) {
  if (launch.blocks < 1 || launch.blocks > setup_.shape.channels) {
    return fail(Code::kInternal, "%s by copy engines on %d of %d channels", nameOf(launch.collective),
                launch.blocks, setup_.shape.channels);
  }
  ++launched_.number;
  const auto launchPart = [&](const Kernel& kernel, Size size, const Arguments& arguments,
                              StreamHandle where) {
    const Launched before = launched_;
    --launched_.number;
    Context context = contextFor(launch.tag, launch.sequence);
    if (!size.reported) context.stamps = nullptr;
    STRETTO_TRY(launchKernel(kernel.function, size, static_cast<cudaStream_t>(where), context,
                             algorithms::withShares(arguments, size.blocks)));
    launched_.channels += before.channels;
    launched_.stamps += before.stamps;
    launched_.kernels += before.kernels;
    return kOkStatus;
  };
  return copies_.run(launch, launchPart, stream);
}

Status KernelEngine::launchPull(const Launch& launch, cudaStream_t stream) {
  using algorithms::Algorithm;
  const Arguments& a = launch.arguments;
  const bool twoShots = launch.algorithm == Algorithm::kTwoShot;
  const bool known = launch.sends != nullptr && (!twoShots || launch.receives != nullptr);
  const bool serves = launch.collective == Collective::kAllReduce && !launch.scaled &&
                      (twoShots || (launch.algorithm == Algorithm::kOneShot && a.send != a.receive));
  if (!known || !serves || setup_.ranks > algorithms::kMostPulled || launch.blocks < 1 ||
      launch.blocks > setup_.shape.channels) {
    return fail(Code::kInternal, "no kernel that pulls for %s by %s of %d ranks on %d of %d channels%s",
                nameOf(launch.collective), algorithms::nameOf(launch.algorithm), setup_.ranks, launch.blocks,
                setup_.shape.channels, known ? "" : ": the peers' buffers are not known");
  }
  PeerBuffers peers{};
  std::copy_n(launch.sends, setup_.ranks, peers.sends);
  if (twoShots) std::copy_n(launch.receives, setup_.ranks, peers.receives);
  peers.sends[setup_.rank] = a.send;
  peers.receives[setup_.rank] = a.receive;
  peers.part = !algorithms::needsPromise(launch.protocol);
  const PullKernel kernel = pullKernel(launch, setup_.ranks);
  return launchKernel(kernel.function, Size{launch.blocks, kernel.threads}, stream,
                      contextFor(launch.tag, launch.sequence), algorithms::withShares(a, launch.blocks),
                      peers);
}

Status KernelEngine::launchTransfers(std::span<const DeviceTransfer> transfers, uint64_t sequence,
                                     StreamHandle handle) {
  const ScopedDevice device(setup_.device);
  STRETTO_TRY(device.status());
  const auto stream = static_cast<cudaStream_t>(handle);
  if (transfers.size() > Messages::kMost) {
    return fail(Code::kInvalidUsage, "a group of %zu sends and receives on one communicator: %d are possible",
                transfers.size(), Messages::kMost);
  }
  launched_.channels = launched_.stamps = launched_.kernels = 0;
  transfersLaunched_.clear();
  STRETTO_TRY(copyToSelf(transfers, setup_.rank, stream));
  // The blocks of all ranks that share a GPU must fit on it at once, as they wait for each other. A rank
  // whose queues would not has several launches, of so many steps each as are sure to fit: with the same
  // steps on all ranks, what a launch waits for is in one of those that are running. Messages of later steps
  // then begin when earlier ones have ended, also where the other end has no group.
  Queues whole(transfers, setup_.rank, setup_.ranks, setup_.shape.deepChannels);
  for (int step = 1; step < setup_.ranks; ++step) whole.addStep(step);
  whole.finish(setup_.shape.channels);
  if (whole.count() == 0) return kOkStatus;
  if (whole.count() <= setup_.residentBlocks) return launchQueues(whole, sequence, stream);
  const int atOnce = std::max(1, setup_.residentBlocks / 2);
  for (int first = 1; first < setup_.ranks; first += atOnce) {
    Queues queues(transfers, setup_.rank, setup_.ranks, setup_.shape.deepChannels);
    for (int step = first; step < std::min(first + atOnce, setup_.ranks); ++step) queues.addStep(step);
    queues.finish(setup_.shape.channels);
    if (queues.count() > 0) STRETTO_TRY(launchQueues(queues, sequence, stream));
  }
  return kOkStatus;
}

Status KernelEngine::launchQueues(const Queues& queues, uint64_t sequence, cudaStream_t stream) {
  const Messages& messages = queues.messages();
  STRETTO_TRY(launchKernel(cuda::transfers, Size{queues.count() * messages.blocks, kChunkThreads}, stream,
                           contextFor(0, sequence), messages));
  for (int i = 0; i < queues.count(); ++i) {
    const int channels = channelsOfQueue(i, messages.blocks);
    const Launched launched{launched_.number, channels, launched_.stamps == 0 ? 0 : channels};
    transfersLaunched_.push_back({messages.queue[i].peer, messages.queue[i].isSend != 0, launched});
  }
  return kOkStatus;
}

Status KernelEngine::launchSignal(const DeviceSignal& signal, StreamHandle stream) {
  return launchOneSided(putKernel(), {blocksOfPut(signal.bytes), kPutThreads, false, false}, stream,
                        signals_.put(signal, windows_));
}

Status KernelEngine::launchWait(int peer, uint32_t number, uint64_t count, StreamHandle stream) {
  return launchOneSided(waitKernel(), {1, kWaitThreads, false, false}, stream,
                        signals_.wait(peer, number, count, windows_));
}

template <typename What>
Status KernelEngine::launchOneSided(void (*kernel)(Context, What), Size size, StreamHandle stream,
                                    const What& what) {
  const ScopedDevice device(setup_.device);
  STRETTO_TRY(device.status());
  return launchKernel(kernel, size, static_cast<cudaStream_t>(stream), contextFor(0, Report::kSignals), what);
}

Engine::Launched KernelEngine::lastTransfers(int peer, bool isSend) const {
  const auto found =
      std::find_if(transfersLaunched_.begin(), transfersLaunched_.end(),
                   [&](const LaunchedQueue& queue) { return queue.peer == peer && queue.isSend == isSend; });
  return found == transfersLaunched_.end() ? Launched{launched_.number, 0, 0} : found->launched;
}

void KernelEngine::abort(uint32_t word) {
  auto& control = *reinterpret_cast<Control*>(control_.host);
  uint32_t none = 0;
  __atomic_compare_exchange_n(&control.abort, &none, word, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

Report KernelEngine::report() const {
  const auto& control = *reinterpret_cast<const Control*>(control_.host);
  Report report;
  if (__atomic_load_n(&control.reported, __ATOMIC_ACQUIRE) != 2) return report;
  report.status = {static_cast<Code>(control.code), static_cast<int16_t>(control.peer)};
  report.sequence = control.sequence;
  report.theirTag = control.theirTag;
  return report;
}

std::array<LongLook, stretto::cuda::kAwaited> KernelEngine::longLooks() const {
  const auto& control = *reinterpret_cast<const Control*>(control_.host);
  std::array<LongLook, stretto::cuda::kAwaited> looks;
  std::transform(std::begin(control.longLooks), std::end(control.longLooks), looks.begin(),
                 [](const uint64_t& word) { return LongLook::of(__atomic_load_n(&word, __ATOMIC_ACQUIRE)); });
  return looks;
}

KernelCounts KernelEngine::finished() const {
  const ScopedDevice device(setup_.device);
  KernelCounts counts;
  const auto read = [&](uint64_t& to, const uint64_t* from) {
    return cudaMemcpyAsync(&to, from, sizeof to, cudaMemcpyDeviceToHost, inspection_) == cudaSuccess;
  };
  const bool done = read(counts.collectives, &channels_[0].finished) &&
                    read(counts.oneSided, signals_.ended()) &&
                    cudaStreamSynchronize(inspection_) == cudaSuccess;
  return done ? counts : KernelCounts{};
}

Status KernelEngine::wantStamps() {
  if (stamps_.host != nullptr) return kOkStatus;
  const ScopedDevice device(setup_.device);
  STRETTO_TRY(device.status());
  auto stamps = platform::cuda::allocateHostMapped(setup_.device, sizeof(Stamps));
  if (!stamps.ok()) return stamps.status();
  stamps_ = stamps.value();
  return kOkStatus;
}

size_t KernelEngine::takeStamps(std::span<KernelStamp> stamps, uint64_t& lost) {
  if (stamps_.host == nullptr) return 0;
  return takeFrom(*reinterpret_cast<Stamps*>(stamps_.host), taken_, stamps, lost);
}

Result<std::unique_ptr<Engine>> Engine::create(const Setup& setup) {
  auto engine = std::make_unique<KernelEngine>(setup);
  STRETTO_TRY(engine->begin());
  return Result<std::unique_ptr<Engine>>(std::move(engine));
}

Status prepareWindow(int device, std::byte* window, const stretto::cuda::Shape& shape) {
  if (shape.layout.lamportRegion == 0) return kOkStatus;
  return platform::cuda::fillNow(
      device, window + shape.layout.lamportBegin(), 0xff,
      {shape.nearBytes(), shape.layout.lamportBytes(), static_cast<size_t>(shape.channels)});
}

Result<int> mostResidentBlocks(int device) {
  const auto facts = platform::cuda::factsOf(device);
  if (!facts.ok()) return facts.status();
  return facts.value().multiprocessors;  // one each is certain: no kernel here needs more
}

}  // namespace stretto::executors::cuda
