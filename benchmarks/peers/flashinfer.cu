// All-reduces of other people's inference servers, as C functions: vLLM's custom all-reduce and
// TensorRT-LLM's one-shot (Lamport) and two-shot, the latter also with residual add and RMSNorm. The kernels
// and the choice of their grids are those of FlashInfer's headers, which are not ours and not here:
// tools/gpu_peers compiles this against an unpacked wheel of flashinfer-python.
// python/stretto/bench/flashinfer_driver.py loads the result, and benchmarks/cuda/norm_driver.cu for
// trtllmFused. Sums of bfloat16 between 2, 4 or 8 GPUs, the only case that is measured.
#include <flashinfer/comm/trtllm_allreduce_fusion.cuh>
#include <flashinfer/comm/vllm_custom_all_reduce.cuh>

#include <cstdint>
#include <exception>
#include <string>

#include "fused_call.hpp"

namespace {

namespace fusion = flashinfer::trtllm_allreduce_fusion;

// Of this thread's last call that failed.
std::string& mistake() {
  thread_local std::string text;
  return text;
}

// 0, or 1 and a text for peerMistake.
template <class Function>
int answered(Function function) {
  try {
    if (const cudaError_t status = function(); status != cudaSuccess)
      throw std::runtime_error(cudaGetErrorString(status));
    return 0;
  } catch (const std::exception& error) {
    mistake() = error.what();
    return 1;
  }
}

using Params = fusion::AllReduceFusionParams<__nv_bfloat16>;
using Pattern = fusion::AllReduceFusionPattern;

template <Pattern kPattern, int kRanks>
cudaError_t launchFusion(const Params& params) {
  constexpr bool kPdl = true, kFloatSums = true;
  return fusion::allreduce_fusion_kernel_launcher<kPattern, __nv_bfloat16, kRanks, kFloatSums>(params, kPdl);
}

template <Pattern kPattern>
cudaError_t launchFor(Params& params) {
  params.pattern = kPattern;
  if (params.nranks == 2) return launchFusion<kPattern, 2>(params);
  if (params.nranks == 4) return launchFusion<kPattern, 4>(params);
  if (params.nranks == 8) return launchFusion<kPattern, 8>(params);
  throw std::runtime_error("TensorRT-LLM's kernels are for 2, 4 or 8 ranks");
}

// With an 8-bit copy there is a pattern for each kind of scale, and one more without the 16-bit tokens. Of a
// tensor's scale that one is not measured.
cudaError_t launchFused(const TrtllmFusedCall& call, Params& params) {
  if (call.scale == kTrtllmNoScale) return launchFor<Pattern::kARResidualRMSNorm>(params);
  if (call.scale == kTrtllmScaleOfTensor) return launchFor<Pattern::kARResidualRMSNormOutFP8Quant>(params);
  if (call.normalised == nullptr) return launchFor<Pattern::kARResidualRMSNormDynamicFP8Quant>(params);
  return launchFor<Pattern::kARResidualRMSNormOutDynamicFP8Quant>(params);
}

}  // namespace

