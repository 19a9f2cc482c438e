// How fast net/tcp moves bytes from one process to another over loopback, in turns with plain sockets, with
// as many flows, one thread a side, polled: the floor. Prints a Markdown table of ratios.
//
//   net_benchmark [--flows N] [--rounds N] [--milliseconds N a turn] [--largest KB]
//
// One way: messages of one size back to back, up to eight under way, from the first send until the receiver
// has said that the last byte is there. Round trip: 64 bytes there and back. Each size has all its turns
// before the next; ratio: of the medians. What came last in every turn is compared with what it must be.
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "net/tcp/tcp.hpp"
#include "platform/clock.hpp"

namespace {

using namespace stretto;

constexpr size_t kMostUnderWay = 8;
constexpr size_t kMostFootprint = size_t{256} << 20;  // bytes of buffers
constexpr size_t kPlainChunk = 512 << 10;

[[noreturn]] void die(const char* what) {
  fprintf(stderr, "net_benchmark: %s: %s\n", what, lastError().c_str());
  exit(1);
}

void check(Status status, const char* what) {
  if (!status.ok()) die(what);
}

// One end of something that moves messages to the other process.
class End {
 public:
  virtual ~End() = default;
  // Messages that begin at buffers[i % buffers.size()], so many under way.
  virtual void send(std::vector<std::vector<std::byte>>& buffers, size_t count) = 0;
  virtual void receive(std::vector<std::vector<std::byte>>& buffers, size_t count) = 0;
};

// A connection each way.
class NetEnd final : public End {
 public:
  NetEnd(net::Net& net, int control) {
    auto listener = net.listen(0);
    if (!listener.ok()) die("listen");
    const net::Handle own = listener.value()->handle();
    net::Handle peers;
    if (write(control, own.data(), own.size()) != ssize_t(own.size())) die("write");
    if (::recv(control, peers.data(), peers.size(), MSG_WAITALL) != ssize_t(peers.size())) die("recv");
    auto connecting = net.connect(0, peers);
    if (!connecting.ok()) die("connect");
    while (sender_ == nullptr || receiver_ == nullptr) {
      if (sender_ == nullptr) check(connecting.value()->poll(sender_), "connect");
      if (receiver_ == nullptr) check(listener.value()->accept(receiver_), "accept");
    }
  }

  void send(std::vector<std::vector<std::byte>>& buffers, size_t count) override {
    std::deque<net::Request*>& requests = requests_;
    for (size_t sent = 0; sent < count || !requests.empty();) {
      if (sent < count && requests.size() < buffers.size()) {
        std::vector<std::byte>& bytes = buffers[sent % buffers.size()];
        net::Request* request = nullptr;
        check(sender_->send(bytes.data(), bytes.size(), 0, nullptr, request), "send");
        if (request != nullptr) requests.push_back(request), ++sent;
      }
      bool done = true;
      while (done && !requests.empty()) {
        check(sender_->test(requests.front(), done), "send");
        if (done) requests.pop_front();
      }
    }
  }

  void receive(std::vector<std::vector<std::byte>>& buffers, size_t count) override {
    std::deque<net::Request*>& requests = requests_;
    for (size_t posted = 0; posted < count || !requests.empty();) {
      while (posted < count && requests.size() < buffers.size()) {
        std::vector<std::byte>& bytes = buffers[posted % buffers.size()];
        const net::Receive receive{bytes.data(), bytes.size(), 0, nullptr};
        net::Request* request = nullptr;
        check(receiver_->receive(&receive, 1, request), "receive");
        if (request == nullptr) break;
        requests.push_back(request);
        ++posted;
      }
      bool done = true;
      while (done && !requests.empty()) {
        check(receiver_->test(requests.front(), done, nullptr), "receive");
        if (done) requests.pop_front();
      }
    }
  }

 private:
  std::unique_ptr<net::Sender> sender_;
  std::unique_ptr<net::Receiver> receiver_;
  std::deque<net::Request*> requests_;  // under way; empty between calls
};

// Sockets without anything: the bytes of a message in turns over all of them.
class PlainEnd final : public End {
 public:
  PlainEnd(int control, bool listens, int flows) {
    if (listens) {
      auto listener = listenOn(loopbackAddress());
      if (!listener.ok()) die("listen");
      const SocketAddress address = boundAddress(listener.value()).value();
      if (write(control, &address, sizeof address) != sizeof address) die("write");
      while (sockets_.size() < size_t(flows)) {
        FileDescriptor socket = acceptFrom(listener.value());
        if (socket.valid()) sockets_.push_back(std::move(socket));
      }
      return;
    }
    SocketAddress address;
    if (::recv(control, &address, sizeof address, MSG_WAITALL) != sizeof address) die("recv");
    for (int i = 0; i < flows; ++i) {
      sockets_.push_back(beginConnect(address));
      while (!isConnected(sockets_.back())) {
        if (connectError(sockets_.back()) != 0) die("connect");
      }
    }
  }

