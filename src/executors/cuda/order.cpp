#include "executors/cuda/order.hpp"

#include <cuda_runtime_api.h>

#include "platform/cuda/device.hpp"

namespace stretto::executors::cuda {
namespace {

Status refused(cudaError_t error, const char* what) {
  (void)cudaGetLastError();
  return fail(Code::kSystem, "%s: CUDA says \"%s\" (%s)", what, cudaGetErrorString(error),
              cudaGetErrorName(error));
}

cudaStream_t streamOf(StreamHandle handle) {
  return static_cast<cudaStream_t>(handle);
}
cudaEvent_t eventOf(void* event) {
  return static_cast<cudaEvent_t>(event);
}

Status makeEvent(void*& event) {
  if (event != nullptr) return kOkStatus;
  cudaEvent_t made = nullptr;
  const cudaError_t error = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
  if (error != cudaSuccess) return refused(error, "an event");
  event = made;
  return kOkStatus;
}

Status wait(StreamHandle stream, void* event) {
  const cudaError_t error = cudaStreamWaitEvent(streamOf(stream), eventOf(event), 0);
  return error == cudaSuccess ? kOkStatus : refused(error, "making one stream wait for another");
}

}  // namespace

Order::~Order() {
  const platform::cuda::ScopedDevice current(device_);
  for (void* event : {eager_.event, captured_.event, joining_}) {
    if (event != nullptr && cudaEventDestroy(eventOf(event)) != cudaSuccess) (void)cudaGetLastError();
  }
}

Result<uint64_t> Order::captureOf(StreamHandle stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long number = 0;
  const cudaError_t error = cudaStreamGetCaptureInfo(streamOf(stream), &status, &number);
  if (error != cudaSuccess) return refused(error, "the stream that was given");
  if (status == cudaStreamCaptureStatusInvalidated) {
    return fail(Code::kInvalidUsage, "the stream takes part in a capture that has failed before this call");
  }
  return status == cudaStreamCaptureStatusActive ? uint64_t{number} + 1 : uint64_t{0};
}

Order::Line& Order::lineOf(uint64_t capture) {
  if (capture == 0) return eager_;
  if (captured_.capture != capture) {
    captured_.capture = capture;
    captured_.used = captured_.several = false;
  }
  return captured_;
}

Status Order::record(Line& line, StreamHandle stream) {
  STRETTO_TRY(makeEvent(line.event));
  const cudaError_t error = cudaEventRecord(eventOf(line.event), streamOf(stream));
  return error == cudaSuccess
             ? kOkStatus
             : refused(error,
                       "the stream of the operation before (it must live until the next one is called)");
}

Status Order::before(StreamHandle stream, uint64_t capture) {
  Line& line = lineOf(capture);
  if (!line.used || line.last == stream) return kOkStatus;
  if (!line.several) {
    STRETTO_TRY(record(line, line.last));
    line.several = true;
  }
  return wait(stream, line.event);
}

Status Order::after(StreamHandle stream, uint64_t capture) {
  Line& line = lineOf(capture);
  line.used = true;
  line.last = stream;
  return line.several || marksAll_ ? record(line, stream) : kOkStatus;
}

// What CUDA refuses to say anything of runs no more.
bool Order::ended() const {
  if (eager_.event == nullptr) return true;
  const platform::cuda::AmidCaptures amid;
  const platform::cuda::ScopedDevice current(device_);
  const cudaError_t error = cudaEventQuery(eventOf(eager_.event));
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error != cudaErrorNotReady;
}

Status Order::join(StreamHandle main, StreamHandle other) {
  STRETTO_TRY(makeEvent(joining_));
  const cudaError_t error = cudaEventRecord(eventOf(joining_), streamOf(other));
  if (error != cudaSuccess) return refused(error, "one of the streams of a group");
  return wait(main, joining_);
}

}  // namespace stretto::executors::cuda
