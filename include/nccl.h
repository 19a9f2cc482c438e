/*
 * nccl.h: the C interface of Stretto, compatible in source and in binary with NCCL 2.32.3.
 *
 * Include it from C (C99 and up) or C++ and link libstretto.so, or libnccl.so.2, which is the same library
 * under the name that existing programs look for. Names, values, layouts and signatures are NCCL's and
 * tests/abi holds them to it; the words are ours. Programs built against an older header, from 2.19 on, keep
 * working: structs only grow at their end and say how large their caller's is. What NCCL has no name for is
 * in stretto.h.
 *
 * With the CUDA headers on the include path this file includes them, as programs written for NCCL expect.
 * Without them it declares the two types that it needs, and the binary interface is the same either way.
 *
 * Words. A rank is one participant, numbered 0 to nranks-1. A communicator is one rank's handle on a fixed
 * set of ranks. A device is a GPU, or the CPU where there is none.
 *
 * Units. A count is a number of elements of `datatype`; a size is a number of bytes. Buffers need the
 * alignment of one element and no more. A count of 0 is valid and moves nothing, but every rank must still
 * make the call.
 *
 * Ownership. Buffers belong to the caller and stay in use until the stream has passed the operation. A handle
 * belongs to the library and dies with the call that destroys it. Strings that are returned belong to the
 * library.
 *
 * Order. Ranks of one communicator make the same collective calls, in the same order, with the same type,
 * operator, root and count. Where they differ, each gets ncclInvalidUsage with both sides named, instead of
 * waiting for ever.
 *
 * Streams. A call enqueues its operation and returns; the work happens in the stream's order. On a GPU the
 * stream is a CUDA stream of the communicator's device, 0 the legacy default stream, and calls may be
 * captured into graphs. Operations of one communicator never overlap: when they name different streams, each
 * waits for the one before (the stream of which must still exist). Captured work can only wait for work of
 * the same capture, so whoever runs graphs and calls of one communicator on different streams, or two of its
 * graphs, orders them; one stream does. On host memory a stream of 0 means that the call returns when its
 * operation is done; stretto.h makes host streams for the rest.
 *
 * Threads. Different communicators may be used from different threads at once. One communicator takes one
 * call at a time; the caller serialises, except that ncclCommAbort, ncclCommRevoke, ncclCommGetAsyncError and
 * ncclGetLastError may be called from any thread while another call is running. Calls that several threads
 * make at the same moment in spite of that run one after the other, in no particular order.
 *
 * Errors. Every function that returns ncclResult_t can return ncclInvalidArgument for a null pointer, an
 * unknown handle or a value out of its range, and ncclSystemError or ncclUnhandledCudaError when what lies
 * below refuses; ncclGetLastError then says what failed, where, and what to do. Below, only what is
 * particular is listed.
 */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(__has_include)
/* A compiler that cannot ask is taken to have CUDA, as NCCL's own header takes it. */
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#elif __has_include(<cuda_runtime.h>)
#include <cuda_runtime.h>
#if __has_include(<cuda_fp16.h>)
#include <cuda_fp16.h>
#endif
#if __has_include(<cuda_bf16.h>)
#include <cuda_bf16.h>
#endif
#if defined(__cplusplus) && __has_include(<cuda_fp8.h>)
#include <cuda_fp8.h>
#endif
#else
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUstream_st* cudaStream_t;
#endif

/* The release of the interface that this header speaks. The code is what ncclGetVersion reports. */
#define NCCL_MAJOR 2
#define NCCL_MINOR 32
#define NCCL_PATCH 3
#define NCCL_SUFFIX ""
#define NCCL_VERSION_CODE 23203
/* Two digits per part since 2.9; one digit for the minor number before. */
#define NCCL_VERSION(X, Y, Z) (((X) <= 2 && (Y) <= 8) ? (X)*1000 + (Y)*100 + (Z) : (X)*10000 + (Y)*100 + (Z))