extern "C" {

const char* peerMistake() {
  return mistake().c_str();
}

// Bytes of a rank's signals, which lie in memory that all ranks see; zeroed.
size_t vllmSignalBytes() {
  return sizeof(vllm::Signal);
}

// `signals` by rank; `table` is plain device memory for the peers' addresses, a row for each recorded call.
void* vllmOpen(void** signals, void* table, size_t tableBytes, int rank, int ranks) {
  return new vllm::CustomAllreduce(reinterpret_cast<vllm::Signal**>(signals), table, tableBytes, rank, ranks,
                                   true);
}

// Where each rank's input lies; once for calls outside of graphs.
int vllmRegister(void* handle, void** inputs) {
  return answered([=] {
    static_cast<vllm::CustomAllreduce*>(handle)->register_buffer(inputs);
    return cudaSuccess;
  });
}

int vllmAllReduce(void* handle, void* input, void* output, int count, void* stream) {
  return answered([=] {
    static_cast<vllm::CustomAllreduce*>(handle)->allreduce(
        static_cast<cudaStream_t>(stream), static_cast<__nv_bfloat16*>(input),
        static_cast<__nv_bfloat16*>(output), count, vllm::kMaxBlocks);
    return cudaGetLastError();
  });
}

// What register_graph_buffers does after a capture, where the peers' addresses are known without IPC handles.
int vllmCaptured(void* handle, void** inputs) {
  return answered([=] {
    auto& own = *static_cast<vllm::CustomAllreduce*>(handle);
    const size_t calls = own.graph_unreg_buffers_.size();
    own.check_rank_data_capacity(calls);
    vllm::RankData row{};
    for (int rank = 0; rank < own.world_size_; ++rank) row.ptrs[rank] = inputs[rank];
    const std::vector<vllm::RankData> rows(calls, row);
    const cudaError_t status =
        cudaMemcpy(own.d_rank_data_base_, rows.data(), calls * sizeof(row), cudaMemcpyHostToDevice);
    own.d_rank_data_base_ += calls;
    own.graph_unreg_buffers_.clear();
    return status;
  });
}

// Takes the rows back that recorded calls used, once no graph refers to them.
void vllmForget(void* handle, void* table) {
  auto& own = *static_cast<vllm::CustomAllreduce*>(handle);
  own.d_rank_data_base_ = static_cast<vllm::RankData*>(table);
  own.buffers_.clear();
}

// A call of TensorRT-LLM's. `workspace` as FlashInfer lays it out: device memory that holds, for each rank,
// where its buffer for two shots, its flags and its three buffers for one shot lie, and then where this
// rank's five counters do.
struct TrtllmCall {
  void* workspace;
  void* input;
  void* output;
  void* stream;
  int32_t rank;
  int32_t ranks;
  int32_t count;
  int32_t hidden;  // elements of a token
  int32_t oneShot;
};

int trtllmAllReduce(const TrtllmCall* call) {
  return answered([=] {
    Params params{};
    params.nranks = call->ranks;
    params.rank = call->rank;
    params.size = call->count;
    params.hidden_dim = call->hidden;
    params.workspace = static_cast<void**>(call->workspace);
    params.allreduce_in = call->input;
    params.allreduce_out = call->output;
    params.use_oneshot = call->oneShot != 0;
    params.trigger_completion_at_end = true;  // FlashInfer's default
    params.stream = static_cast<cudaStream_t>(call->stream);
    return launchFor<Pattern::kAllReduce>(params);
  });
}

int trtllmFused(const TrtllmFusedCall* call) {
  return answered([=] {
    if (call->size != sizeof *call)
      throw std::runtime_error("the caller was built with another benchmarks/peers/fused_call.hpp");
    if (call->normalised == nullptr && call->scale != kTrtllmScaleOfToken)
      throw std::runtime_error("without normalised tokens only a scale of each token is measured");
    // This library has a CUDA runtime of its own, which knows nothing of the caller's choice.
    if (const cudaError_t status = cudaSetDevice(call->device); status != cudaSuccess) return status;
    Params params{};
    params.nranks = call->ranks;
    params.rank = call->rank;
    params.size = call->tokens * call->hidden;
    params.hidden_dim = call->hidden;
    params.workspace = static_cast<void**>(call->workspace);
    params.allreduce_in = call->input;
    params.residual_in = params.residual_out = call->residual;
    params.norm_out = call->normalised;
    params.quant_out = call->codes;
    if (call->scale == kTrtllmScaleOfTensor) params.scale_factor = call->scales;
    if (call->scale == kTrtllmScaleOfToken) params.scale_out = call->scales;
    params.rms_gamma = call->gamma;
    params.rms_eps = call->epsilon;
    params.use_oneshot = call->oneShot != 0;
    params.trigger_completion_at_end = call->early == 0;
    params.stream = static_cast<cudaStream_t>(call->stream);
    return launchFused(*call, params);
  });
}

}  // extern "C"
