// What one measurement asks for, and where its data lie: the words of a command line turned into a Request,
// the buffers' sizes, and which rank's elements a correct result holds. Included by driver.hpp; a peer's
// driver reads the fields. Nothing here depends on Stretto or on any peer.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace stretto::bench {

enum class Collective {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kSendReceive,
};
inline constexpr const char* kCollectiveNames[] = {"all_reduce", "reduce_scatter", "all_gather",
                                                   "all_to_all", "broadcast",      "reduce",
                                                   "gather",     "scatter",        "send_recv"};

// The order is that of ncclDataType_t, so that drivers can translate by a table.
enum class Type {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBfloat16,
  kE4m3,
  kE5m2
};
struct TypeFacts {
  const char* name;
  size_t bytes;
  double largestExact;  // every whole number from 0 to here is a value of the type
  int exponentBits;     // 0 for integers
  int mantissaBits;
};
inline constexpr TypeFacts kTypes[] = {
    {"int8", 1, 127, 0, 0},       {"uint8", 1, 255, 0, 0},        {"int32", 4, 1 << 20, 0, 0},
    {"uint32", 4, 1 << 20, 0, 0}, {"int64", 8, 1 << 20, 0, 0},    {"uint64", 8, 1 << 20, 0, 0},
    {"float16", 2, 2048, 5, 10},  {"float32", 4, 1 << 20, 8, 23}, {"float64", 8, 1 << 20, 11, 52},
    {"bfloat16", 2, 256, 8, 7},   {"float8e4m3", 1, 16, 4, 3},    {"float8e5m2", 1, 8, 5, 2},
};

enum class Operator { kSum, kProd, kMax, kMin, kAvg };
inline constexpr const char* kOperatorNames[] = {"sum", "prod", "max", "min", "avg"};

struct Request {
  Collective collective = Collective::kAllReduce;
  Type type = Type::kFloat32;
  Operator op = Operator::kSum;
  size_t count = 0;  // elements per rank, as NCCL's functions count them
  int ranks = 0;
  int rank = 0;
  int root = 0;
  bool inPlace = false;
  bool check = true;
  std::string algorithm;  // empty: the implementation chooses
  std::string protocol;

  size_t elementBytes() const { return kTypes[static_cast<int>(type)].bytes; }
  size_t blockBytes() const { return count * elementBytes(); }
  bool atRoot() const { return rank == root; }
  bool reduces() const {
    return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
           collective == Collective::kReduce;
  }
};

// The two ends of one call. In place they overlap as NCCL's rules say.
struct Ends {
  void* send = nullptr;
  void* receive = nullptr;
};

// A stretch of a correct result: `count` elements, the first of them element `first` of rank `source`'s
// input, or of all inputs reduced.
inline constexpr int kReduced = -1;
struct Block {
  int source;
  size_t first;
  size_t count;
};

inline size_t sendCount(const Request& r) {
  const bool many = r.collective == Collective::kReduceScatter || r.collective == Collective::kAllToAll ||
                    r.collective == Collective::kScatter;
  return many ? r.count * static_cast<size_t>(r.ranks) : r.count;
}

inline size_t receiveCount(const Request& r) {
  const bool many = r.collective == Collective::kAllGather || r.collective == Collective::kAllToAll ||
                    r.collective == Collective::kGather;
  return many ? r.count * static_cast<size_t>(r.ranks) : r.count;
}

// What this rank must hold afterwards, in order; empty where the collective gives it nothing.
inline std::vector<Block> expectedBlocks(const Request& r) {
  const size_t mine = static_cast<size_t>(r.rank) * r.count;
  std::vector<Block> fromAll;
  for (int source = 0; source < r.ranks; ++source) {
    fromAll.push_back({source, r.collective == Collective::kAllToAll ? mine : 0, r.count});
  }
  switch (r.collective) {
    case Collective::kAllReduce:
      return {{kReduced, 0, r.count}};
    case Collective::kReduceScatter:
      return {{kReduced, mine, r.count}};
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return fromAll;
    case Collective::kBroadcast:
      return {{r.root, 0, r.count}};
    case Collective::kReduce:
      return r.atRoot() ? std::vector<Block>{{kReduced, 0, r.count}} : std::vector<Block>{};
    case Collective::kGather:
      return r.atRoot() ? fromAll : std::vector<Block>{};
    case Collective::kScatter:
      return {{r.root, mine, r.count}};
    case Collective::kSendReceive:
      return {
          {(r.rank + r.ranks - 1) % r.ranks, 0, r.count}};  // the left neighbour's; of two ranks, the other's
  }
  return {};
}

// NCCL's in-place rule: the smaller of the two buffers is this rank's part of the larger.
inline Ends endsInPlace(const Request& r, std::byte* buffer) {
  std::byte* mine = buffer + static_cast<size_t>(r.rank) * r.blockBytes();
  switch (r.collective) {
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return {buffer, mine};
    case Collective::kAllGather:
    case Collective::kGather:
      return {mine, buffer};
    default:
      return {buffer, buffer};
  }
}

// A command: one word, then key=value pairs. Values hold no blanks.
class Command {
 public:
  explicit Command(const std::string& line) {
    std::istringstream words(line);
    words >> verb_;
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      if (equals != std::string::npos) values_[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  const std::string& verb() const { return verb_; }
  std::string text(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? "" : found->second;
  }
  size_t number(const std::string& key) const { return strtoull(text(key).c_str(), nullptr, 10); }

 private:
  std::string verb_;
  std::map<std::string, std::string> values_;
};

template <class E, size_t kCount>
bool parseName(const char* const (&names)[kCount], const std::string& text, E* value) {
  for (size_t i = 0; i < kCount; ++i) {
    if (text == names[i]) {
      *value = static_cast<E>(i);
      return true;
    }
  }
  return false;
}

// Returns what is wrong with the command, or nothing.
inline std::string parseRequest(const Command& command, int rank, int ranks, Request* request) {
  *request = Request{};
  request->rank = rank;
  request->ranks = ranks;
  if (!parseName(kCollectiveNames, command.text("collective"), &request->collective))
    return "unknown collective";
  if (!parseName(kOperatorNames, command.text("op"), &request->op)) return "unknown operator";
  size_t type = 0;
  while (type < std::size(kTypes) && command.text("type") != kTypes[type].name) ++type;
  if (type == std::size(kTypes)) return "unknown type";
  request->type = static_cast<Type>(type);
  request->count = command.number("count");
  request->root = static_cast<int>(command.number("root"));
  request->inPlace = command.number("in_place") != 0;
  request->check = command.number("check") != 0;
  request->algorithm = command.text("algorithm");
  request->protocol = command.text("protocol");
  if (request->root < 0 || request->root >= ranks) return "the root is not a rank";
  return "";
}

}  // namespace stretto::bench
