#include "planner/forced.hpp"

#include <algorithm>
#include <string>

#include "base/parameters.hpp"
#include "planner/names.hpp"

namespace stretto::planner {
namespace {

constexpr size_t kMostText = 256;  // of a user's text in an error

using algorithms::Descriptor;

// Adds a name that the list does not hold yet.
void appendName(std::string& list, const char* name) {
  const std::string padded = ", " + list + ",";
  if (padded.find(std::string(", ") + name + ",") != std::string::npos) return;
  if (!list.empty()) list += ", ";
  list += name;
}

template <typename Keep>
std::string algorithmNames(Keep keep) {
  std::string names;
  for (const Descriptor& row : algorithms::allDescriptors()) {
    if (keep(row)) appendName(names, algorithms::nameOf(row.algorithm));
  }
  return names;
}

std::string collectiveNames() {
  std::string names;
  for (int i = 0; i < kCollectives; ++i) appendName(names, nameOf(static_cast<Collective>(i)));
  return names;
}

template <typename Match>
bool exists(Match match) {
  const auto rows = algorithms::allDescriptors();
  return std::any_of(rows.begin(), rows.end(), match);
}

// For a protocol that hosts know, collectives count that have it there; on GPUs more of them do.
bool hasProtocol(Collective collective, Protocol protocol) {
  const auto known = [&](std::span<const Descriptor> rows, bool anyCollective) {
    return std::any_of(rows.begin(), rows.end(), [&](const Descriptor& row) {
      return row.protocol == protocol && (anyCollective || row.collective == collective);
    });
  };
  const auto host = algorithms::descriptors();
  return known(known(host, true) ? host : algorithms::allDescriptors(), false);
}

std::string protocolNames(Collective collective) {
  std::string names;
  for (const Descriptor& row : algorithms::allDescriptors()) {
    if (row.collective == collective) appendName(names, algorithms::nameOf(row.protocol));
  }
  return names;
}

bool has(Collective collective, const Forced::Choice& choice) {
  return exists([&](const Descriptor& row) { return row.collective == collective && choice.allows(row); });
}

std::string shortened(std::string_view text) {
  return std::string(text.substr(0, kMostText));
}

// What was there once, and what to ask for instead: the end of an error.
std::string insteadOf(std::string_view name) {
  struct Former {
    std::string_view name;
    const char* instead;
  };
  constexpr Former kFormer[] = {
      {"unreduced_ring", "it left the reduction out, for benchmarks; the ring that reduces is \"ring\""},
      {"pull_bulk", "it moved by copy units what \"pull_push\" moves by threads, no faster"},
  };
  for (const Former& former : kFormer) {
    if (name == former.name) return std::string(". There was one until 0.1: ") + former.instead;
  }
  return {};
}

Status noCollective(std::string_view name) {
  return fail(Code::kInvalidUsage, "there is no collective \"%s\"; there are %s", shortened(name).c_str(),
              collectiveNames().c_str());
}

Status noAlgorithm(Collective collective, std::string_view name) {
  const std::string names = algorithmNames([&](const Descriptor& r) { return r.collective == collective; });
  return fail(Code::kInvalidUsage, "%s has no algorithm \"%s\"; it has %s%s", nameOf(collective),
              shortened(name).c_str(), names.c_str(), insteadOf(name).c_str());
}

Status noProtocol(std::string_view name) {
  std::string names;
  for (int i = 0; i < algorithms::kProtocols; ++i) {
    appendName(names, algorithms::nameOf(static_cast<Protocol>(i)));
  }
  return fail(Code::kInvalidUsage, "there is no protocol \"%s\"; there are %s%s", shortened(name).c_str(),
              names.c_str(), insteadOf(name).c_str());
}

Status notTogether(Collective collective, Algorithm algorithm, Protocol protocol) {
  const auto matches = [&](const Descriptor& r) {
    return r.collective == collective && r.protocol == protocol;
  };
  return fail(Code::kInvalidUsage, "%s by %s has no protocol %s; the algorithms that have it are: %s",
              nameOf(collective), algorithms::nameOf(algorithm), algorithms::nameOf(protocol),
              algorithmNames(matches).c_str());
}

}  // namespace

const Forced::Choice& Forced::of(Collective collective) const {
  return choices_[static_cast<size_t>(plannedAs(collective))];
}

Status Forced::set(Collective collective, Algorithm algorithm, std::string_view text) {
  Choice& choice = choices_[static_cast<size_t>(plannedAs(collective))];
  if (choice.algorithm) {
    return fail(Code::kInvalidUsage, "STRETTO_ALGO=%s forces two algorithms on %s: %s and %s",
                shortened(text).c_str(), nameOf(collective), algorithms::nameOf(*choice.algorithm),
                algorithms::nameOf(algorithm));
  }
  choice.algorithm = algorithm;
  return kOkStatus;
}

// One pass over the list: the parts that name a collective, or those that do not.
Status Forced::addAlgorithms(std::string_view list, bool named) {
  for (std::string_view rest = list; rest.data() != nullptr;) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
    const size_t colon = part.find(':');
    if (named != (colon != part.npos)) continue;

    const std::string_view name = named ? part.substr(colon + 1) : part;
    const auto algorithm = algorithmNamed(name);
    if (named) {
      const auto collective = collectiveNamed(part.substr(0, colon));
      if (!collective) return noCollective(part.substr(0, colon));
      if (!algorithm || !has(*collective, {algorithm, {}, 0, 0})) return noAlgorithm(*collective, name);
      STRETTO_TRY(set(*collective, *algorithm, list));
      continue;
    }
    if (!algorithm) {
      return fail(Code::kInvalidUsage, "STRETTO_ALGO: there is no algorithm \"%s\"; there are %s%s",
                  shortened(name).c_str(), algorithmNames([](const Descriptor&) { return true; }).c_str(),
                  insteadOf(name).c_str());
    }
    for (int i = 0; i < kCollectives; ++i) {
      const Collective collective = static_cast<Collective>(i);
      const bool planned = plannedAs(collective) == collective;
      if (planned && has(collective, {algorithm, {}, 0, 0})) STRETTO_TRY(set(collective, *algorithm, list));
    }
  }
  return kOkStatus;
}

