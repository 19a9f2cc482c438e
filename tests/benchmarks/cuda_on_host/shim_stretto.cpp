// What makes shim_nccl.cpp's library Stretto's own: versions, forcing and explanations. Those are of its CPU
// ranks, and say of the machine what ranks on GPUs would hear, so that the table is one for GPUs. SHIM_GPU is
// its name.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "../../../benchmarks/cuda/library.hpp"

const stretto::bench::Library& real();
extern std::function<Work(ncclComm_t)> forcedNow;

#define SHIM extern "C" __attribute__((visibility("default")))

SHIM const char* strettoVersion() {
  return real().version();
}

namespace {

std::mutex mutex;
std::map<ncclComm_t, std::function<ncclResult_t()>> forced;

// A graph holds what was planned when it was recorded.
const bool recalls = [] {
  forcedNow = [](ncclComm_t comm) -> Work {
    const std::lock_guard lock(mutex);
    return [again = forced[comm]] {
      if (again) again();
    };
  };
  return true;
}();

}  // namespace

SHIM ncclResult_t strettoCommForce(ncclComm_t comm, const char* collective, const char* algorithm,
                                   const char* protocol, size_t chunkBytes, int blocks) {
  const auto text = [](const char* words) { return std::string(words == nullptr ? "" : words); };
  const auto again = [=, c = text(collective), a = text(algorithm), p = text(protocol)] {
    return real().commForce(comm, c.c_str(), a.empty() ? nullptr : a.c_str(), p.empty() ? nullptr : p.c_str(),
                            chunkBytes, blocks);
  };
  const std::lock_guard lock(mutex);
  forced[comm] = again;
  return recalls ? again() : ncclInternalError;
}

SHIM ncclResult_t strettoExplain(ncclComm_t comm, const strettoQuestion_t* question, char* json,
                                 size_t capacity, size_t* needed) {
  std::string text(65536, ' ');
  size_t length = 0;
  const ncclResult_t result = real().explain(comm, question, text.data(), text.size(), &length);
  if (result != ncclSuccess || length == 0 || length > text.size()) return result;
  text.resize(length);
  const std::string machine = "\"machine\":{";
  const char* const gpu = getenv("SHIM_GPU");
  text.insert(text.find(machine) + machine.size(),
              std::string("\"gpu\":\"") + (gpu == nullptr ? "no GPU at all" : gpu) +
                  "\",\"links\":\"nvlink\",\"lanes\":2,\"run_lanes\":2,\"deep_lanes\":1,");
  *needed = text.size();
  std::memcpy(json, text.data(), std::min(capacity, text.size()));
  return ncclSuccess;
}
