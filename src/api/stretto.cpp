// stretto.h: what NCCL's interface has no name for. The doctor is in doctor.cpp.
#include "stretto.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "api/build.hpp"
#include "api/handles.hpp"
#include "api/text_out.hpp"
#include "base/json.hpp"
#include "base/parameters.hpp"
#include "base/unknown_variables.hpp"
#include "base/version.hpp"
#include "communicator/core/machine.hpp"
#include "communicator/handover/foreign.hpp"
#include "planner/choose.hpp"
#include "platform/export.hpp"
#include "primitives/norm.hpp"
#include "topology/probe.hpp"

#define STRETTO_EXTRA extern "C" STRETTO_EXPORTED

namespace stretto::api {
namespace {

Result<Collective> collectiveNamed(const char* name) {
  for (int number = 0; name != nullptr && number < kCollectives; ++number) {
    const auto collective = static_cast<Collective>(number);
    if (std::strcmp(name, nameOf(collective)) == 0) return collective;
  }
  return fail(
      Code::kInvalidArgument,
      "\"%s\" is not a collective: there are all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, "
      "reduce, gather, scatter and all_reduce_add_rms_norm",
      name == nullptr ? "(null)" : name);
}

// Of an all-reduce with RMSNorm: what the call itself would refuse.
Status checkNorm(const strettoQuestion_t& question) {
  const auto type = static_cast<DataType>(question.type);
  if (!hasNorm(type)) {
    return fail(Code::kInvalidArgument,
                "strettoExplain: tokens are float32, float16 or bfloat16, and these are %s", nameOf(type));
  }
  if (question.op != ncclSum) {
    return fail(Code::kInvalidArgument, "strettoExplain: %s of tokens: their norm is that of the sum",
                nameOf(static_cast<Operator>(question.op)));
  }
  if (question.hidden > UINT32_MAX) {
    return fail(Code::kInvalidArgument,
                "strettoExplain: hidden is %zu: a token has 1 to %u elements, 0 leaves it open",
                question.hidden, UINT32_MAX);
  }
  return kOkStatus;
}

Result<planner::Request> makeRequest(const strettoQuestion_t& question, int ranks) {
  const auto collective = collectiveNamed(question.collective);
  if (!collective.ok()) return collective.status();
  const int type = static_cast<int>(question.type);
  const int op = static_cast<int>(question.op);
  if (type < 0 || type >= kDataTypes || op < 0 || op >= kOperators || ranks < 1 || ranks > kMostRanks) {
    return fail(Code::kInvalidArgument, "strettoExplain: type %d, operator %d, %d ranks", type, op, ranks);
  }
  planner::Request request;
  request.collective = collective.value();
  request.type = static_cast<DataType>(type);
  request.op = static_cast<Operator>(op);
  request.ranks = ranks;
  if (request.collective == Collective::kAllReduceAddRmsNorm) {
    STRETTO_TRY(checkNorm(question));
    request.tokenBytes = question.hidden * sizeOf(request.type);
  }
  request.windowed = request.pullsOnce = question.windows == 1;
  request.pullsTwice = question.windows != 0;
  // nccl-tests counts the larger buffer where Arguments::count counts one block.
  request.bytes = question.bytes /
                  std::max(blocksSent(request.collective, ranks), blocksReceived(request.collective, ranks));
  return request;
}

// For a machine without a communicator.
Result<std::string> explainHere(const planner::Request& request) {
  const auto table = planner::Table::load();
  if (!table.ok()) return table.status();
  const auto forced = planner::Forced::load();
  if (!forced.ok()) return forced.status();
  const auto machine = communicator::machineOfThisHost(request.ranks);
  if (!machine.ok()) return machine.status();
  return planner::explainJson(request, machine.value(), table.value(), forced.value());
}

// Plans are made for what this library serves itself.
Status ownOnly(const communicator::Communicator& communicator, const char* function) {
  const communicator::Foreign* const foreign = communicator.foreign();
  if (foreign == nullptr) return kOkStatus;
  return fail(Code::kInvalidUsage, "%s: %s", function, foreign->words().c_str());
}

uint64_t saturatedSize(const strettoCounters_t* counters) {
  return counters->size < sizeof *counters ? counters->size : sizeof *counters;
}

}  // namespace
}  // namespace stretto::api

using stretto::Code;
using stretto::Status;
using namespace stretto::api;

