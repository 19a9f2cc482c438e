// Moves messages from one process to another, on this host or on another one, over the net that carries the
// bytes of communicators and over plain sockets, which are the floor: the measuring loop of `stretto p2p`
// (python/stretto/p2p), which says what is next and does the sums.
//
//   net_driver serve ADDRESS PORT [CPU [SECONDS]]
//     answers one who asks after the other, for ever. Says {"port"} first, then of each {"peer"} and, if it
//     failed, {"error"}. Who asks for nothing for SECONDS (600) has failed.
//   net_driver go ADDRESS PORT [CPU]
//     asks. Says {"net", "theirs"} first, then an answer to each line of stdin:
//     open net|plain|threads FLOWS
//                            {"end"}: a number; threads: plain sockets with a thread each
//     turn END there|both|pingpong BYTES COUNT INFLIGHT
//                            {"seconds", "wrong", "halves"}: of the whole turn, bytes, and microseconds of
//                            half of each round trip
//     flows END              {"flows"}
//     quit                   no answer: it ends, as at the end of stdin
//
// Each answer is a line of JSON with "ok", and "error" when that is false; then it ends. CPU: to run on that
// one alone; below 0: on any. Variables STRETTO_NET_... of who asks hold for both sides. What arrived last in
// every turn is compared with what it must be.
#include <arpa/inet.h>
#include <sched.h>
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "session.hpp"

extern char** environ;

namespace {

using namespace stretto;
using namespace stretto::bench;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    out += static_cast<unsigned char>(letter) < 0x20 ? ' ' : letter;
  }
  return out + "\"";
}

void say(const std::string& members) {
  printf("{\"ok\":true%s}\n", members.c_str());
  fflush(stdout);
}
void sayError(const char* text) {
  printf("{\"ok\":false,\"error\":%s}\n", quoted(text).c_str());
  fflush(stdout);
}

SocketAddress addressOf(const char* text, const char* port) {
  SocketAddress address;
  address.port = static_cast<uint16_t>(atoi(port));
  for (const auto& [family, code] : {std::pair{4, AF_INET}, std::pair{6, AF_INET6}}) {
    if (inet_pton(code, text, address.bytes) == 1) address.family = static_cast<uint16_t>(family);
  }
  if (address.family == 0) throw Failure(std::string(text) + " is no address");
  return address;
}

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

void serve(const SocketAddress& address, int patience) {
  auto listener = listenOn(address);
  check(listener.status(), "listen");
  say(",\"port\":" + std::to_string(boundAddress(listener.value()).value().port));
  for (;;) {
    waitReadable(listener.value());
    FileDescriptor socket = acceptFrom(listener.value());
    if (!socket.valid()) continue;
    say(",\"peer\":" + quoted(toText(peerAddress(socket))));
    try {
      Session(std::move(socket), true).answer(patience);
    } catch (const std::exception& error) {
      sayError(error.what());
    }
  }
}

std::vector<std::string> ownVariables() {
  std::vector<std::string> found;
  for (char** one = environ; *one != nullptr; ++one) {
    if (strncmp(*one, "STRETTO_NET_", 12) == 0) found.emplace_back(*one);
  }
  return found;
}

std::string listOf(const std::vector<double>& numbers) {
  std::string list = "[";
  char text[32];
  for (const double number : numbers) {
    snprintf(text, sizeof text, "%s%.3f", list.size() == 1 ? "" : ",", number);
    list += text;
  }
  return list + "]";
}

std::string turnAnswer(Session& session, std::istringstream& words) {
  Order order;
  std::string way;
  words >> order.end >> way >> order.bytes >> order.count >> order.inFlight;
  if (!words) throw Failure("turn END there|both|pingpong BYTES COUNT INFLIGHT");
  order.way = way == "both" ? Way::kBoth : way == "pingpong" ? Way::kPingPong : Way::kThere;
  const Outcome outcome = session.turn(order);
  char text[96];
  snprintf(text, sizeof text, ",\"seconds\":%.9f,\"wrong\":%llu,\"halves\":", outcome.seconds,
           static_cast<unsigned long long>(outcome.wrong));
  return text + listOf(outcome.halves);
}

std::string flowsAnswer(Session& session, std::istringstream& words) {
  uint32_t end = 0;
  words >> end;
  std::string list;
  for (const net::FlowCounters& flow : session.flows(end)) {
    list += (list.empty() ? "{\"route\":" : ",{\"route\":") + quoted(flow.route) +
            ",\"bytes\":" + std::to_string(flow.bytes) + ",\"stalls\":" + std::to_string(flow.stalls) +
            ",\"sent_again\":" + std::to_string(flow.sentAgain) +
            ",\"round_trip_us\":" + std::to_string(flow.roundTripSeconds * 1e6) +
            ",\"lost\":" + (flow.lost ? "true" : "false") + "}";
  }
  return ",\"flows\":[" + list + "]";
}

std::string answerTo(Session& session, const std::string& line) {
  std::istringstream words(line);
  std::string verb;
  words >> verb;
  if (verb == "turn") return turnAnswer(session, words);
  if (verb == "flows") return flowsAnswer(session, words);
  std::string kind;
  int flows = 0;
  words >> kind >> flows;
  if (verb != "open" || !words) throw Failure("no such command: " + line);
  const Kind which = kind == "plain" ? Kind::kPlain : kind == "threads" ? Kind::kThreads : Kind::kNet;
  return ",\"end\":" + std::to_string(session.open(which, flows));
}

void go(const SocketAddress& address) {
  Session session(connectTo(address), false);
  const std::string theirs = session.agree(ownVariables());
  say(",\"net\":" + quoted(session.netName()) + ",\"theirs\":" + quoted(theirs));
  for (std::string line; std::getline(std::cin, line) && line != "quit";) say(answerTo(session, line));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: net_driver serve|go ADDRESS PORT [CPU [SECONDS]]\n");
    return 2;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  if (argc > 4 && atoi(argv[4]) >= 0) pin(atoi(argv[4]));
  try {
    const SocketAddress address = addressOf(argv[2], argv[3]);
    if (strcmp(argv[1], "serve") == 0) {
      serve(address, argc > 5 ? atoi(argv[5]) : kPatienceSeconds);
    } else {
      go(address);
    }
  } catch (const std::exception& error) {
    sayError(error.what());
    return 1;
  }
  return 0;
}
