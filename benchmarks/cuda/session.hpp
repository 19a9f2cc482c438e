// nccl_driver's side of the line protocol of ../driver.hpp: the words of a command into calls of a GpuRank.
// Beyond that protocol, `prepare` also takes chunk=, blocks= and graph=, `measure` also answers host_us, what
// a call costs the caller, and there is
//   contest collective= type= op= count= root= check= entrants= rounds= turn_us= drop=
//        -> ways to run one operation, ALGORITHM:PROTOCOL:CHUNK:BLOCKS with commas between, in turns
//        (contest.hpp):
//           {"entrants": [{"us": [median of each turn, of the slowest rank], "wrong", "refused"}, ...]}
// A rank whose operation failed says so and is ended by the orchestrator, as all ranks
// of its job are.
#pragma once

#include <functional>
#include <string>

#include "../driver.hpp"
#include "contest.hpp"
#include "rank.hpp"

namespace stretto::bench {

class GpuSession {
 public:
  GpuSession(GpuRank& rank, const Setup& setup) : rank_(rank), setup_(setup) {}

  std::string answer(const Command& command) {
    try {
      if (command.verb() == "prepare") return prepare(command);
      if (command.verb() == "measure") return measure(command);
      if (command.verb() == "contest") return contest(command);
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

  static std::string list(const std::vector<double>& values) {
    std::string text = "[";
    for (size_t i = 0; i < values.size(); ++i) text += (i == 0 ? "" : ",") + decimal(values[i]);
    return text + "]";
  }

  GpuRank& rank_;
  const Setup& setup_;
};

}  // namespace stretto::bench