// One text, so that `stretto doctor --nccl` finds the version in the file as well.
STRETTO_EXTRA const char* strettoVersion(void) {
  static constexpr char kText[] = "Stretto version 0.1.0";
  constexpr size_t kBegin = std::string_view("Stretto version ").size();
  static_assert(std::string_view(kText).substr(kBegin) == stretto::kLibraryVersion);
  static const volatile char* const whole = kText;  // or else the compiler keeps only the end
  return const_cast<const char*>(whole) + kBegin;
}

STRETTO_EXTRA ncclResult_t strettoCommDevice(ncclComm_t comm, int* device) try {
  const InUse communicator(comm, "strettoCommDevice");
  if (communicator == nullptr) return ncclInvalidArgument;
  if (device == nullptr)
    return toResult(stretto::fail(Code::kInvalidArgument, "strettoCommDevice: no place for the number"));
  if (!communicator->self().seated()) return ncclInProgress;
  *device = communicator->self().config().device;
  return ncclSuccess;
} catch (...) {
  return stretto::api::caught("strettoCommDevice");
}

STRETTO_EXTRA ncclResult_t strettoCommCounters(ncclComm_t comm, strettoCounters_t* counters) try {
  const InUse communicator(comm, "strettoCommCounters");
  if (communicator == nullptr) return ncclInvalidArgument;
  if (counters == nullptr || counters->size < sizeof counters->size) {
    return toResult(stretto::fail(Code::kInvalidArgument, "strettoCommCounters: set size before the call"));
  }
  if (const Status status = communicator->self().mayTouch(); !status.ok()) return toResult(status);
  const auto known = communicator->submission().journal().counters();
  const auto waits = communicator->resources().waitCounters();
  strettoCounters_t all{};
  all.size = counters->size;
  all.initNanoseconds = known.initNanoseconds;
  all.initBootstrapNanoseconds = known.bootstrapNanoseconds;
  all.initConnectNanoseconds = known.connectNanoseconds;
  all.operations = known.operations;
  all.bytes = known.bytes;
  all.slowWaits = waits.slow;
  all.sleeps = waits.sleeps;
  all.wakeups = waits.wakeups;
  all.allocations = known.allocations + waits.allocations;
  all.windowBytes = communicator->resources().windowBytes();
  const size_t given = counters->size;
  std::memset(counters, 0, given);
  std::memcpy(counters, &all, saturatedSize(&all));
  return ncclSuccess;
} catch (...) {
  return stretto::api::caught("strettoCommCounters");
}

STRETTO_EXTRA ncclResult_t strettoExplain(ncclComm_t comm, const strettoQuestion_t* question, char* json,
                                          size_t capacity, size_t* needed) try {
  if (question == nullptr)
    return toResult(stretto::fail(Code::kInvalidArgument, "strettoExplain: no question"));
  std::optional<InUse> inUse;
  if (comm != nullptr) inUse.emplace(comm, "strettoExplain");
  auto* const communicator = inUse ? inUse->get() : nullptr;
  if (comm != nullptr && communicator == nullptr) return ncclInvalidArgument;
  if (communicator != nullptr) {
    if (const Status own = ownOnly(*communicator, "strettoExplain"); !own.ok()) return toResult(own);
  }
  const auto request =
      makeRequest(*question, communicator == nullptr ? question->ranks : communicator->self().ranks());
  if (!request.ok()) return toResult(request.status());
  const auto text = communicator == nullptr ? explainHere(request.value())
                                            : communicator->submission().explain(request.value());
  return text.ok() ? writeText(text.value(), json, capacity, needed) : toResult(text.status());
} catch (...) {
  return stretto::api::caught("strettoExplain");
}

STRETTO_EXTRA ncclResult_t strettoCommForce(ncclComm_t comm, const char* collective, const char* algorithm,
                                            const char* protocol, size_t chunkBytes, int blocks) try {
  const InUse communicator(comm, "strettoCommForce");
  if (communicator == nullptr) return ncclInvalidArgument;
  if (collective == nullptr) {
    return toResult(stretto::fail(Code::kInvalidArgument, "strettoCommForce: collective is null"));
  }
  if (const Status own = ownOnly(*communicator, "strettoCommForce"); !own.ok()) return toResult(own);
  const auto orEmpty = [](const char* text) { return text == nullptr ? "" : text; };
  const Status status =
      communicator->submission().force(collective, orEmpty(algorithm), orEmpty(protocol), chunkBytes, blocks);
  return toResult(status);
} catch (...) {
  return stretto::api::caught("strettoCommForce");
}