#ifdef __cplusplus
extern "C" {
#endif

/* --- Handles and values --- */

/* One rank's communicator; opaque. */
typedef struct ncclComm* ncclComm_t;
#define NCCL_COMM_NULL NULL

/* A buffer that all ranks have registered together; opaque. */
typedef struct ncclWindow_vidmem* ncclWindow_t;

/* Names a communicator before it exists: one rank makes it, the program hands it to the others by its own
 * means. It carries an address and a secret, so treat it as a password for the job. */
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,            /* done, or enqueued */
  ncclUnhandledCudaError = 1, /* a CUDA call failed */
  ncclSystemError = 2,        /* the operating system or the network refused */
  ncclInternalError = 3,      /* a mistake of the library */
  ncclInvalidArgument = 4,    /* one argument is wrong by itself */
  ncclInvalidUsage = 5,       /* the call is wrong here: out of order, unsupported, or the ranks disagree */
  ncclRemoteError = 6,        /* a peer died, aborted or cannot be reached */
  ncclInProgress = 7,         /* non-blocking communicator: not finished, ask ncclCommGetAsyncError again */
  ncclTimeout = 8,   /* not returned: a wait past its deadline is ncclRemoteError, known since 2.19 */
  ncclNumResults = 9 /* how many there are */
} ncclResult_t;

/* Color for ncclCommSplit: this rank joins none of the new communicators. */
#define NCCL_SPLIT_NOCOLOR -1

/* winFlags of ncclCommWindowRegister. COLL_SYMMETRIC promises that every rank passes the same offset into its
 * window to each collective, and that what one rank has in windows, or in place, all have. */
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
/* Bits for networks and for multicast, neither of which windows have here: ncclCommWindowRegister refuses
 * GIN_ONLY and CFT_COUNTED, and takes STRICT_ORDERING, which shared memory gives anyway. */
#define NCCL_WIN_STRICT_ORDERING 0x02
#define NCCL_WIN_GIN_ONLY 0x04
#define NCCL_WIN_CFT_COUNTED 0x08
/* The address of a window's buffer is a multiple of this many bytes. */
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

/* CTAPolicy in ncclConfig_t: bits that say how many of the GPU's multiprocessors an operation may take.
 * EFFICIENCY trades a little speed for fewer of them; ZERO asks for none, by copy engines, where that is
 * possible. */
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

/* shrinkFlags of ncclCommShrink: the parent is idle, or the parent's running operations are aborted first. */
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01

/* revokeFlags of ncclCommRevoke: no bits exist yet. */
#define NCCL_REVOKE_DEFAULT 0x00

/* flags of ncclCommSuspend: give back memory that can be had again. */
#define NCCL_SUSPEND_MEM 0x01

#include "stretto_nccl_config.h"

/* Exists only to give ncclRedOp_t a size before ncclRedOp_t is defined. */
typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;

/* How elements are combined: in an order that does not depend on timing, and every rank gets the same bits.
 *
 * Sums, averages and products of 16- and 8-bit floats are accumulated in fp32, in the order of the ranks, and
 * rounded once, with one exception: ncclReduce of more than 1 KB among three ranks or more in host memory may
 * go along a chain or a tree, where each rank on the way rounds what it passes on. So do the rings, trees and
 * chains that nothing but STRETTO_ALGO, or a table in STRETTO_TABLE, chooses for other operations. With
 * STRETTO_DETERMINISTIC=1 there are none of these: all is the fp32 fold in the order of the ranks. A
 * communicator that was handed over to NCCL has NCCL's arithmetic.
 *
 * The maximum and the minimum are NaN where any rank has a NaN, for every type of float, on CPUs and GPUs: a
 * NaN is never hidden, and -0 is below +0, so that neither depends on an order. (NCCL takes the number where
 * the other operand is a NaN.) */
typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,    /* NaN if any operand is one */
  ncclMin = 3,    /* the same */
  ncclAvg = 4,    /* the sum divided by the number of ranks; rounds toward zero for integers */
  ncclNumOps = 5, /* first value of an operator made by ncclRedOpCreate... */
  /* Last such value. It fills a signed value of this enum's size, so that the enum can never change size. */
  ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

typedef enum {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6, /* IEEE binary16 */
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,    /* the upper half of a binary32 */
  ncclFloat8e4m3 = 10, /* 4 bits of exponent, no infinity (E4M3FN) */
  ncclFloat8e5m2 = 11, /* 5 bits of exponent, with infinities */
  ncclNumTypes = 12
} ncclDataType_t;

/* Where the scalar of an operator lives, and so when it is read. */
typedef enum {
  ncclScalarDevice = 0,       /* in memory that the device reads while each operation runs */
  ncclScalarHostImmediate = 1 /* in host memory, read before the creating call returns */
} ncclScalarResidence_t;

/* --- The library --- */

/* Stores NCCL_VERSION_CODE of the interface that is served. */
ncclResult_t ncclGetVersion(int* version);

/* One sentence for a result; never null, valid for ever, also for values that are none of the enum's. */
const char* ncclGetErrorString(ncclResult_t result);

/* What the last failure was, in words: operation, rank, peer, likely cause, next step. With a communicator it
 * is that communicator's, with null the calling thread's; empty if nothing failed. Valid until the next
 * failure. */
const char* ncclGetLastError(ncclComm_t comm);

/* Reads NCCL_DEBUG and its companions again. Kept for old programs. */
__attribute__((deprecated("ncclResetDebugInit is kept for old programs only"))) void ncclResetDebugInit(void);

/* Allocates at least `size` bytes that every kind of operation can use without copying: device memory on a
 * GPU, page-aligned host memory otherwise. The caller frees it, with ncclMemFree and nothing else. */
ncclResult_t ncclMemAlloc(void** ptr, size_t size);
/* Frees memory from ncclMemAlloc; null does nothing. No operation and no other work of a GPU may still use
 * it: unlike cudaFree it does not wait. Processes of peers that read host memory in place let go of it at
 * once where they are idle, and at the end of the operation that runs there otherwise. Each rank of a
 * communicator keeps at most 4 GiB mapped of what it could not be told of. */
ncclResult_t ncclMemFree(void* ptr);

/* --- Making a communicator --- */

/* Makes a name for one new communicator and starts listening for its ranks in this process, which must live
 * until they have all joined. */
ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId);

/* Joins as `rank` of `nranks`, on the calling thread's current device. Returns when every rank has joined, so
 * each rank needs a thread or process of its own, or a group around the calls. A rank that does not come
 * within STRETTO_INIT_TIMEOUT is ncclRemoteError and named. */
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);

/* The same, configured; a null config is all defaults. Non-blocking: *comm is valid at once, to be asked with
 * ncclCommGetAsyncError until it says ncclSuccess. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config);

/* The same with several names, so that no single rank has to answer all others: `commIds` holds nId of them,
 * 1 to nranks, in the same order on every rank. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId* commIds, ncclConfig_t* config);

/* Makes all ndev communicators of one process in one call. `comm` has room for ndev handles; comm[i] is rank
 * i, on device devlist[i], or on device i if devlist is null. */
ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist);

/* Makes one new communicator per color among the ranks of `comm`; all of them call. Ranks are ordered by key,
 * ties by their old rank. NCCL_SPLIT_NOCOLOR gets NCCL_COMM_NULL. A null config takes the parent's. A group
 * may hold several splits of one communicator: they are made in the order of the calls. Non-blocking:
 * *newcomm is valid at once, and ncclCommCount and its like are ncclInProgress until its ranks have found
 * each other. The death of a rank that is to be in the new communicator, and an abort of `comm`, end the
 * making. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config);

/* Makes a communicator of the ranks that are not in the list; only they call. They keep their order and are
 * numbered without gaps. NCCL_SHRINK_ABORT serves after a failure: the excluded may be dead and operations
 * unfinished. */
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                            ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags);

