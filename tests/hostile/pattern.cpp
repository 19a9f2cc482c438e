#include "pattern.hpp"

#include <algorithm>
#include <cstring>

namespace hostile {
namespace {

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t mixed(const Call& call, int rank, size_t i) {
  return mix((uint64_t{call.number} << 40) ^ (static_cast<uint64_t>(rank + 1) << 32) ^ i);
}

bool isUnsigned(int type) {
  return type == ncclUint8 || type == ncclUint32 || type == ncclUint64;
}

// Whole numbers up to this are exact.
int64_t limitOf(int type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 127;
    case ncclFloat8e4m3:
      return 16;
    case ncclFloat8e5m2:
      return 8;
    case ncclBfloat16:
      return 256;
    case ncclFloat16:
      return 2048;
    default:
      return 1 << 24;
  }
}

// A whole number that fits, as a float of so many bits.
uint32_t encode(int64_t value, int exponentBits, int mantissaBits) {
  if (value == 0) return 0;
  const uint32_t sign = value < 0 ? 1u << (exponentBits + mantissaBits) : 0;
  const auto size = static_cast<uint64_t>(value < 0 ? -value : value);
  const int exponent = 63 - __builtin_clzll(size);
  const uint64_t mantissa =
      exponent > mantissaBits ? size >> (exponent - mantissaBits) : size << (mantissaBits - exponent);
  const uint32_t bias = (1u << (exponentBits - 1)) - 1;
  return sign | ((static_cast<uint32_t>(exponent) + bias) << mantissaBits) |
         (static_cast<uint32_t>(mantissa) & ((1u << mantissaBits) - 1));
}

void put(int type, int64_t value, uint8_t* to) {
  uint64_t bits = static_cast<uint64_t>(value);
  switch (type) {
    case ncclFloat16:
      bits = encode(value, 5, 10);
      break;
    case ncclBfloat16:
      bits = encode(value, 8, 7);
      break;
    case ncclFloat8e4m3:
      bits = encode(value, 4, 3);
      break;
    case ncclFloat8e5m2:
      bits = encode(value, 5, 2);
      break;
    case ncclFloat32:
      bits = encode(value, 8, 23);
      break;
    case ncclFloat64: {
      const auto number = static_cast<double>(value);
      memcpy(&bits, &number, sizeof bits);
      break;
    }
    default:
      break;
  }
  memcpy(to, &bits, sizeOf(type));
}

int64_t scalarFor(const Call& call, int ranks) {
  return limitOf(call.type) / 2 >= ranks ? 2 : 1;
}

// A number from -size to size, from 0 if there are no signs.
int64_t within(uint64_t bits, int64_t size, bool noSign) {
  const auto range = static_cast<uint64_t>(noSign ? size + 1 : 2 * size + 1);
  return static_cast<int64_t>(bits % range) - (noSign ? 0 : size);
}

int64_t summand(const Call& call, int ranks, int rank, size_t i) {
  const int64_t limit = limitOf(call.type) / (call.op == kPreMulSum ? scalarFor(call, ranks) : 1);
  const int64_t most = std::max<int64_t>(1, limit / ranks);
  if (limit < ranks &&
      (static_cast<size_t>(rank) + i) % static_cast<size_t>(ranks) >= static_cast<size_t>(limit)) {
    return 0;
  }
  return within(mixed(call, rank, i), most, isUnsigned(call.type));
}

// Sums that the number of ranks divides: a mean, and two ranks that are off it by one.
int64_t averaged(const Call& call, int ranks, int rank, size_t i) {
  const bool noSign = isUnsigned(call.type);
  const int64_t mean = within(mixed(call, kMaxRanks, i), (limitOf(call.type) - 1) / ranks / 2, noSign);
  const int up = static_cast<int>(i % static_cast<size_t>(ranks));
  if (ranks == 1 || (noSign && mean == 0)) return mean;
  return mean + (rank == up ? 1 : 0) - (rank == (up + 1) % ranks ? 1 : 0);
}

// Three factors of two at most, and signs.
int64_t factor(const Call& call, int ranks, int rank, size_t i) {
  const bool two = (static_cast<size_t>(rank) + mixed(call, 0, i)) % static_cast<size_t>(ranks) < 3;
  const bool minus = !isUnsigned(call.type) && mixed(call, rank, i) % 2 == 0;
  return (two ? 2 : 1) * (minus ? -1 : 1);
}

int64_t valueOf(const Call& call, int ranks, int rank, size_t i) {
  switch (call.op) {
    case ncclProd:
      return factor(call, ranks, rank, i);
    case ncclMax:
    case ncclMin:
      return within(mixed(call, rank, i), limitOf(call.type), isUnsigned(call.type));
    case ncclAvg:
      return averaged(call, ranks, rank, i);
    default:
      return summand(call, ranks, rank, i);
  }
}

int64_t combine(int op, int64_t a, int64_t b) {
  switch (op) {
    case ncclProd:
      return a * b;
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return a + b;
  }
}

}  // namespace

Bytes given(const Call& call, int ranks, int rank, size_t elements) {
  const size_t size = sizeOf(call.type), count = std::min(elements, kPeriod);
  Bytes bytes(count * size);
  for (size_t i = 0; i < count; ++i) {
    if (isReduction(call.function)) {
      put(call.type, valueOf(call, ranks, rank, i), &bytes[i * size]);
    } else {
      const uint64_t any = mixed(call, rank, i);
      memcpy(&bytes[i * size], &any, size);
    }
  }
  return bytes;
}

Bytes reduced(const Call& call, int ranks, size_t elements) {
  const size_t size = sizeOf(call.type), count = std::min(elements, kPeriod);
  Bytes bytes(count * size);
  for (size_t i = 0; i < count; ++i) {
    int64_t value = valueOf(call, ranks, 0, i);
    for (int rank = 1; rank < ranks; ++rank) value = combine(call.op, value, valueOf(call, ranks, rank, i));
    if (call.op == ncclAvg) value /= ranks;
    if (call.op == kPreMulSum) value *= scalarFor(call, ranks);
    put(call.type, value, &bytes[i * size]);
  }
  return bytes;
}

Bytes scalarOf(const Call& call, int ranks) {
  Bytes bytes(sizeOf(call.type));
  put(call.type, scalarFor(call, ranks), bytes.data());
  return bytes;
}

void spread(const Bytes& period, size_t size, size_t from, size_t count, uint8_t* to) {
  const size_t bytes = count * size;
  if (bytes == 0) return;
  size_t at = (from * size) % period.size();
  for (size_t done = 0; done < bytes;) {
    const size_t part = std::min(bytes - done, period.size() - at);
    memcpy(to + done, &period[at], part);
    done += part;
    at = 0;
  }
}

}  // namespace hostile
