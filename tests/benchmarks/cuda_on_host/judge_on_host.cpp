// judge.hpp without kernels: what judge.cu does on the GPU, element by element, on host memory.
#include <algorithm>

#include "../../../benchmarks/cuda/judge.hpp"

namespace stretto::bench {
namespace {

uint64_t wordAt(const std::byte* from, size_t bytes) {
  uint64_t word = 0;
  memcpy(&word, from, bytes);
  return word;
}

}  // namespace

Judge::Judge(cudaStream_t stream) : stream_(stream), wrong_(new uint64_t(0)) {}

Judge::~Judge() {
  delete[] tables_;
  delete wrong_;
}

void Judge::prepare(const Request& request) {
  request_ = request;
  const Pattern pattern(request.type, request.op, request.ranks);
  const size_t period = kPeriod * request.elementBytes();
  delete[] tables_;
  tables_ = new std::byte[period * static_cast<size_t>(request.ranks + 1)];
  for (int rank = 0; rank <= request.ranks; ++rank) {
    pattern.fill(tables_ + static_cast<size_t>(rank) * period, kPeriod,
                 rank == request.ranks ? kReduced : rank);
  }
}

const std::byte* Judge::tableOf(int source) const {
  const int index = source == kReduced ? request_.ranks : source;
  return tables_ + static_cast<size_t>(index) * kPeriod * request_.elementBytes();
}

void Judge::fillInput(void* buffer, size_t count, size_t place) {
  const size_t bytes = request_.elementBytes();
  for (size_t i = 0; i < count; ++i) {
    memcpy(static_cast<std::byte*>(buffer) + i * bytes,
           tableOf(request_.rank) + (i + shift(place)) % kPeriod * bytes, bytes);
  }
}

void Judge::begin() {
  *wrong_ = 0;
}

void Judge::judge(const void* result, size_t place) {
  const size_t bytes = request_.elementBytes();
  const bool rounds =
      request_.op == Operator::kAvg && kTypes[static_cast<int>(request_.type)].exponentBits != 0;
  const auto* at = static_cast<const std::byte*>(result);
  for (const Block& block : expectedBlocks(request_)) {
    for (size_t i = 0; i < block.count; ++i, at += bytes) {
      const uint64_t want =
          wordAt(tableOf(block.source) + (block.first + i + shift(place)) % kPeriod * bytes, bytes);
      const uint64_t is = wordAt(at, bytes);
      *wrong_ += std::max(is, want) - std::min(is, want) > (rounds ? 1 : 0) ? 1 : 0;
    }
  }
  count_ = wrong_;
}

// A stream that does everything at once has nothing to hold back.
Gate::Gate() : words_(new uint32_t[2]{}) {}

Gate::~Gate() {
  delete[] words_;
}

void Gate::close(cudaStream_t) {
  ++turn_;
}

}  // namespace stretto::bench
