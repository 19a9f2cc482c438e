// How an entry point of nccl.h leaves the library. Only src/api includes this: everything else is compiled
// with hidden visibility, and cmake/exports.map closes the list.
#pragma once

#include "nccl.h"
#include "platform/export.hpp"

// Stands on a line of its own before the definition of `name`, say ncclAllReduce, and makes two symbols of
// that one body, as NCCL has them: a weak ncclAllReduce, which a tool may define itself, and pncclAllReduce,
// by which the tool calls on. Types come from nccl.h, so a definition that differs from the header does not
// compile. The pragma is for ncclResetDebugInit, which the header deprecates.
// clang-format off
#define STRETTO_API(name)                                                                           \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wdeprecated-declarations\"")    \
  extern "C" STRETTO_WEAKLY_EXPORTED decltype(::name) name;                                             \
  extern "C" STRETTO_EXPORTED [[gnu::alias(#name)]] decltype(::p##name) p##name;                       \
  _Pragma("GCC diagnostic pop")
// clang-format on
