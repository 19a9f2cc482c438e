// Requests, machines and tables that the planner's tests share.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <initializer_list>
#include <string>

#include "base/version.hpp"
#include "planner/choose.hpp"
#include "planner/model.hpp"

namespace stretto::testing {

inline planner::Machine exampleMachine(int cores = 8) {
  planner::Machine machine;
  machine.cores = cores;
  machine.slotBytes = size_t{1} << 20;
  machine.linkChunk = size_t{128} << 10;
  machine.cacheBytes = size_t{100} << 20;
  return machine;
}

// Of two hosts with two ranks each.
inline planner::Machine exampleHosts(int cores = 8) {
  planner::Machine machine = exampleMachine(cores);
  machine.hosts = machine.perHost = 2;
  machine.nearChunk = machine.linkChunk;
  machine.farChunk = size_t{512} << 10;
  return machine;
}

inline planner::Machine gpuMachine(const char* gpu = "NVIDIA H200") {
  planner::Machine machine;
  machine.gpu = true;
  machine.cores = 1;  // of the host; what it has does not matter here
  snprintf(machine.gpus.name, sizeof machine.gpus.name, "%s", gpu);
  machine.gpus.links = planner::Links::kNvlink;
  machine.channels = machine.warpChunkChannels = 128;
  machine.deepChannels = 64;
  machine.slotBytes = 4096;
  machine.linkChunk = 8192;
  machine.lineBytes = 2048;
  machine.ll128Bytes = 17280;
  machine.lamportBytes = size_t{33} << 10;
  machine.warpChunkBytes = 4096;
  return machine;
}

inline planner::Request exampleRequest(Collective collective, size_t bytes, int ranks) {
  planner::Request request;
  request.collective = collective;
  request.bytes = bytes;
  request.ranks = ranks;
  return request;
}

inline planner::Forced forcedTo(const char* collective, const char* algorithm, const char* protocol = "",
                                size_t chunk = 0) {
  planner::Forced forced;
  EXPECT_TRUE(forced.force(collective, algorithm, protocol, chunk, 0).ok()) << lastError();
  return forced;
}

inline std::string rowText(unsigned long long bytes, const char* algorithm, const char* protocol,
                           const char* rest = "\"chunk_bytes\": 0, \"us\": 1.5") {
  return "{\"bytes\": " + std::to_string(bytes) + ", \"algorithm\": \"" + algorithm + "\", \"protocol\": \"" +
         protocol + "\", " + rest + "}";
}

inline std::string entryText(const std::string& rows, const char* collective = "all_reduce",
                             const char* rest =
                                 "\"ranks\": 4, \"cores\": 8, \"same_process\": false, "
                                 "\"reach\": false") {
  return std::string("{\"collective\": \"") + collective + "\", " + rest + ", \"rows\": [" + rows + "]}";
}

// What a table of GPUs is measured for.
struct GpuCase {
  const char* gpu = "NVIDIA H200";
  const char* links = "nvlink";
  int ranks = 2;
  bool sameProcess = false;
  const char* reduction = "float_sums";
  const char* version = kLibraryVersion;
};

inline std::string gpuEntry(const std::string& rows, const GpuCase& c = {},
                            const char* collective = "all_reduce") {
  const std::string rest = "\"ranks\": " + std::to_string(c.ranks) +
                           ", \"same_process\": " + (c.sameProcess ? "true" : "false") + ", \"gpu\": \"" +
                           c.gpu + "\", \"links\": \"" + c.links + "\", \"reduction\": \"" + c.reduction +
                           "\", \"version\": \"" + c.version + "\"";
  return entryText(rows, collective, rest.c_str());
}

inline std::string tableText(const std::string& entries) {
  return "{\"schema\": \"stretto.table/1\", \"machine\": {}, \"entries\": [" + entries + "]}";
}

// Adds to a list with commas.
inline void append(std::string& list, const std::string& item) {
  if (!list.empty()) list.push_back(',');
  list.append(item);
}

inline planner::Table tableOf(const std::string& entries) {
  auto table = planner::Table::parse(tableText(entries));
  return table.ok() ? std::move(table.value()) : planner::Table();
}

}  // namespace stretto::testing
