// Feeds arbitrary bytes, and frames and records of arbitrary contents, to everything of net/tcp that reads
// bytes from elsewhere: handles, the handshake, and both ends of a connection of two flows while requests are
// under way. The first byte chooses which. Both ends write behind their buffers if a bound is wrong.
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "net/tcp/handshake.hpp"
#include "net/tcp/receiver.hpp"
#include "net/tcp/sender.hpp"

namespace stretto::net::tcp {
namespace {

constexpr int kFlows = 2;

class Input {
 public:
  explicit Input(std::span<const uint8_t> data) : data_(data) {}
  bool empty() const { return data_.empty(); }
  uint8_t byte() {
    if (data_.empty()) return 0;
    const uint8_t first = data_.front();
    data_ = data_.subspan(1);
    return first;
  }
  // Mostly small, now and then of any size.
  uint64_t number() {
    const uint8_t kind = byte();
    if (kind < 200) return kind % 8;
    uint64_t value = 0;
    for (int i = 0; i < kind % 8; ++i) value = value << 8 | byte();
    return value;
  }
  std::span<const uint8_t> take(size_t bytes) {
    const auto taken = data_.first(std::min(bytes, data_.size()));
    data_ = data_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const uint8_t> data_;
};

// Two flows, with their other ends.
struct Wires {
  Wires() {
    for (FileDescriptor& far : fars) {
      int ends[2] = {-1, -1};
      far = FileDescriptor::create([&] {
        return ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0 ? ends[0] : -1;
      });
      nears.push_back({FileDescriptor::create([&] { return ends[1]; }), "a flow"});
    }
  }
  void say(int flow, std::span<const uint8_t> bytes) {
    const IoSpan piece{const_cast<uint8_t*>(bytes.data()), bytes.size()};
    sendSome(fars[flow % kFlows], std::span(&piece, 1));
  }

