// For files that nvcc would compile: its words, and the standard headers that use one of them otherwise.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "cuda_runtime_api.h"

#define __host__
#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
