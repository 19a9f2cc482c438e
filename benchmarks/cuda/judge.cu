#include "judge.hpp"

#include "check.hpp"
#include "kernels.cuh"

namespace stretto::bench {
namespace {

constexpr int kThreads = 256;
constexpr size_t kMostBlocks = 1024;

template <class Word>
__global__ void fillKernel(Word* to, const Word* table, size_t shift, size_t count) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = table[(i + shift) % kPeriod];
  }
}

// Bits of floats of one sign are in the order of their values, so a difference of bits counts steps between
// values.
template <class Word>
__global__ void judgeKernel(const Word* got, const Word* table, size_t shift, size_t count,
                            unsigned allowedSteps, uint64_t* wrong) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  unsigned long long mine = 0;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const Word want = table[(i + shift) % kPeriod];
    const Word is = got[i];
    const Word apart = is > want ? is - want : want - is;
    mine += apart > static_cast<Word>(allowedSteps) ? 1 : 0;
  }
  if (mine != 0) atomicAdd(reinterpret_cast<unsigned long long*>(wrong), mine);
}

__global__ void gateKernel(const uint32_t* words, uint32_t turn, uint32_t* expired) {
  const uint64_t deadline = device::nanoseconds() + device::kDeadline;
  while (static_cast<int32_t>(device::loadRelaxed(words) - turn) < 0) {
    if (device::nanoseconds() > deadline) {
      *expired = 1;
      return;
    }
  }
}

unsigned blocksFor(size_t count) {
  return static_cast<unsigned>(std::clamp<size_t>(count / kThreads, 1, kMostBlocks));
}

// Calls `function` with a null pointer to an unsigned word of so many bytes.
template <class Function>
void withWord(size_t bytes, Function function) {
  if (bytes == 1) function(static_cast<uint8_t*>(nullptr));
  if (bytes == 2) function(static_cast<uint16_t*>(nullptr));
  if (bytes == 4) function(static_cast<uint32_t*>(nullptr));
  if (bytes == 8) function(static_cast<uint64_t*>(nullptr));
}

}  // namespace

Judge::Judge(cudaStream_t stream) : stream_(stream) {
  check(cudaMalloc(reinterpret_cast<void**>(&wrong_), sizeof *wrong_), "cudaMalloc");
  check(cudaHostAlloc(reinterpret_cast<void**>(&count_), sizeof *count_, cudaHostAllocDefault),
        "cudaHostAlloc");
  *count_ = 0;
}

Judge::~Judge() {
  cudaFree(tables_);
  cudaFree(wrong_);
  cudaFreeHost(count_);
}

void Judge::prepare(const Request& request) {
  const bool known = tables_ != nullptr && request.type == request_.type && request.op == request_.op &&
                     request.ranks == request_.ranks;
  request_ = request;
  if (known) return;
  const Pattern pattern(request.type, request.op, request.ranks);
  const size_t period = kPeriod * request.elementBytes();
  std::vector<std::byte> tables(period * static_cast<size_t>(request.ranks + 1));
  for (int rank = 0; rank < request.ranks; ++rank) {
    pattern.fill(tables.data() + static_cast<size_t>(rank) * period, kPeriod, rank);
  }
  pattern.fill(tables.data() + static_cast<size_t>(request.ranks) * period, kPeriod, kReduced);
  const bool isFloat = kTypes[static_cast<int>(request.type)].exponentBits != 0;
  allowedSteps_ = request.op == Operator::kAvg && isFloat ? 1 : 0;
  cudaFree(tables_);
  tables_ = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&tables_), tables.size()), "cudaMalloc of the tables of inputs");
  check(cudaMemcpyAsync(tables_, tables.data(), tables.size(), cudaMemcpyHostToDevice, stream_),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream_), "copying the tables of inputs");
}

const std::byte* Judge::tableOf(int source) const {
  const int index = source == kReduced ? request_.ranks : source;
  return tables_ + static_cast<size_t>(index) * kPeriod * request_.elementBytes();
}

void Judge::fillInput(void* buffer, size_t count, size_t place) {
  if (count == 0) return;
  withWord(request_.elementBytes(), [&](auto* word) {
    using Word = std::remove_pointer_t<decltype(word)>;
    fillKernel<<<blocksFor(count), kThreads, 0, stream_>>>(
        static_cast<Word*>(buffer), reinterpret_cast<const Word*>(tableOf(request_.rank)), shift(place),
        count);
  });
  check(cudaGetLastError(), "filling the inputs");
}

void Judge::begin() {
  check(cudaMemsetAsync(wrong_, 0, sizeof *wrong_, stream_), "cudaMemsetAsync");
}

void Judge::judge(const void* result, size_t place) {
  const auto* at = static_cast<const std::byte*>(result);
  for (const Block& block : expectedBlocks(request_)) {
    withWord(request_.elementBytes(), [&](auto* word) {
      using Word = std::remove_pointer_t<decltype(word)>;
      judgeKernel<<<blocksFor(block.count), kThreads, 0, stream_>>>(
          reinterpret_cast<const Word*>(at), reinterpret_cast<const Word*>(tableOf(block.source)),
          block.first + shift(place), block.count, allowedSteps_, wrong_);
    });
    check(cudaGetLastError(), "judging the result");
    at += block.count * request_.elementBytes();
  }
  check(cudaMemcpyAsync(count_, wrong_, sizeof *wrong_, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
}

Gate::Gate() {
  check(cudaHostAlloc(reinterpret_cast<void**>(&words_), 2 * sizeof *words_, cudaHostAllocMapped),
        "cudaHostAlloc");
  words_[0] = words_[1] = 0;
}

Gate::~Gate() {
  cudaFreeHost(words_);
}

void Gate::close(cudaStream_t stream) {
  ++turn_;
  gateKernel<<<1, 1, 0, stream>>>(words_, turn_, &words_[1]);
  check(cudaGetLastError(), "closing the gate");
}

}  // namespace stretto::bench