  FileDescriptor fars[kFlows];
  std::vector<Joined> nears;
};

Hello greeting() {
  Hello hello;
  hello.flows = kFlows;
  hello.chunk = kLeastChunk;
  hello.small = 256;
  return hello;
}

Settings settings() {
  Settings settings;
  settings.leastWindow = kLeastChunk;
  return settings;
}

Frame frameOf(Input& input) {
  Frame frame;
  frame.kind = static_cast<FrameKind>(1 + input.byte() % 6);
  frame.tag = static_cast<int32_t>(input.byte() % 2);
  frame.number = input.number();
  frame.index = input.number();
  frame.total = static_cast<uint32_t>(input.byte() % 3 == 0 ? input.number() : input.byte() * 40u);
  frame.offset = input.byte() % 4 * static_cast<uint32_t>(kLeastChunk);
  frame.bytes = input.byte() % 4 != 0 ? std::min<uint32_t>(kLeastChunk, frame.total - frame.offset)
                                      : static_cast<uint32_t>(input.number());
  return frame;
}

void receiveFrom(Input& input) {
  Wires wires;
  TcpReceiver receiver(greeting(), std::move(wires.nears), settings());
  std::vector<std::unique_ptr<std::byte[]>> buffers;  // of the exact size, for the sanitizer
  std::vector<Request*> requests;
  std::vector<uint8_t> filler(16 << 10, 0x33);
  while (!input.empty()) {
    const uint8_t operation = input.byte();
    switch (operation % 5) {
      case 0: {
        Receive receives[2];
        const int count = 1 + operation / 5 % 2;
        for (int i = 0; i < count; ++i) {
          const size_t room = input.byte() * 40u;
          buffers.push_back(std::make_unique<std::byte[]>(room));
          receives[i] = {buffers.back().get(), room, input.byte() % 2, nullptr};
        }
        Request* request = nullptr;
        if (receiver.receive(receives, count, request).ok() && request != nullptr)
          requests.push_back(request);
        break;
      }
      case 1: {
        Frame frame = frameOf(input);
        wires.say(operation / 5, bytesOf(frame));
        wires.say(operation / 5, std::span(filler).first(std::min<size_t>(frame.bytes, filler.size())));
        break;
      }
      case 2:
        wires.say(operation / 5, input.take(operation));
        break;
      case 3:
        if (operation % 15 == 3) wires.fars[operation / 15 % kFlows].reset();
        break;
      default:
        break;
    }
    bool done = false;
    size_t sizes[kMostGrouped];
    if (requests.empty()) continue;
    if (!receiver.test(requests.front(), done, sizes).ok()) return;
    if (done) requests.erase(requests.begin());
  }
}

void sendTo(Input& input, TcpSender& sender, Wires& wires) {
  const std::vector<std::byte> bytes(64 << 10);
  std::vector<Request*> requests;
  std::vector<uint8_t> ignored(64 << 10);
  while (!input.empty()) {
    const uint8_t operation = input.byte();
    Request* request = nullptr;
    switch (operation % 4) {
      case 0:
        if (!sender.send(bytes.data(), input.byte() * 200u, operation / 4 % 2, nullptr, request).ok()) return;
        if (request != nullptr) requests.push_back(request);
        break;
      case 1: {
        Record record;
        record.kind = static_cast<RecordKind>(1 + input.byte() % 4);
        record.tag = input.byte() % 2;
        record.count = input.number();
        for (uint64_t& bits : record.bits) bits = input.number();
        wires.say(operation / 4, bytesOf(record));
        break;
      }
      case 2:
        wires.say(operation / 4, input.take(operation));
        break;
      default:
        if (operation % 16 == 3) wires.fars[operation / 16 % kFlows].reset();
        break;
    }
    for (const FileDescriptor& far : wires.fars) {
      if (far.valid()) receiveSome(far, std::span<uint8_t>(ignored));
    }
    bool done = false;
    if (requests.empty()) continue;
    if (!sender.test(requests.front(), done).ok()) return;
    if (done) requests.erase(requests.begin());
  }
}

void sendTo(Input& input) {
  Wires wires;
  TcpSender sender(greeting(), std::move(wires.nears), settings());
  sendTo(input, sender, wires);
  for (FileDescriptor& far : wires.fars) far.reset();  // the sender would wait for them to read
}

void shake(Input& input) {
  Wires wires;
  Answerer answerer(std::move(wires.nears[0].stream));
  Hello hello = greeting();
  if (input.byte() % 2 == 0) wires.say(0, bytesOf(hello));
  std::string why;
  while (!input.empty()) {
    wires.say(0, input.take(1 + input.byte() % 80));
    const Shake state = answerer.poll(Key128{1, 2, 3}, why);
    if (state == Shake::kDone) __builtin_trap();  // nobody here knows the key
    if (state == Shake::kFailed) return;
  }
}

// What a caller makes of a listener's messages, which are of a fixed size and may say anything.
void hearAdmission(Input& input) {
  Wires wires;
  Answerer answerer(std::move(wires.nears[0].stream));
  if (!answerer.admit()) __builtin_trap();
  uint8_t seen[sizeof(Admission) + 1];
  if (receiveSome(wires.fars[0], std::span<uint8_t>(seen)).bytes != sizeof(Admission)) __builtin_trap();
  Arriving<Challenge> challenge;
  Arriving<Admission> admission;
  bool challenged = false;
  while (!input.empty()) {
    wires.say(1, input.take(1 + input.byte() % 40));
    ByteStream& stream = wires.nears[1].stream;
    const IoOutcome outcome = challenged ? admission.read(stream) : challenge.read(stream);
    if (outcome == IoOutcome::kSome && challenged) return;
    challenged = challenged || outcome == IoOutcome::kSome;
  }
}

void readHandle(Input& input) {
  Handle handle{};
  const auto bytes = input.take(handle.size());
  std::memcpy(handle.data(), bytes.data(), bytes.size());
  std::memcpy(handle.data(), &kMagic, sizeof kMagic);
  Rendezvous where;
  if (!decode(handle, where)) return;
  Rendezvous again;
  if (!decode(encode(where), again) || again.addresses != where.addresses) __builtin_trap();
}

}  // namespace
}  // namespace stretto::net::tcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stretto::net::tcp;
  if (size == 0) return 0;
  Input input(std::span(data + 1, size - 1));
  switch (data[0] % 5) {
    case 0:
      receiveFrom(input);
      break;
    case 1:
      sendTo(input);
      break;
    case 2:
      shake(input);
      break;
    case 3:
      hearAdmission(input);
      break;
    default:
      readHandle(input);
      break;
  }
  return 0;
}