/* Makes a name for the communicator that ncclCommGrow is to make of `comm`: one rank of it does, and hands
 * the name to the ranks that join by its own means. Good for one growth. */
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* uniqueId);

/* Makes a communicator of nRanks ranks: those of `comm`, which keep their numbers and call with rank -1, and
 * new ones, which call with a null `comm` and the name and number (from the old count on) that they were
 * given. The rank of `comm` that has made the name passes it; the others pass null. `comm` stays as it is, to
 * be used or destroyed. */
ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank,
                          ncclComm_t* newcomm, ncclConfig_t* config);

/* --- Ending one --- */

/* Announces that no more operations come, and waits (non-blocking: starts to wait) until those of this rank
 * are done. Only ncclCommGetAsyncError, ncclCommDestroy and ncclCommAbort may follow; every other call is
 * ncclInvalidUsage, from the moment that this one is made. */
ncclResult_t ncclCommFinalize(ncclComm_t comm);

/* Frees the communicator; finalizes first if the caller has not. The handle is invalid from here. */
ncclResult_t ncclCommDestroy(ncclComm_t comm);

/* Stops what is running, whatever the peers do, and frees the communicator, in under a second. Buffers of
 * unfinished operations hold anything, and are the caller's again once the abort has returned: it waits for
 * peers that still read them. Any thread may call it; a call that waits meanwhile in another thread, the
 * making of a child included, then fails. In a forked child it does nothing and returns ncclInvalidUsage, as
 * every call on a communicator of the parent process does. */
ncclResult_t ncclCommAbort(ncclComm_t comm);

/* Stops what is running but keeps the handle for split, shrink, destroy and abort. revokeFlags must be
 * NCCL_REVOKE_DEFAULT. ncclCommFinalize afterwards is ncclInvalidUsage. */
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags);

/* --- Asking one --- */

/* Stores the communicator's own state: ncclSuccess, ncclInProgress, or what befell it. Never waits. On GPUs
 * the results of operations that a stream has passed are right if this says ncclSuccess afterwards. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);

/* The number of ranks; the device's number; the caller's rank. */
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);

/* What the communicator holds of its device's memory, in bytes: of the host's, where that is a CPU. */
typedef enum {
  ncclStatGpuMemSuspend = 0,   /* that ncclCommSuspend can give back */
  ncclStatGpuMemSuspended = 1, /* no size: 1 while it is given back, else 0 */
  ncclStatGpuMemPersist = 2,   /* that stays until the communicator ends */
  ncclStatGpuMemTotal = 3      /* both together */
} ncclCommMemStat_t;
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value);

/* Gives back what `flags` (NCCL_SUSPEND_MEM) says until ncclCommResume; no operation may come between. Every
 * rank calls either, and nothing runs. */
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);

/* --- Registering memory --- */

/* Tells the library that operations will use these `size` bytes again and again. Local: no other rank takes
 * part. Never needed to be fast. The caller keeps the memory and deregisters it before freeing it. */
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle);

/* Registers one buffer per rank, of the same size, as a window that the peers may address. Collective: all
 * ranks call; inside a group it is done at its end. With NCCL_WIN_COLL_SYMMETRIC, peers may put into it,
 * in host memory best into memory of ncclMemAlloc, and between GPUs copy engines may write results of large
 * collectives straight into it. If some GPU's buffer cannot be reached by every other (memory of cudaMalloc
 * and ncclMemAlloc can, and mapped memory that was made with a POSIX file descriptor, such as expandable
 * segments) it is registered and not used: collectives work as without, puts are ncclInvalidUsage. At most
 * 256 windows of one communicator at a time. Deregistering is local. Before it, operations on the window are
 * done on all ranks, and graphs that hold one do not run again. After an error or an abort, write to the
 * memory and free it when the communicators of all ranks have ended: copies of peers that were enqueued may
 * still come, and kernels of theirs may still read. When a rank does not come in time, the others get an
 * error, and the communicator exchanges nothing any more: abort it and make another. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                    int winFlags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);

/* Where this rank's buffer of the window begins, as it was registered. */
ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** outUserPtr);