  void send(std::vector<std::vector<std::byte>>& buffers, size_t count) override {
    all(buffers, count, [](const FileDescriptor& socket, std::byte* at, size_t bytes) {
      const iovec piece{at, bytes};
      return sendSome(socket, std::span(&piece, 1));
    });
  }
  void receive(std::vector<std::vector<std::byte>>& buffers, size_t count) override {
    all(buffers, count, [](const FileDescriptor& socket, std::byte* at, size_t bytes) {
      return receiveSome(socket, std::span(reinterpret_cast<uint8_t*>(at), bytes));
    });
  }

 private:
  // Chunk k of the stream goes over socket k mod n; each socket goes on as it can.
  template <typename Move>
  void all(std::vector<std::vector<std::byte>>& buffers, size_t count, Move move) {
    const size_t bytes = buffers.front().size();
    const size_t chunks = (bytes + kPlainChunk - 1) / kPlainChunk;
    struct Cursor {
      size_t chunk;
      size_t moved;
    };
    std::vector<Cursor> cursors;
    for (size_t i = 0; i < sockets_.size(); ++i) cursors.push_back({i, 0});
    size_t left = count * chunks;
    while (left > 0) {
      for (size_t i = 0; i < sockets_.size(); ++i) {
        Cursor& cursor = cursors[i];
        if (cursor.chunk >= count * chunks) continue;
        std::vector<std::byte>& buffer = buffers[cursor.chunk / chunks % buffers.size()];
        const size_t offset = cursor.chunk % chunks * kPlainChunk;
        const size_t size = std::min(kPlainChunk, bytes - offset);
        const Transfer got = move(sockets_[i], buffer.data() + offset + cursor.moved, size - cursor.moved);
        if (got.outcome == IoOutcome::kWouldBlock) continue;
        if (got.outcome != IoOutcome::kSome) die("a plain socket");
        cursor.moved += got.bytes;
        if (cursor.moved < size) continue;
        cursor = {cursor.chunk + sockets_.size(), 0};
        --left;
      }
    }
  }

  std::vector<FileDescriptor> sockets_;
};

struct Turn {
  int end = 0;  // which; -1: no more
  bool roundTrip = false;
  size_t bytes = 0;
  size_t count = 0;
};

std::byte patternAt(size_t message, size_t at) {
  return static_cast<std::byte>(message * 131 + at * 7 + at / 251);
}

std::vector<std::vector<std::byte>> buffersOf(const Turn& turn, bool filled) {
  size_t underWay = std::clamp<size_t>(kMostFootprint / turn.bytes, 2, kMostUnderWay);
  if (turn.roundTrip) underWay = 1;
  std::vector<std::vector<std::byte>> buffers(underWay, std::vector<std::byte>(turn.bytes));
  for (size_t i = 0; i < buffers.size() && filled; ++i) {
    for (size_t at = 0; at < turn.bytes; ++at) buffers[i][at] = patternAt(i, at);
  }
  return buffers;
}

bool isRight(const std::vector<std::vector<std::byte>>& buffers) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    for (size_t at = 0; at < buffers[i].size(); ++at) {
      if (buffers[i][at] != patternAt(i, at)) return false;
    }
  }
  return true;
}

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

struct Ends {
  std::unique_ptr<net::Net> net;
  std::unique_ptr<End> all[2];

  Ends(int control, bool listens, int flows) {
    net::tcp::Settings settings;
    NetworkInterface loopback;
    loopback.name = "lo";
    loopback.address = loopbackAddress();
    loopback.prefixBits = 8;
    settings.interfaces = {loopback};
    settings.flows = flows;
    net = net::tcp::open(settings);
    all[0] = std::make_unique<NetEnd>(*net, control);
    all[1] = std::make_unique<PlainEnd>(control, listens, flows);
  }
};

// Takes its turns until it is told that there are no more.
void serve(int control, int flows) {
  pin(1);
  Ends ends(control, true, flows);
  Turn turn;
  while (::recv(control, &turn, sizeof turn, MSG_WAITALL) == sizeof turn && turn.end >= 0) {
    auto buffers = buffersOf(turn, false);
    End& end = *ends.all[turn.end];
    char ready = 1;
    if (write(control, &ready, 1) != 1) die("write");
    if (turn.roundTrip) {
      for (size_t i = 0; i < turn.count; ++i) {
        end.receive(buffers, 1);
        end.send(buffers, 1);
      }
    } else {
      end.receive(buffers, turn.count);
    }
    if (write(control, &ready, 1) != 1) die("write");
    const char right = isRight(buffers) ? 1 : 0;
    if (write(control, &right, 1) != 1) die("write");
  }
}