Status Forced::addProtocol(std::string_view name) {
  const auto protocol = protocolNamed(name);
  if (!protocol) return noProtocol(name);
  for (int i = 0; i < kCollectives; ++i) {
    const Collective collective = static_cast<Collective>(i);
    if (!hasProtocol(collective, *protocol)) continue;
    Choice& choice = choices_[static_cast<size_t>(plannedAs(collective))];
    choice.protocol = protocol;
    if (!has(collective, choice)) return notTogether(collective, *choice.algorithm, *protocol);
  }
  return kOkStatus;
}

Result<Forced> Forced::parse(std::string_view algorithms, std::string_view protocol) {
  Forced named;
  Forced bare;
  if (!algorithms.empty()) {
    STRETTO_TRY(named.addAlgorithms(algorithms, true));
    STRETTO_TRY(bare.addAlgorithms(algorithms, false));
  }
  for (size_t i = 0; i < named.choices_.size(); ++i) {
    if (!named.choices_[i].any()) named.choices_[i] = bare.choices_[i];
  }
  if (!protocol.empty()) STRETTO_TRY(named.addProtocol(protocol));
  return named;
}

Result<Forced> Forced::load() {
  return parse(parameters::kAlgo.text(), parameters::kProto.text());
}

Status Forced::force(std::string_view collective, std::string_view algorithm, std::string_view protocol,
                     size_t chunkBytes, int blocks) {
  const auto which = collectiveNamed(collective);
  if (!which) return noCollective(collective);
  Choice choice;
  if (!algorithm.empty()) {
    choice.algorithm = algorithmNamed(algorithm);
    if (!choice.algorithm || !has(*which, choice)) return noAlgorithm(*which, algorithm);
  }
  if (!protocol.empty()) {
    choice.protocol = protocolNamed(protocol);
    if (!choice.protocol) return noProtocol(protocol);
  }
  if (chunkBytes != 0) {
    if (chunkBytes % 64 != 0 || chunkBytes > kMostChunkBytes) {
      return fail(Code::kInvalidUsage, "a chunk of %zu bytes: it must be a multiple of 64, at most %zu",
                  chunkBytes, kMostChunkBytes);
    }
    if (choice.protocol && !algorithms::takesChunk(*choice.protocol)) {
      return fail(Code::kInvalidUsage, "a chunk of %zu bytes: the protocol %s has no chunks", chunkBytes,
                  algorithms::nameOf(*choice.protocol));
    }
    choice.protocol = choice.protocol.value_or(Protocol::kSimple);
    choice.chunkBytes = static_cast<uint32_t>(chunkBytes);
  }
  if (blocks < 0 || blocks > kMostBlocks) {
    return fail(Code::kInvalidUsage, "%d blocks: there can be 1 to %d, or 0 for the planner's choice", blocks,
                kMostBlocks);
  }
  choice.blocks = blocks;
  if (!has(*which, choice)) {
    if (choice.algorithm) return notTogether(*which, *choice.algorithm, *choice.protocol);
    return fail(Code::kInvalidUsage, "%s has no protocol %s; it has %s", nameOf(*which),
                algorithms::nameOf(*choice.protocol), protocolNames(*which).c_str());
  }
  choices_[static_cast<size_t>(plannedAs(*which))] = choice;
  return kOkStatus;
}

}  // namespace stretto::planner