/* --- Operators --- */

/* Makes the operator "multiply my input by *scalar, then sum", for this communicator and type only. The
 * scalar has the type `datatype` and, if ncclScalarDevice, must outlive the operations that use it. */
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm);

/* Frees such an operator. Operations already submitted are not disturbed. A built-in one is
 * ncclInvalidArgument. */
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

/* --- Collective operations --- */
/* n is the number of ranks. Buffers overlap only where "in place" says so; any other overlap is undefined. */

/* Every recvbuff[0, count) becomes the reduction of all sendbuff[0, count). In place: the same buffer. */
ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

/* The same on `root` alone; elsewhere recvbuff is not used and may be null. */
ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);

/* Rank i's recvbuff[0, recvcount) becomes part i of the reduction of all sendbuff[0, n * recvcount).
 * In place: recvbuff == sendbuff + rank * recvcount elements. */
ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

/* Part i of every recvbuff[0, n * sendcount) becomes rank i's sendbuff[0, sendcount).
 * In place: sendbuff == recvbuff + rank * sendcount elements. */
ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream);

/* Part i of rank j's recvbuff becomes part j of rank i's sendbuff, each `count` elements. In place (the same
 * buffer) on GPUs only, and there not by the pairwise algorithm. */
ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                          ncclComm_t comm, cudaStream_t stream);

/* Every recvbuff[0, count) becomes root's sendbuff[0, count). Elsewhere than on root sendbuff is not used and
 * may be null. In place: recvbuff == sendbuff. */
ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           int root, ncclComm_t comm, cudaStream_t stream);

/* The older name: ncclBroadcast in place. */
ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream);

/* Part i of root's recvbuff[0, n * count) becomes rank i's sendbuff[0, count). Elsewhere recvbuff is not
 * used. In place on root: sendbuff == recvbuff + root * count elements. */
ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream);

/* Rank i's recvbuff[0, count) becomes part i of root's sendbuff[0, n * count). Elsewhere sendbuff is not
 * used. In place on root: recvbuff == sendbuff + root * count elements. */
ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                         int root, ncclComm_t comm, cudaStream_t stream);

/* Each collective again, with a config for this one call (stretto_nccl_config.h); null: none. */
ncclResult_t ncclAllReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config);
ncclResult_t ncclBroadcastConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                 int root, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config);
ncclResult_t ncclReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t* config);
ncclResult_t ncclAllGatherConfig(const void* sendbuff, void* recvbuff, size_t sendcount,
                                 ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config);
ncclResult_t ncclReduceScatterConfig(const void* sendbuff, void* recvbuff, size_t recvcount,
                                     ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                     cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclAlltoAllConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclGatherConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                              int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclScatterConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                               int root, ncclComm_t comm, cudaStream_t stream,
                               const ncclCollConfig_t* config);

/* --- Point to point --- */
/* Each send meets the peer's receive of the same type and count, in order per pair of ranks. Either may wait
 * for the other: those that must progress together belong in one group, an exchange between two ranks above
 * all. */

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);

/* --- One-sided --- */
/* A rank writes into windows of its peers, who take no part, and signals them; who must know waits for the
 * signals. Signals are counted for each pair of ranks, context (0 to 15) and index (0 to 63) apart, and wait
 * until they are taken. flags must be 0. In a group puts and signals come first and waits last, whatever the
 * order of the calls. Windows are those of ncclCommWindowRegister with NCCL_WIN_COLL_SYMMETRIC. For ranks of
 * one host: between hosts these calls are ncclInvalidUsage. On GPUs they are enqueued like collectives, and
 * can be captured. */

/* Copies `count` elements to `peerWinOffset` bytes into the peer's buffer of the window, then signals it. The
 * peer sees the data once it has waited for the signal. */
