#include "harness/device.hpp"

#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>

namespace stretto::testing {
namespace {

void must(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

class CudaDevice final : public OnDevice {
 public:
  explicit CudaDevice(int rank) {
    int devices = 0;
    must(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    must(cudaSetDevice(rank % devices), "cudaSetDevice");
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
    must(cudaStreamCreateWithFlags(&second_, cudaStreamNonBlocking), "a stream");
    void* memory = nullptr;
    must(cudaMalloc(&memory, 2 * kPlaceBytes), "memory");
    memory_ = static_cast<char*>(memory);
  }
  // Memory and streams go with the process, which has these ranks alone. cudaFree would wait for the kernel
  // of another rank on the same GPU, which may wait for this one, and hold up all calls that could end it.
  ~CudaDevice() override = default;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  cudaStream_t stream() const override { return stream_; }
  cudaStream_t secondStream() const override { return second_; }
  char* at(int place, const char* host) const override {
    constexpr uintptr_t kLine = 128;
    return memory_ + static_cast<size_t>(place) * kPlaceBytes + reinterpret_cast<uintptr_t>(host) % kLine;
  }
  void upload(char* device, const char* host, size_t bytes) override {
    must(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_), "a copy to the device");
    synchronize();
  }
  void download(char* host, const char* device, size_t bytes) override {
    must(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_), "a copy from the device");
    synchronize();
  }
  void synchronize() override {
    must(cudaStreamSynchronize(stream_), "a stream");
    must(cudaStreamSynchronize(second_), "a stream");
  }
  bool inGraph(const std::function<bool()>& enqueue, int times, const std::function<bool()>& ready) override {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "the begin of a capture");
    const bool enqueued = enqueue();
    must(cudaStreamEndCapture(stream_, &graph), "the end of a capture");
    must(cudaGraphInstantiate(&executable, graph, 0), "a graph");
    must(cudaGraphUpload(executable, stream_), "a graph's upload");
    synchronize();
    bool fine = enqueued && ready();
    for (int run = 0; fine && run < times; ++run) must(cudaGraphLaunch(executable, stream_), "a graph's run");
    synchronize();
    fine = fine && ready();
    must(cudaGraphExecDestroy(executable), "a graph's end");
    must(cudaGraphDestroy(graph), "a graph's end");
    return fine;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaStream_t second_ = nullptr;
  char* memory_ = nullptr;
};

int askChild() {
  fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    int devices = 0;
    ::_exit(cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0);
  }
  int status = 0;
  const bool answered = pid > 0 && ::waitpid(pid, &status, 0) == pid && WIFEXITED(status);
  return answered ? WEXITSTATUS(status) : 0;
}

}  // namespace

int devicesThere() {
  static const int there = askChild();
  return there;
}

std::shared_ptr<OnDevice> OnDevice::make(int rank) {
  return std::make_shared<CudaDevice>(rank);
}

}  // namespace stretto::testing
