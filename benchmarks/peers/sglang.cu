// SGLang's barrier-free all-reduces in one and in two shots, pushed, as functions that Python's ctypes can
// call. The kernels are those of SGLang's wheel, which are not ours and not here: tools/gpu_peers compiles
// this against it, and python/stretto/bench/sglang_driver.py loads the result. Sums of bfloat16 between 2, 4
// or 8 GPUs, launched as SGLang launches them: as many blocks as multiprocessors, the kernel before not
// awaited until it is needed.
#include "distributed/custom_all_reduce.cuh"

#include <cstdint>

namespace {

constexpr uint32_t kVector = 16;  // bytes

}  // namespace

extern "C" {

// `workspaces`: where each rank's slots lie, two for each source, zeroed; `counters`: zeroed device memory of
// this rank's, a word for each block. Freely chosen by the caller: nothing but `slotBytes` must be the same
// everywhere.
struct SglangCall {
  void* workspaces[8];
  void* counters;
  void* input;
  void* output;
  void* stream;
  uint32_t bytes;
  uint32_t slotBytes;  // of one source: all of its bytes, or two of its shares
  int32_t rank;
  int32_t ranks;
  int32_t oneShot;
};

}  // extern "C"

namespace {

template <uint32_t kRanks>
cudaError_t launch(const SglangCall& call) {
  sglang::AllReducePushParams<kRanks> params{};
  params.input = call.input;
  params.output = call.output;
  params.num_vecs = call.bytes / kVector;
  params.rank = static_cast<uint32_t>(call.rank);
  for (uint32_t rank = 0; rank < kRanks; ++rank)
    params.ws.workspaces[rank] = static_cast<uint8_t*>(call.workspaces[rank]);
  params.ws.counter = static_cast<sglang::device::distributed::Counter*>(call.counters);
  params.ws.slot_bytes = call.slotBytes;
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);

  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<uint32_t>(processors);
  config.blockDim = sglang::choose_block_size(params.num_vecs);
  config.stream = static_cast<cudaStream_t>(call.stream);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const auto kernel = call.oneShot != 0 ? sglang::all_reduce_1shot_push_kernel<sglang::bf16_t, kRanks, true>
                                        : sglang::all_reduce_2shot_push_kernel<sglang::bf16_t, kRanks, true>;
  return cudaLaunchKernelEx(&config, kernel, params);
}

}  // namespace

// A cudaError_t.
extern "C" int sglangAllReduce(const SglangCall* call) {
  switch (call->ranks) {
    case 2:
      return launch<2>(*call);
    case 4:
      return launch<4>(*call);
    case 8:
      return launch<8>(*call);
    default:
      return cudaErrorInvalidValue;
  }
}