STRETTO_EXTRA ncclResult_t strettoCommProbe(ncclComm_t comm, int peer, int* arrived) try {
  constexpr const char* kName = "strettoCommProbe";
  const InUse communicator(comm, kName, true);
  if (communicator == nullptr) return ncclInvalidArgument;
  if (arrived == nullptr)
    return toResult(stretto::fail(Code::kInvalidArgument, "%s: no place for the answer", kName));
  *arrived = 0;
  if (const Status own = ownOnly(*communicator, kName); !own.ok()) return toResult(own);
  if (const Status may = communicator->mayCall(); !may.ok()) return toResult(may);
  const auto found = communicator->submission().probe(peer);
  if (!found.ok()) return toResult(found.status());
  *arrived = found.value() ? 1 : 0;
  return ncclSuccess;
} catch (...) {
  return stretto::api::caught("strettoCommProbe");
}

namespace {

Status noStream(const char* function, const void* stream) {
  return stretto::fail(Code::kInvalidArgument,
                       "%s: %p is not a stream that this process has of strettoStreamCreate", function,
                       stream);
}

}  // namespace

STRETTO_EXTRA ncclResult_t strettoStreamCreate(cudaStream_t* stream) try {
  if (stream == nullptr)
    return toResult(stretto::fail(Code::kInvalidArgument, "strettoStreamCreate: stream is null"));
  *stream = reinterpret_cast<cudaStream_t>(stretto::executors::host::makeStream());
  return ncclSuccess;
} catch (...) {
  return stretto::api::caught("strettoStreamCreate");
}

STRETTO_EXTRA ncclResult_t strettoStreamSynchronize(cudaStream_t stream) try {
  const auto found = stretto::executors::host::findStream(stream);
  if (found == nullptr) return toResult(noStream("strettoStreamSynchronize", stream));
  found->synchronize();
  return ncclSuccess;
} catch (...) {
  return stretto::api::caught("strettoStreamSynchronize");
}

STRETTO_EXTRA ncclResult_t strettoStreamQuery(cudaStream_t stream) try {
  const auto found = stretto::executors::host::findStream(stream);
  if (found == nullptr) return toResult(noStream("strettoStreamQuery", stream));
  return found->idle() ? ncclSuccess : ncclInProgress;
} catch (...) {
  return stretto::api::caught("strettoStreamQuery");
}

STRETTO_EXTRA ncclResult_t strettoStreamDestroy(cudaStream_t stream) try {
  const bool was = stretto::executors::host::destroyStream(stream);
  return was ? ncclSuccess : toResult(noStream("strettoStreamDestroy", stream));
} catch (...) {
  return stretto::api::caught("strettoStreamDestroy");
}

STRETTO_EXTRA ncclResult_t strettoBuild(char* json, size_t capacity, size_t* needed) try {
  return writeText(stretto::api::buildJson(), json, capacity, needed);
} catch (...) {
  return stretto::api::caught("strettoBuild");
}

STRETTO_EXTRA ncclResult_t strettoParameters(char* json, size_t capacity, size_t* needed) try {
  stretto::json::Writer writer;
  writer.beginObject().key("schema").text("stretto.parameters/1").key("parameters").beginArray();
  for (const stretto::Parameter* parameter : stretto::parameters::all()) {
    writer.beginObject();
    writer.key("name").text(parameter->name()).key("default").text(parameter->fallback());
    writer.key("value").text(parameter->text()).key("set").boolean(parameter->isSet());
    writer.key("help").text(parameter->help()).endObject();
  }
  writer.endArray().key("unknown").beginArray();
  for (const std::string& sentence : stretto::aboutUnknownVariables()) writer.text(sentence);
  writer.endArray().endObject();
  return writeText(writer.take(), json, capacity, needed);
} catch (...) {
  return stretto::api::caught("strettoParameters");
}

STRETTO_EXTRA ncclResult_t strettoTopology(char* json, size_t capacity, size_t* needed) try {
  const auto facts = stretto::topology::factsWithDevices();
  return facts.ok() ? writeText(stretto::topology::toJson(*facts.value()), json, capacity, needed)
                    : toResult(facts.status());
} catch (...) {
  return stretto::api::caught("strettoTopology");
}
