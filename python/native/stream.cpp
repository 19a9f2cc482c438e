#include <utility>

#include "communicator.hpp"
#include "errors.hpp"

namespace stretto::python {

Stream::Stream() {
  check(strettoStreamCreate(&stream_));
}

Stream::Stream(uintptr_t cuda) : borrowed_(true), stream_(reinterpret_cast<cudaStream_t>(cuda)) {}

Stream::~Stream() {
  if (stream_ == nullptr || borrowed_ || inherited()) return;
  nb::gil_scoped_release released;
  strettoStreamDestroy(stream_);
}

cudaStream_t Stream::handle() const {
  owner_.expectHere("stream");
  if (stream_ == nullptr && !borrowed_) refuse(ncclInvalidUsage, "the stream is closed");
  return stream_;
}

cudaStream_t Stream::own() const {
  if (borrowed_) refuse(ncclInvalidUsage, "a CUDA stream is waited for and closed by whom it belongs to");
  return handle();
}

void Stream::synchronize() {
  const cudaStream_t stream = own();
  ncclResult_t result;
  {
    nb::gil_scoped_release released;
    result = strettoStreamSynchronize(stream);
  }
  kept_.clear();
  check(result);
}

bool Stream::idle() {
  const ncclResult_t result = strettoStreamQuery(own());
  if (result == ncclInProgress) return false;
  kept_.clear();
  check(result);
  return true;
}

void Stream::close() {
  if (stream_ == nullptr && !borrowed_) return;
  const cudaStream_t stream = own();
  stream_ = nullptr;
  ncclResult_t result;
  {
    nb::gil_scoped_release released;
    result = strettoStreamDestroy(stream);
  }
  kept_.clear();
  check(result);
}

void Stream::keep(std::vector<Array> arrays) {
  if (borrowed_) return;
  // Arrays of finished operations go as new ones come, so a stream that is never synchronized does not grow
  // for ever.
  if (kept_.size() >= 64 && strettoStreamQuery(stream_) == ncclSuccess) kept_.clear();
  for (Array& array : arrays) kept_.push_back(std::move(array));
}

}  // namespace stretto::python
