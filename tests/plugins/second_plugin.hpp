// What the second plugin of chain_test.cpp was called with, read through its function secondPluginLog().
#pragma once

#include <cstdint>

namespace stretto::testing {

struct SecondPluginLog {
  static constexpr int kMost = 4096;
  struct Start {
    uint64_t type;
    void* context;
    void* handle;
    void* parent;
    void* parentGroup;
  };

  bool refuse = false;  // set before init: it answers with an error
  int mask = 2;         // set before init: what it asks for
  int abi = 0;
  int inits = 0;
  int starts = 0;
  int stops = 0;
  int states = 0;
  Start started[kMost] = {};
  void* stopped[kMost] = {};
  void* lastState = nullptr;
  void* finalized = nullptr;
};

}  // namespace stretto::testing
