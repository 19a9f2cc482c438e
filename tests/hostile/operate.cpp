#include "operate.hpp"

#include <algorithm>
#include <cstring>

namespace hostile {
namespace {

size_t times(size_t count, int ranks) {
  return count * static_cast<size_t>(ranks);
}

}  // namespace

Operation::Operation(const Call& call, const Side& side, Memory& memory, int kind, std::vector<int> around)
    : call_(call), side_(side), around_(std::move(around)), size_(sizeOf(call.type)) {
  const bool noPlace = call_.function == Function::kAllToAll || isTransfer(call_.function);
  call_.inPlace = (call_.inPlace && !noPlace) || call_.function == Function::kBcast;
  if (call_.root >= side_.ranks) call_.root = 0;
  const size_t sends = sendElements(), receives = receiveElements();
  const bool root = side_.rank == call_.root;
  if (call_.function == Function::kGather || call_.function == Function::kScatter ||
      call_.function == Function::kReduce) {
    call_.inPlace = call_.inPlace && root;
  }
  const size_t offset = (call_.number * 7 % 16) * size_;
  sent_.resize(sends * size_);
  if (sends > 0) spread(given(call_, side_.ranks, side_.rank, sends), size_, 0, sends, sent_.data());
  if (!call_.inPlace) {
    send_ = Block(memory, sends * size_, offset, kind);
    receive_ = Block(memory, receives * size_, offset, kind + 1);
    receive_.poison();
    from_ = send_.data();
    to_ = receive_.data();
  } else {
    receive_ = Block(memory, std::max(sends, receives) * size_, offset, kind);
    receive_.poison();
    from_ = to_ = receive_.data();
    const size_t mine = times(call_.count, side_.rank) * size_;
    if (call_.function == Function::kAllGather || call_.function == Function::kGather) from_ += mine;
    if (call_.function == Function::kReduceScatter || call_.function == Function::kScatter) to_ += mine;
  }
  if (!sent_.empty()) memory.write(from_, sent_.data(), sent_.size());
  expect();
}

size_t Operation::sendElements() const {
  const bool root = side_.rank == call_.root;
  switch (call_.function) {
    case Function::kReduceScatter:
    case Function::kAllToAll:
      return times(call_.count, side_.ranks);
    case Function::kBroadcast:
    case Function::kBcast:
      return root ? call_.count : 0;
    case Function::kScatter:
      return root ? times(call_.count, side_.ranks) : 0;
    default:
      return aloneAround() ? 0 : call_.count;
  }
}

size_t Operation::receiveElements() const {
  const bool root = side_.rank == call_.root;
  switch (call_.function) {
    case Function::kAllGather:
    case Function::kAllToAll:
      return times(call_.count, side_.ranks);
    case Function::kGather:
      return root ? times(call_.count, side_.ranks) : 0;
    case Function::kReduce:
      return root ? call_.count : 0;
    default:
      return aloneAround() ? 0 : call_.count;
  }
}

bool Operation::aloneAround() const {
  return isTransfer(call_.function) && next(1) == side_.rank;
}

// The rank that takes part after this one in a ring, or, by -1, before it; in pairs the partner.
int Operation::next(int step) const {
  const auto ranks = static_cast<int>(around_.size());
  const auto here = static_cast<int>(std::find(around_.begin(), around_.end(), side_.rank) - around_.begin());
  if (here == ranks) return side_.rank;
  if (call_.function == Function::kPairs) {
    const int other = here ^ 1;
    return other < ranks ? around_[static_cast<size_t>(other)] : side_.rank;
  }
  return around_[static_cast<size_t>((here + step + ranks) % ranks)];
}

void Operation::expect() {
  const size_t count = call_.count, elements = receiveElements(), mine = times(count, side_.rank);
  expected_.resize(elements * size_);
  if (elements == 0) return;
  const auto from = [&](int rank, size_t all, size_t at, size_t to) {
    spread(given(call_, side_.ranks, rank, all), size_, at, count, &expected_[to * size_]);
  };
  switch (call_.function) {
    case Function::kAllReduce:
    case Function::kReduce:
      return spread(reduced(call_, side_.ranks, count), size_, 0, count, expected_.data());
    case Function::kReduceScatter: {
      const Bytes sums = reduced(call_, side_.ranks, times(count, side_.ranks));
      return spread(sums, size_, mine, count, expected_.data());
    }
    case Function::kAllGather:
    case Function::kGather:
      for (int rank = 0; rank < side_.ranks; ++rank) from(rank, count, 0, times(count, rank));
      return;
    case Function::kAllToAll:
      for (int rank = 0; rank < side_.ranks; ++rank)
        from(rank, times(count, side_.ranks), mine, times(count, rank));
      return;
    case Function::kScatter:
      return from(call_.root, times(count, side_.ranks), mine, 0);
    case Function::kBroadcast:
    case Function::kBcast:
      return from(call_.root, count, 0, 0);
    default:
      return from(next(-1), count, 0, 0);
  }
}

ncclResult_t Operation::makeOperator(ncclRedOp_t* op) const {
  *op = static_cast<ncclRedOp_t>(call_.op);
  if (call_.op != kPreMulSum) return ncclSuccess;
  Bytes scalar = scalarOf(call_, side_.ranks);
  return ncclRedOpCreatePreMulSum(op, scalar.data(), static_cast<ncclDataType_t>(call_.type),
                                  ncclScalarHostImmediate, side_.comm);
}

ncclResult_t Operation::transfers(cudaStream_t stream) {
  if (aloneAround()) return ncclSuccess;
  const auto type = static_cast<ncclDataType_t>(call_.type);
  ncclResult_t first = ncclGroupStart();
  const ncclResult_t sent = ncclSend(from_, call_.count, type, next(1), side_.comm, stream);
  const ncclResult_t received = ncclRecv(to_, call_.count, type, next(-1), side_.comm, stream);
  const ncclResult_t ended = ncclGroupEnd();
  for (const ncclResult_t one : {sent, received, ended}) {
    if (first == ncclSuccess) first = one;
  }
  return first;
}

// Nobody puts before the one that it puts to has said that its buffer is ready.
ncclResult_t Operation::puts(cudaStream_t stream) {
  if (aloneAround()) return ncclSuccess;
  constexpr int kCame = 0, kReady = 1;
  const int to = next(1), from = next(-1);
  const auto wait = [&](int peer, int signal) {
    ncclWaitSignalDesc_t one = {1, peer, signal, 0};
    return ncclWaitSignal(1, &one, side_.comm, stream);
  };
  const auto put = [&] {
    return ncclPutSignal(from_, call_.count, static_cast<ncclDataType_t>(call_.type), to, side_.window,
                         static_cast<size_t>(to_ - side_.windowBase), kCame, 0, 0, side_.comm, stream);
  };
  const auto goesOn = [](ncclResult_t one) { return one == ncclSuccess || one == ncclInProgress; };
  ncclResult_t result = ncclSignal(from, kReady, 0, 0, side_.comm, stream);
  if (goesOn(result)) result = wait(to, kReady);
  if (goesOn(result)) result = put();
  return goesOn(result) ? wait(from, kCame) : result;
}

ncclResult_t Operation::enqueue(cudaStream_t stream) {
  const auto type = static_cast<ncclDataType_t>(call_.type);
  const size_t count = call_.count;
  ncclComm_t comm = side_.comm;
  const bool reduces = isReduction(call_.function);
  ncclRedOp_t op = ncclSum;
  if (const ncclResult_t made = reduces ? makeOperator(&op) : ncclSuccess; made != ncclSuccess) return made;
  const auto result = [&] {
    switch (call_.function) {
      case Function::kAllReduce:
        return ncclAllReduce(from_, to_, count, type, op, comm, stream);
      case Function::kReduce:
        return ncclReduce(from_, to_, count, type, op, call_.root, comm, stream);
      case Function::kReduceScatter:
        return ncclReduceScatter(from_, to_, count, type, op, comm, stream);
      case Function::kAllGather:
        return ncclAllGather(from_, to_, count, type, comm, stream);
      case Function::kAllToAll:
        return ncclAlltoAll(from_, to_, count, type, comm, stream);
      case Function::kBroadcast:
        return ncclBroadcast(from_, to_, count, type, call_.root, comm, stream);
      case Function::kBcast:
        return ncclBcast(to_, count, type, call_.root, comm, stream);
      case Function::kGather:
        return ncclGather(from_, to_, count, type, call_.root, comm, stream);
      case Function::kScatter:
        return ncclScatter(from_, to_, count, type, call_.root, comm, stream);
      case Function::kPuts:
        return puts(stream);
      default:
        return transfers(stream);
    }
  }();
  if (reduces && call_.op == kPreMulSum) (void)ncclRedOpDestroy(op, comm);
  return result;
}

std::string Operation::compare() const {
  const size_t at = static_cast<size_t>(to_ - receive_.data());
  const int64_t wrong = receive_.firstDifference(at, expected_.data(), expected_.size());
  if (wrong >= 0) {
    const size_t element = static_cast<size_t>(wrong) / size_;
    size_t differ = 0;
    uint64_t found = 0, wanted = 0;
    for (size_t i = element; i < expected_.size() / size_; ++i) {
      differ += receive_.firstDifference(at + i * size_, &expected_[i * size_], size_) >= 0;
      if (differ > 100000) break;
    }
    receive_.read(&found, at + element * size_, size_);
    memcpy(&wanted, &expected_[element * size_], size_);
    char text[200];
    snprintf(text, sizeof text, "element %zu is 0x%llx, not 0x%llx; %zu of %zu elements differ", element,
             static_cast<unsigned long long>(found), static_cast<unsigned long long>(wanted), differ,
             expected_.size() / size_);
    return text;
  }
  return untouched();
}

std::string Operation::untouched() const {
  if (!send_.guarded() || !receive_.guarded()) return "something was written beside a buffer";
  const int64_t changed = call_.inPlace ? -1 : send_.firstDifference(0, sent_.data(), sent_.size());
  if (changed >= 0) return "byte " + std::to_string(changed) + " of the send buffer was changed";
  return "";
}

void Operation::reuse(bool freeHalf) {
  send_.poison();
  receive_.poison();
  if (!freeHalf) return;
  (call_.number % 2 == 0 ? send_ : receive_).release();
  if (call_.number % 3 == 0) receive_.release();
}

std::string Operation::text() const {
  char text[120];
  snprintf(text, sizeof text, "%s %s x %zu op %d root %d%s", nameOf(call_.function), nameOfType(call_.type),
           call_.count, call_.op, call_.root, call_.inPlace ? " in place" : "");
  return text;
}

}  // namespace hostile
