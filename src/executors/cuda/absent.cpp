// A library built without CUDA: no engine can be made, so nothing else here is ever asked for anything.
#include "executors/cuda/engine.hpp"
#include "executors/cuda/order.hpp"

namespace stretto::executors::cuda {
namespace {

Status refuse() {
  return fail(Code::kInvalidUsage, "kernels on a GPU: this library was built without CUDA");
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(const Setup&) {
  return refuse();
}
Status prepareWindow(int, std::byte*, const stretto::cuda::Shape&) {
  return refuse();
}
Result<int> mostResidentBlocks(int) {
  return refuse();
}

Order::~Order() = default;
Result<uint64_t> Order::captureOf(StreamHandle) {
  return refuse();
}
Status Order::before(StreamHandle, uint64_t) {
  return refuse();
}
Status Order::after(StreamHandle, uint64_t) {
  return refuse();
}
bool Order::ended() const {
  return true;
}
Status Order::join(StreamHandle, StreamHandle) {
  return refuse();
}

}  // namespace stretto::executors::cuda
