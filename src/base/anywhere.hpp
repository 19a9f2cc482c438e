// Marks functions that run on the host and, in a compiler for CUDA, on the device as well: algorithms, and
// the small arithmetic under them. What is constexpr needs no mark.
#pragma once

#ifdef __CUDACC__
#define STRETTO_ANYWHERE __host__ __device__
#else
#define STRETTO_ANYWHERE
#endif
