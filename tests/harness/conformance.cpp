#include "harness/conformance.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "harness/guarded.hpp"
#include "harness/norm_sum.hpp"
#include "stretto.h"

namespace stretto::testing {
namespace {

constexpr char kUnwritten = 0x6b;

// ---- Datasets ---------------------------------------------------------------------------------------------

struct Precision {
  double last;      // relative size of the last place
  double smallest;  // least positive value
  double normal;    // least normal value
  double largest;
};

Precision precisionOf(DataType type) {
  if (type == DataType::kFloat32) return {0x1p-23, 0x1p-149, 0x1p-126, std::numeric_limits<float>::max()};
  if (type == DataType::kFloat64) {
    return {0x1p-52, 0x1p-1074, 0x1p-1022, std::numeric_limits<double>::max()};
  }
  const Format format = formatOf(type);
  const double normal = std::ldexp(1.0, 1 - format.bias());
  const uint32_t infinity = ((1u << format.exponentBits) - 1) << format.mantissaBits;
  const double last = std::ldexp(1.0, -format.mantissaBits);
  return {last, normal * last, normal, decode(format, format.infinities ? infinity - 1 : format.nan - 1)};
}

// Partial results are rounded once per step, in whatever order; nothing can be told once one may overflow or
// fall below the normal values.
double toleranceOf(DataType type, int op, const std::vector<const void*>& sources, size_t i) {
  const bool exact =
      !isFloating(type) || op == static_cast<int>(Operator::kMax) || op == static_cast<int>(Operator::kMin);
  if (exact) return 0;
  const Precision precision = precisionOf(type);
  double sum = 0, above = 1, below = 1;
  for (const void* source : sources) {
    const double value = std::fabs(valueAt(type, source, i));
    if (!std::isfinite(value)) return -1;
    sum += value;
    above *= std::max(value, 1.0);
    below *= std::min(value, 1.0);
  }
  const double steps = static_cast<double>(sources.size()) + 1;
  if (op == static_cast<int>(Operator::kProd)) {
    const bool lost = above > precision.largest / 2 || below < precision.normal;
    return lost ? -1 : 2 * steps * precision.last * above * below;
  }
  if (sum > precision.largest / 2) return -1;
  return steps * (precision.last * sum + precision.smallest);
}

void fill(DataType type, std::vector<char>& array, size_t count, Random& random) {
  array.resize(count * sizeOf(type));
  fillRandom(type, array.data(), count, random);
  for (size_t i = 2; isFloating(type) && i < count; i += 5) {  // products that stay near one
    const double size = 0.75 + static_cast<double>(random() % 1024) / 1366;
    putFloat(type, array.data(), i, random() % 2 == 0 ? size : -size);
  }
}

std::vector<const void*> pointersTo(const std::vector<std::vector<char>>& arrays) {
  std::vector<const void*> pointers;
  for (const auto& array : arrays) pointers.push_back(array.data());
  return pointers;
}

// Each rank's input times its scalar, as the oracle multiplies.
std::vector<std::vector<char>> scaled(const Dataset& data) {
  const size_t element = sizeOf(data.type);
  std::vector<std::vector<char>> products;
  for (size_t rank = 0; rank < data.inputs.size(); ++rank) {
    std::vector<char> constant;
    for (size_t i = 0; i < data.elements; ++i) {
      constant.insert(constant.end(), data.scalars[rank].begin(), data.scalars[rank].begin() + element);
    }
    products.push_back(
        oracle({data.type, Operator::kProd}, {data.inputs[rank].data(), constant.data()}, data.elements));
  }
  return products;
}

// ---- Running a case ---------------------------------------------------------------------------------------

// Memory that peers may map, or ordinary memory.
class Memory {
 public:
  Memory(size_t bytes, bool shared) : shared_(shared) {
    if (shared && ncclMemAlloc(&at_, bytes) != ncclSuccess) throw std::bad_alloc();
    if (!shared) at_ = ::operator new(bytes);
  }
  ~Memory() { shared_ ? void(ncclMemFree(at_)) : ::operator delete(at_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* data() const { return static_cast<char*>(at_); }

 private:
  bool shared_;
  void* at_ = nullptr;
};

// A rank's buffers in one case, and what they must hold afterwards.
struct Buffers {
  const Case& one;
  const Member& member;
  size_t element = sizeOf(one.data->type);
  size_t block = one.count * element;
  Collective collective = one.row->collective;
  size_t sends = sendBlocks(collective, member.ranks());
  size_t receives = receiveBlocks(collective, member.ranks());
  bool shared = member.device == nullptr && (one.shared >> member.rank & 1) != 0;
  size_t firstBytes = (one.inPlace ? std::max(sends, receives) : sends) * block;
  size_t secondBytes = (one.inPlace ? 0 : receives) * block;
  Memory firstMemory{Guarded::room(firstBytes), shared};
  Memory secondMemory{Guarded::room(secondBytes), shared};
  Guarded first{firstMemory.data(), firstBytes, one.sendOffset};
  Guarded second{secondMemory.data(), secondBytes, one.receiveOffset};

  Buffers(const Case& oneCase, const Member& rank) : one(oneCase), member(rank) {
    std::fill_n(first.data(), first.size(), kUnwritten);
    std::fill_n(second.data(), second.size(), kUnwritten);
    if (block != 0) memcpy(send(), input(member.rank), sends * block);
  }

  const char* input(int rank) const { return one.data->inputs[static_cast<size_t>(rank)].data(); }
  // Where the own block lies in the larger buffer of an in-place call.
  size_t own() const {
    const bool rooted = collective == Collective::kGather || collective == Collective::kScatter;
    return static_cast<size_t>(rooted ? one.root : member.rank) * block;
  }
  char* send() { return first.data() + (one.inPlace && receives > sends ? own() : 0); }
  char* receive() {
    if (!one.inPlace) return second.data();
    return first.data() + (sends > receives ? own() : 0);
  }
  bool isRoot() const { return member.rank == one.root; }
  // What this rank receives, if it receives anything.
  bool getsResult() const {
    const bool toRoot = collective == Collective::kReduce || collective == Collective::kGather;
    return !toRoot || isRoot();
  }
  bool readsSend() const {
    const bool fromRoot = collective == Collective::kBroadcast || collective == Collective::kScatter;
    return !fromRoot || isRoot();
  }
  std::vector<char> expected() const;
};

void append(std::vector<char>& to, const char* from, size_t bytes) {
  to.insert(to.end(), from, from + bytes);
}

std::vector<char> Buffers::expected() const {
  std::vector<char> result;
  const size_t mine = static_cast<size_t>(member.rank) * block;
  switch (collective) {
    case Collective::kReduceScatter:
      append(result, one.data->expected.data() + mine, block);
      break;
    case Collective::kAllGather:
    case Collective::kGather:
      for (int rank = 0; rank < member.ranks(); ++rank) append(result, input(rank), block);
      break;
    case Collective::kAllToAll:
      for (int rank = 0; rank < member.ranks(); ++rank) append(result, input(rank) + mine, block);
      break;
    case Collective::kBroadcast:
      append(result, input(one.root), block);
      break;
    case Collective::kScatter:
      append(result, input(one.root) + mine, block);
      break;
    default:
      append(result, one.data->expected.data(), block);
      break;
  }
  return result;
}

ncclResult_t callApi(const Case& one, const void* send, void* receive, ncclRedOp_t op, const Member& member) {
  const auto type = static_cast<ncclDataType_t>(one.data->type);
  const ncclComm_t comm = member.comm;
  const cudaStream_t stream = member.stream();
  switch (one.row->collective) {
    case Collective::kAllReduce:
      return ncclAllReduce(send, receive, one.count, type, op, comm, stream);
    case Collective::kReduceScatter:
      return ncclReduceScatter(send, receive, one.count, type, op, comm, stream);
    case Collective::kReduce:
      return ncclReduce(send, receive, one.count, type, op, one.root, comm, stream);
    case Collective::kAllGather:
      return ncclAllGather(send, receive, one.count, type, comm, stream);
    case Collective::kAllToAll:
      return ncclAlltoAll(send, receive, one.count, type, comm, stream);
    case Collective::kBroadcast:
      return ncclBroadcast(send, receive, one.count, type, one.root, comm, stream);
    case Collective::kGather:
      return ncclGather(send, receive, one.count, type, one.root, comm, stream);
    case Collective::kScatter:
      return ncclScatter(send, receive, one.count, type, one.root, comm, stream);
    case Collective::kAllReduceAddRmsNorm:
      return sumByNorm(send, receive, one.count, type, comm, stream);
    default:
      return ncclInternalError;
  }
}

// The call with copies of the buffers, guards included, on the rank's GPU; they come back with its results.
bool callOnDevice(const Member& member, const Buffers& buffers, const Calling& call, char* send,
                  char* receive) {
  OnDevice& device = *member.device;
  const std::pair<char*, size_t> ranges[] = {
      {buffers.firstMemory.data(), Guarded::room(buffers.firstBytes)},
      {buffers.secondMemory.data(), Guarded::room(buffers.secondBytes)}};
  const auto there = [&](char* host) -> char* {
    for (int place = 0; host != nullptr && place < 2; ++place) {
      const auto& [begin, bytes] = ranges[place];
      if (host >= begin && host < begin + bytes) return device.at(place, begin) + (host - begin);
    }
    return nullptr;
  };
  for (int place = 0; place < 2; ++place) {
    const auto& [begin, bytes] = ranges[place];
    if (!member.check(bytes + 128 <= OnDevice::kPlaceBytes, "a case is too large for the device"))
      return false;
    device.upload(device.at(place, begin), begin, bytes);
  }
  const auto enqueue = [&] { return call(there(send), there(receive)); };
  const auto meet = [&] { return member.check(member.board.meet(), "a rank left during a case"); };
  const bool called = testsInGraphs() ? device.inGraph(enqueue, 1, meet) : enqueue();
  device.synchronize();
  ncclResult_t later = ncclSuccess;
  if (!called || !member.expect(ncclCommGetAsyncError(member.comm, &later), "ncclCommGetAsyncError") ||
      !member.expect(later, buffers.one.describe().c_str())) {
    return false;
  }
  for (int place = 0; place < 2; ++place) {
    const auto& [begin, bytes] = ranges[place];
    device.download(begin, device.at(place, begin), bytes);
  }
  return true;
}

// Empty, or the first element that is wrong.
std::string compare(const Case& one, const Dataset& data, const char* got, const std::vector<char>& wanted,
                    size_t firstElement, bool exact) {
  if (wanted.empty() || memcmp(got, wanted.data(), wanted.size()) == 0) return {};
  const size_t element = sizeOf(data.type);
  for (size_t i = 0; i < wanted.size() / element; ++i) {
    if (memcmp(got + i * element, wanted.data() + i * element, element) == 0) continue;
    const double allowed = exact ? 0 : data.tolerance[firstElement + i];
    const double value = valueAt(data.type, got, i);
    const double should = valueAt(data.type, wanted.data(), i);
    if (allowed < 0 || (allowed > 0 && std::fabs(value - should) <= allowed)) continue;
    char text[300];
    snprintf(text, sizeof text, "%s: element %zu is %.17g, should be %.17g%s", one.describe().c_str(), i,
             value, should, exact ? " to the bit" : "");
    return text;
  }
  return {};
}

// All ranks have the same bits in their result. Collective.
bool compareRanks(const Member& member, const Case& one, const char* result, size_t bytes) {
  memcpy(member.board.area(member.rank), result, bytes);
  if (!member.check(member.board.meet(), "a rank left during a case")) return false;
  if (memcmp(member.board.area(0), result, bytes) != 0) {
    member.complain("%s: other bits than rank 0", one.describe().c_str());
  }
  return member.check(member.board.meet(), "a rank left during a case");
}

}  // namespace

double Dataset::told() const {
  const auto known = std::count_if(tolerance.begin(), tolerance.end(), [](double t) { return t >= 0; });
  return static_cast<double>(known) / static_cast<double>(elements);
}

Dataset makeDataset(DataType type, int op, int ranks, size_t elements) {
  Dataset data{type, op, ranks, elements, {}, {}, {}, {}};
  Random random(static_cast<uint64_t>(type) * 1000 + static_cast<uint64_t>(op * 100 + ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    fill(type, data.inputs.emplace_back(), elements, random);
    fill(type, data.scalars.emplace_back(), 3, random);
    const std::vector<char> nearOne(data.scalars.back().end() - static_cast<ptrdiff_t>(sizeOf(type)),
                                    data.scalars.back().end());
    data.scalars.back() = nearOne;
  }
  const bool isScaled = op == kPreMulSum;
  const auto products = isScaled ? scaled(data) : std::vector<std::vector<char>>();
  const std::vector<const void*> sources = pointersTo(isScaled ? products : data.inputs);
  const auto plain = isScaled ? Operator::kSum : static_cast<Operator>(op);
  data.expected = oracle({type, plain, static_cast<uint32_t>(ranks)}, sources, elements);
  for (size_t i = 0; i < elements; ++i) {
    data.tolerance.push_back(toleranceOf(type, static_cast<int>(plain), sources, i));
  }
  return data;
}

std::string Case::describe() const {
  char text[300];
  constexpr const char* kOpNames[kOps] = {"sum", "prod", "max", "min", "avg", "premulsum"};
  snprintf(text, sizeof text,
           "%s by %s with %s, %s%s%s x %zu, %d ranks, root %d, chunk %zu, offsets %zu %zu%s%s",
           nameOf(row->collective), nameOf(row->algorithm), nameOf(row->protocol), nameOf(data->type),
           isReduction(row->collective) ? " " : "", isReduction(row->collective) ? kOpNames[data->op] : "",
           count, data->ranks, root, chunkBytes, sendOffset, receiveOffset, inPlace ? ", in place" : "",
           shared != 0 ? ", shared" : "");
  return text;
}

bool isReduction(Collective collective) {
  return reduces(collective);
}

size_t sendBlocks(Collective collective, int ranks) {
  const bool many = collective == Collective::kReduceScatter || collective == Collective::kAllToAll ||
                    collective == Collective::kScatter;
  return many ? static_cast<size_t>(ranks) : 1;
}

size_t receiveBlocks(Collective collective, int ranks) {
  const bool many = collective == Collective::kAllGather || collective == Collective::kAllToAll ||
                    collective == Collective::kGather;
  return many ? static_cast<size_t>(ranks) : 1;
}

bool checkCall(const Member& member, const Case& one, const Calling& call, std::vector<char>* result) {
  Buffers buffers(one, member);
  char* const send = buffers.readsSend() || one.inPlace ? buffers.send() : nullptr;
  char* const receive = buffers.getsResult() || one.inPlace ? buffers.receive() : nullptr;
  if (!(member.device == nullptr ? call(send, receive)
                                 : callOnDevice(member, buffers, call, send, receive))) {
    return false;
  }
  for (const Guarded* buffer : {&buffers.first, &buffers.second}) {
    if (!buffer->harm().empty()) member.complain("%s: %s", one.describe().c_str(), buffer->harm().c_str());
  }
  if (!one.inPlace && buffers.block != 0 &&
      memcmp(buffers.first.data(), buffers.input(member.rank), buffers.sends * buffers.block) != 0) {
    member.complain("%s: the send buffer was written", one.describe().c_str());
  }
  if (!buffers.getsResult()) return true;
  const std::vector<char> wanted = buffers.expected();
  const bool scattered = one.row->collective == Collective::kReduceScatter;
  const size_t firstElement = scattered ? static_cast<size_t>(member.rank) * one.count : 0;
  const std::string wrong =
      compare(one, *one.data, buffers.receive(), wanted, firstElement, one.row->rankOrder);
  if (!wrong.empty()) member.complain("%s", wrong.c_str());
  result->assign(buffers.receive(), buffers.receive() + wanted.size());
  return true;
}

bool runCase(Member& member, const Case& one) {
  const char* collective = nameOf(one.row->collective);
  const bool alone = member.ranks() == 1;
  if (!alone && !member.expect(strettoCommForce(member.comm, collective, nameOf(one.row->algorithm),
                                                nameOf(one.row->protocol), one.chunkBytes, 0),
                               one.describe().c_str())) {
    return false;
  }
  auto op = static_cast<ncclRedOp_t>(one.data->op);
  const bool custom = one.data->op == kPreMulSum && isReduction(one.row->collective);
  auto scalar = one.data->scalars[static_cast<size_t>(member.rank)];
  if (custom &&
      !member.expect(ncclRedOpCreatePreMulSum(&op, scalar.data(), static_cast<ncclDataType_t>(one.data->type),
                                              ncclScalarHostImmediate, member.comm),
                     "PreMulSum")) {
    return false;
  }
  const Calling call = [&](const void* send, void* receive) {
    return member.expect(callApi(one, send, receive, op, member), one.describe().c_str());
  };
  std::vector<char> result;
  std::vector<char> again;
  bool usable = checkCall(member, one, call, &result);
  if (usable && one.twice) {
    usable = checkCall(member, one, call, &again);
    if (usable && again != result) member.complain("%s: other bits the second time", one.describe().c_str());
  }
  if (usable && one.row->collective == Collective::kAllReduce && !one.row->rankOrder) {
    usable = compareRanks(member, one, result.data(), result.size());
  }
  if (custom && usable) usable = member.expect(ncclRedOpDestroy(op, member.comm), "destroy the operator");
  return usable;
}

}  // namespace stretto::testing
