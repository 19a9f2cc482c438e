// The two processes of a measurement by net_driver: who asks (`go`) and who answers (`serve`), their control
// connection, the ends that they open together, and turns.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "moves.hpp"

namespace stretto::bench {

inline constexpr size_t kMostBytes = size_t{1} << 30;  // of a message
inline constexpr size_t kMostInFlight = 32;            // messages: net::kMostRequests
inline constexpr int kMostPlainFlows = 64;
inline constexpr size_t kMostEnds = 64;             // of a session
inline constexpr uint64_t kMostMessages = 1 << 20;  // of a turn
inline constexpr double kMostSecondsOfTurn = 3600;

// How long who asks may say nothing between two orders: his measurements with others' drivers take less.
inline constexpr int kPatienceSeconds = 600;

// Waits so many seconds, or without an end if they are negative. False if nothing came.
bool waitReadable(const FileDescriptor& socket, int seconds = -1);
// Throws Failure when that cannot be, or takes too long. `from`: as beginConnect has it.
FileDescriptor connectTo(const SocketAddress& address, const SocketAddress& from = {});

// Bytes in order, with a deadline on every wait. Between two hosts of one processor architecture.
class Control {
 public:
  explicit Control(FileDescriptor socket) : socket_(std::move(socket)) {}
  // Who has gone without a word, as when his host went down, is gone after half a minute.
  void keepAlive();

  void write(const void* bytes, size_t size, double seconds = 30);
  void read(void* bytes, size_t size, double seconds = 30);
  // Waits for the first byte; false if there is none to come. Throws Failure after so many seconds.
  bool awaits(int seconds);
  template <typename T>
  void put(const T& value) {
    write(&value, sizeof value);
  }
  template <typename T>
  T get(double seconds = 30) {
    T value;
    read(&value, sizeof value, seconds);
    return value;
  }
  FileDescriptor release() { return std::move(socket_); }

 private:
  FileDescriptor socket_;
};

enum class Kind : uint32_t { kNet, kPlain, kThreads };  // kThreads: plain sockets with a thread each
enum class Way : uint32_t { kThere, kBoth, kPingPong };

// What who asks wants next.
struct Order {
  enum class Verb : uint32_t { kOpen, kTurn } verb = Verb::kTurn;
  Kind kind = Kind::kNet;  // kOpen
  int32_t flows = 1;       // of plain sockets
  uint32_t end = 0;        // kTurn: the n-th that was opened
  Way way = Way::kThere;
  uint64_t bytes = 0;
  uint64_t count = 0;
  uint64_t inFlight = 1;
};

struct Outcome {
  double seconds = 0;          // of the whole turn
  std::vector<double> halves;  // kPingPong: microseconds of half of each round trip
  uint64_t wrong = 0;          // bytes
};

// Both sides of a session have one, in the same state.
class Session {
 public:
  // `answers`: this is the side that listens when ends are opened.
  Session(FileDescriptor control, bool answers);
  ~Session();

  // Who asks: passes variables of the environment on, and says what net the other side has.
  std::string agree(const std::vector<std::string>& variables);
  uint32_t open(Kind kind, int flows);
  Outcome turn(const Order& order);
  std::vector<net::FlowCounters> flows(uint32_t end) const { return ends_.at(end)->flows(); }
  const std::string& netName() const { return netName_; }

  // Who answers: until who asks is gone. Throws Failure when he says nothing for so many seconds.
  void answer(int patience);

 private:
  void adopt(const std::vector<std::string>& variables);
  net::Net& theNet();
  std::unique_ptr<End> openNet();
  std::unique_ptr<End> openPlain(int flows, bool hasThreads);
  void prepare(const Order& order);
  void exchange(const Order& order, std::vector<double>& halves);
  uint64_t countWrong(const Order& order) const;

  Control control_;
  const bool answers_;
  std::shared_ptr<net::Net> net_;
  std::string netName_;
  std::vector<std::unique_ptr<End>> ends_;
  Buffers out_;
  Buffers in_;
  uint64_t turns_ = 0;
  // Variables, and what they were; empty: not set.
  std::vector<std::pair<std::string, std::string>> replaced_;
};

}  // namespace stretto::bench
