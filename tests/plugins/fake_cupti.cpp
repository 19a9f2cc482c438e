// libcupti's two functions for correlation ids, for chain_test.cpp: counts pushes, keeps the last id, counts
// pops.
#include <cstdint>

extern "C" {
__attribute__((visibility("default"))) uint64_t fakeCuptiCalls[3] = {};

__attribute__((visibility("default"))) int cuptiActivityPushExternalCorrelationId(int, uint64_t id) {
  ++fakeCuptiCalls[0];
  fakeCuptiCalls[1] = id;
  return 0;
}
__attribute__((visibility("default"))) int cuptiActivityPopExternalCorrelationId(int, uint64_t* last) {
  ++fakeCuptiCalls[2];
  *last = fakeCuptiCalls[1];
  return 0;
}
}