ncclResult_t ncclPutSignal(const void* localbuff, size_t count, ncclDataType_t datatype, int peer,
                           ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                           unsigned int flags, ncclComm_t comm, cudaStream_t stream);

/* The signal alone. What this rank has put to the peer before is seen by who waits for it. To a peer that has
 * failed or has finalised its communicator a signal is ncclRemoteError, as a put is: a rank waits for the
 * last signals to it before it leaves. Between GPUs that is looked at when the call is made, and a graph that
 * holds one does not run again once the peer has finalised. */
ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                        cudaStream_t stream);

/* So many signals of one kind. */
typedef struct {
  int opCnt; /* how many to wait for and take; 1 or more */
  int peer;  /* who sends them */
  int sigIdx;
  int ctx;
} ncclWaitSignalDesc_t;

/* Waits until all of the `nDesc` kinds have come, and takes them. */
ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm,
                            cudaStream_t stream);

/* --- Groups --- */
/* Between start and end the calling thread's operations (or the making and ending of communicators, not both)
 * are collected; the outermost end submits them together. One thread can so serve several ranks, sends and
 * receives make progress together, and small operations share a launch. Groups nest, and belong to their
 * thread. */

ncclResult_t ncclGroupStart(void);
/* Reports the first error of the whole group; nothing of it is then enqueued. Without a start it is
 * ncclInvalidUsage. */
ncclResult_t ncclGroupEnd(void);
/* Ends the group without running it and stores what it would have cost. */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* simInfo);

/* --- Settings --- */
/* What the library reads from the environment, by the variable's name: `stretto info` lists them. A key that
 * is none is ncclInvalidArgument. Handles and texts belong to the library; a text is good until the same
 * function is called again on the same thread. */

typedef struct ncclParamHandle* ncclParamHandle_t;
ncclResult_t ncclParamBind(ncclParamHandle_t* out, const char* key);

/* The value as a number; ncclInvalidUsage if it is none, or does not fit the type. */
ncclResult_t ncclParamGetI8(ncclParamHandle_t h, int8_t* out);
ncclResult_t ncclParamGetI16(ncclParamHandle_t h, int16_t* out);
ncclResult_t ncclParamGetI32(ncclParamHandle_t h, int32_t* out);
ncclResult_t ncclParamGetI64(ncclParamHandle_t h, int64_t* out);
ncclResult_t ncclParamGetU8(ncclParamHandle_t h, uint8_t* out);
ncclResult_t ncclParamGetU16(ncclParamHandle_t h, uint16_t* out);
ncclResult_t ncclParamGetU32(ncclParamHandle_t h, uint32_t* out);
ncclResult_t ncclParamGetU64(ncclParamHandle_t h, uint64_t* out);

/* The value as a text; as bytes, at most maxLen of them, where *len becomes how many there are. */
ncclResult_t ncclParamGetStr(ncclParamHandle_t h, const char** out);
ncclResult_t ncclParamGet(ncclParamHandle_t h, void* out, int maxLen, int* len);

/* The same without a handle, valueLen without the final 0; all keys; all keys and values into the log. */
ncclResult_t ncclParamGetParameter(const char* key, const char** value, int* valueLen);
ncclResult_t ncclParamGetAllParameterKeys(const char*** table, int* tableLen);
void ncclParamDumpAll(void);

/* Asks for encrypted connections between processes, before the first unique id or communicator is made, on
 * all ranks alike; communicators that live already stay as they were made, and a warning says so.
 * NCCL_ENCRYPTION_MODE_PSK: TLS 1.3, by OpenSSL 3 of this machine, with a key that is derived from the unique
 * id's secret and from psk, where there is one; ncclSystemError where there is no OpenSSL 3, and then no
 * communicator can be made. It is the same as STRETTO_TLS=1, which NCCL_ENCRYPTION_MODE_NONE does not take
 * back. */
ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t* config);

#include "stretto_nccl_twins.h"

#ifdef __cplusplus
}
#endif

#endif
