// What the tables of libnccl-net-stretto.so do, of whichever version: NCCL's calls on net/tcp. Results are
// NCCL's. Objects of NCCL's (a listener, a connection, a request) are pointers to ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "net/net.hpp"
#include "net/plugin/abi.hpp"

namespace stretto::net::exported {

inline constexpr const char* kName = "Stretto";

// Counted: NCCL calls both for every communicator from version 11 on, and init alone, once, before.
int init();
int finalize(void* context);

int devices(int* count);
int properties(int device, Properties& properties);
// A copy of a text that lives as long as the process.
char* keep(const std::string& text);

int listen(int device, void* handle, void** listener);
int connect(int device, void* handle, void** sender);
int accept(void* listener, void** receiver);
int regMr(void* connection, void* data, size_t bytes, int pointer, void** memory);
int regMrDmaBuf(void* connection, void* data, size_t bytes, int pointer, uint64_t offset, int fd,
                void** memory);
int deregMr(void* connection, void* memory);
int isend(void* sender, void* data, size_t bytes, int tag, void* memory, void* profiled, void** request);
int irecv(void* receiver, int count, void** data, size_t* bytes, int* tags, void** memories, void** profiled,
          void** request);
int iflush(void* receiver, int count, void** data, int* bytes, void** memories, void** request);
int test(void* request, int* done, int* bytes);
int closeSend(void* sender);
int closeRecv(void* receiver);
int closeListen(void* listener);

}  // namespace stretto::net::exported