// Seconds of one message, or of half a round trip.
double take(int control, Ends& ends, const Turn& turn) {
  auto buffers = buffersOf(turn, true);
  char answer = 0;
  if (write(control, &turn, sizeof turn) != sizeof turn || read(control, &answer, 1) != 1) die("control");
  const uint64_t begin = platform::monotonicNanoseconds();
  End& end = *ends.all[turn.end];
  if (turn.roundTrip) {
    for (size_t i = 0; i < turn.count; ++i) {
      end.send(buffers, 1);
      end.receive(buffers, 1);
    }
  } else {
    end.send(buffers, turn.count);
  }
  if (read(control, &answer, 1) != 1) die("control");
  const double seconds = platform::secondsSince(begin);
  if (read(control, &answer, 1) != 1) die("control");
  if (answer != 1 || !isRight(buffers)) die("what arrived is wrong");
  return seconds / static_cast<double>(turn.count) / (turn.roundTrip ? 2 : 1);
}

struct Spread {
  double low, median, high;
};
Spread spreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 4], values[values.size() / 2], values[values.size() * 3 / 4]};
}

void measure(int control, Ends& ends, Turn turn, int rounds, double seconds) {
  std::vector<double> times[2];
  for (int which = 0; which < 2; ++which) {  // how many fit, and pages that are touched
    turn.end = which;
    turn.count = std::max<size_t>(turn.roundTrip ? 200 : 16, kMostUnderWay);
    const double one = take(control, ends, turn) * (turn.roundTrip ? 2 : 1);
    times[which].push_back(one);
  }
  const double slower = std::max(times[0][0], times[1][0]);
  turn.count = std::max<size_t>(kMostUnderWay, static_cast<size_t>(seconds / slower));
  times[0].clear();
  times[1].clear();
  for (int round = 0; round < rounds; ++round) {
    for (int which = 0; which < 2; ++which) {
      turn.end = which;
      times[which].push_back(take(control, ends, turn));
    }
  }
  const Spread ours = spreadOf(times[0]);
  const Spread plain = spreadOf(times[1]);
  if (turn.roundTrip) {
    printf("| half a round trip of %zu B, us | %.2f (%.2f to %.2f) | %.2f (%.2f to %.2f) | %.2f |\n",
           turn.bytes, ours.median * 1e6, ours.low * 1e6, ours.high * 1e6, plain.median * 1e6,
           plain.low * 1e6, plain.high * 1e6, ours.median / plain.median);
  } else {
    const double gigabytes = static_cast<double>(turn.bytes) * 1e-9;
    printf("| one way, %zu KB, GB/s | %.2f (%.2f to %.2f) | %.2f (%.2f to %.2f) | %.2f |\n", turn.bytes >> 10,
           gigabytes / ours.median, gigabytes / ours.high, gigabytes / ours.low, gigabytes / plain.median,
           gigabytes / plain.high, gigabytes / plain.low, plain.median / ours.median);
  }
  fflush(stdout);
}

long optionOf(int argc, char** argv, const char* name, long otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (strcmp(argv[i], name) == 0) return atol(argv[i + 1]);
  }
  return otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  const int flows = static_cast<int>(optionOf(argc, argv, "--flows", 1));
  const int rounds = static_cast<int>(optionOf(argc, argv, "--rounds", 11));
  const double seconds = static_cast<double>(optionOf(argc, argv, "--milliseconds", 100)) * 1e-3;
  int control[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, control) != 0) die("socketpair");
  const pid_t child = fork();
  if (child == 0) {
    close(control[0]);
    serve(control[1], flows);
    _exit(0);
  }
  close(control[1]);
  pin(0);
  Ends ends(control[0], false, flows);
  printf("| %d flow%s | net/tcp | plain sockets | ratio |\n|---|---|---|---|\n", flows,
         flows == 1 ? "" : "s");
  const size_t largest = static_cast<size_t>(optionOf(argc, argv, "--largest", 64 << 10)) << 10;
  for (size_t bytes = 4 << 10; bytes <= largest; bytes *= 4) {
    measure(control[0], ends, {0, false, bytes, 0}, rounds, seconds);
  }
  measure(control[0], ends, {0, true, 64, 0}, rounds, seconds);
  const Turn last{-1, false, 0, 0};
  if (write(control[0], &last, sizeof last) != sizeof last) die("control");
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}
