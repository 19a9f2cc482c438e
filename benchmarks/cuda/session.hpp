// nccl_driver's side of the line protocol of ../driver.hpp: the words of a command into calls of a GpuRank.
// Beyond that protocol, `prepare` also takes chunk=, blocks= and graph=, `measure` also answers host_us, what
// a call costs the caller, and there is
//   contest collective= type= op= count= root= check= entrants= rounds= turn_us= drop=
//        -> ways to run one operation, ALGORITHM:PROTOCOL:CHUNK:BLOCKS with commas between, in turns
//        (contest.hpp):
//           {"entrants": [{"us": [median of each turn, of the slowest rank], "wrong", "refused"}, ...]}
//   makings count= ranks=  -> milliseconds of each communicator of the first `ranks` ranks (costs.hpp):
//        {"makings": [{"init", "first", "destroy", "meeting", "connecting"}, ...]}
//   opened count=          -> what each of so many open communicators holds, and what each has left:
//        {"each": {"device_bytes", "host_bytes", "descriptors", "threads"}, "left": {the same}}
//   calls calls= batches=  -> nanoseconds of one call: {"empty": [...], "call": [...], "group": [...]}
// A rank whose operation failed says so and is ended by the orchestrator, as all ranks
// of its job are.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "../driver.hpp"
#include "contest.hpp"
#include "costs.hpp"
#include "rank.hpp"

namespace stretto::bench {

class GpuSession {
 public:
  GpuSession(GpuRank& rank, const Setup& setup, const Library& library, Watchdog& watchdog)
      : rank_(rank), setup_(setup), library_(library), watchdog_(watchdog) {}

  std::string answer(const Command& command) {
    try {
      if (command.verb() == "prepare") return prepare(command);
      if (command.verb() == "measure") return measure(command);
      if (command.verb() == "contest") return contest(command);
      if (command.verb() == "makings") return makings(command);
      if (command.verb() == "opened") return opened(command);
      if (command.verb() == "calls") return calls(command);
      if (command.verb() == "finish") return finish();
      return R"({"ok":true})";
    } catch (const Refusal& refusal) {
      return R"({"ok":false,"unsupported":)" + quoted(refusal.what()) + "}";
    } catch (const std::exception& failure) {
      return R"({"ok":false,"error":)" + quoted(failure.what()) + "}";
    }
  }

 private:
  Request requestOf(const Command& command) {
    Request request;
    const std::string mistake = parseRequest(command, rank_.crew().rank(), rank_.crew().ranks(), &request);
    if (!mistake.empty()) throw Failure(mistake);
    return request;
  }

  std::string prepare(const Command& command) {
    const Request request = requestOf(command);
    Forced forced = setup_.forced;
    if (!request.algorithm.empty()) {
      forced = {request.algorithm, request.protocol, command.number("chunk"),
                static_cast<int>(command.number("blocks"))};
    }
    rank_.prepare(request, forced, command.number("graph") != 0);
    const uint64_t wrong = rank_.checkOnce();
    return R"({"ok":true,"wrong":)" + std::to_string(wrong) + ",\"how\":" + rank_.how() + "}";
  }

  std::string measure(const Command& command) {
    uint64_t wrong = 0;
    const Times times =
        rank_.measure(command.number("warmup"), command.number("batch"), command.number("batches"), &wrong);
    return R"({"ok":true,"wrong":)" + std::to_string(wrong) + ",\"batch_us\":" + list(times.device) +
           ",\"host_us\":" + list(times.host) + "}";
  }

  std::string contest(const Command& command) {
    std::vector<Entrant> entrants;
    for (const std::string& text : split(command.text("entrants"), ',')) {
      if (!parseForced(text, &entrants.emplace_back().forced)) throw Failure("no entrant: " + text);
    }
    const Rules rules{command.number("rounds"), static_cast<double>(command.number("turn_us")),
                      atof(command.text("drop").c_str())};
    compete(rank_, requestOf(command), rules, entrants);
    std::string text = R"({"ok":true,"entrants":[)";
    for (const Entrant& one : entrants) {
      if (&one != entrants.data()) text += ',';
      text += "{\"us\":" + list(one.turns) + ",\"wrong\":" + std::to_string(one.wrong) +
              ",\"refused\":" + (one.refusal.empty() ? "null" : quoted(one.refusal)) + "}";
    }
    return text + "]}";
  }

  // A rank's own quantiles would not be those of the slowest rank: the orchestrator makes them from batch_us.
  std::string finish() {
    return R"({"ok":true,"samples":0,"p50":0,"p99":0,"max":0,"wrong":)" + std::to_string(rank_.checkOnce()) +
           "}";
  }

  // Made when it is first asked for: a benchmark has no use for it.
  Costs& costs() {
    if (costs_ == nullptr) costs_ = std::make_unique<Costs>(library_, watchdog_, rank_.crew(), setup_);
    return *costs_;
  }

  std::string makings(const Command& command) {
    std::string text;
    for (const Making& one :
         costs().make(command.number("count"), static_cast<int>(command.number("ranks")))) {
      text += std::string(text.empty() ? "{" : ",{") + "\"init\":" + decimal(one.init) +
              ",\"first\":" + decimal(one.first) + ",\"destroy\":" + decimal(one.destroy) +
              ",\"meeting\":" + decimal(one.meeting) + ",\"connecting\":" + decimal(one.connecting) + "}";
    }
    return R"({"ok":true,"makings":[)" + text + "]}";
  }

  std::string opened(const Command& command) {
    const Opened found = costs().open(std::max<size_t>(1, command.number("count")));
    return R"({"ok":true,"each":)" + text(found.each) + ",\"left\":" + text(found.left) + "}";
  }
  static std::string text(const Holdings& one) {
    return "{\"device_bytes\":" + decimal(one.deviceBytes) + ",\"host_bytes\":" + decimal(one.hostBytes) +
           ",\"descriptors\":" + decimal(one.descriptors) + ",\"threads\":" + decimal(one.threads) + "}";
  }

  std::string calls(const Command& command) {
    const CallCosts found =
        costs().call(std::max<size_t>(1, command.number("calls")), command.number("batches"));
    return R"({"ok":true,"empty":)" + list(found.empty) + ",\"call\":" + list(found.call) +
           ",\"group\":" + list(found.group) + "}";
  }

  static std::string list(const std::vector<double>& values) {
    std::string text = "[";
    for (size_t i = 0; i < values.size(); ++i) text += (i == 0 ? "" : ",") + decimal(values[i]);
    return text + "]";
  }

  GpuRank& rank_;
  const Setup& setup_;
  const Library& library_;
  Watchdog& watchdog_;
  std::unique_ptr<Costs> costs_;
};

}  // namespace stretto::bench
