// The two functions of NCCL's device API (nccl_device.h) that compiled programs link against whether they use
// them or not: PyTorch 2.11 has both among its undefined symbols and does not load without them. They refuse.
// What they would make is read by the caller's own kernels in NCCL's private layout, so there is nothing else
// that could be handed out.
#include "api/export.hpp"
#include "api/handles.hpp"
#include "api/pass_on.hpp"

// Only pointers to these pass here; NCCL's header defines them.
struct ncclDevComm;
struct ncclDevCommRequirements;

extern "C" {
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements* requirements,
                               ncclDevComm* made);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm* made);
ncclResult_t pncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements* requirements,
                                ncclDevComm* made);
ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const ncclDevComm* made);
}

namespace {

ncclResult_t refuse(const char* function) {
  return stretto::api::finish(stretto::fail(
      stretto::Code::kInvalidUsage,
      "%s: this library has no device API, because its objects are laid out for NCCL's own kernels; use the "
      "collectives of nccl.h, which are fast without registered memory, or NVIDIA's library",
      function));
}

}  // namespace

STRETTO_API(ncclDevCommCreate)
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements* requirements,
                               ncclDevComm* made) try {
  STRETTO_PASS_ON(ncclDevCommCreate, comm, (comm, requirements, made));
  return refuse("ncclDevCommCreate");
} catch (...) {
  return stretto::api::caught("ncclDevCommCreate");
}

STRETTO_API(ncclDevCommDestroy)
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm* made) try {
  STRETTO_PASS_ON(ncclDevCommDestroy, comm, (comm, made));
  return refuse("ncclDevCommDestroy");
} catch (...) {
  return stretto::api::caught("ncclDevCommDestroy");
}
