// The baseline level: what every CPU of the architecture has (SSE2 on x86-64, NEON on aarch64).
#include "primitives/host/reduce_kernels.hpp"

namespace stretto {

#if defined(__aarch64__)
constinit const CpuLevel kLevelBaseline = makeLevel("neon");
#else
constinit const CpuLevel kLevelBaseline = makeLevel("scalar");
#endif

}  // namespace stretto
