/* What Stretto offers beyond NCCL's interface: counters, explanations, host streams, forcing a plan for a
 * measurement. Everything else is in nccl.h. All functions may be called from any thread; those that take a
 * communicator follow nccl.h's rule (one thread at a time per communicator). Texts are UTF-8 JSON.
 * Errors are ncclResult_t; ncclGetLastError(NULL) gives the sentence.
 *
 * Where ranks keep their data is said by the environment variable STRETTO_DEVICE: "cuda" (a GPU), "cpu" (host
 * memory) or "auto" (the default: a GPU if there is one). All ranks of a communicator say the same. On GPUs:
 *   - a communicator is on the device that is current (cudaSetDevice) when ncclCommInitRank is called, or on
 *     that of ncclCommInitAll's list; calls may be made whatever device is current then;
 *   - streams are CUDA streams, operations are enqueued and errors of what was enqueued come from
 *     ncclCommGetAsyncError and from the next call; ncclMemAlloc gives memory of the current device;
 *   - every rank has a device of its own, unless STRETTO_SHARED_DEVICE=1 is set, which is for tests: ranks of
 *     one process that share a device then need streams of their own (not 0, which is one for all), and
 *     CUDA_DEVICE_MAX_CONNECTIONS at least as large as their number and CUDA_MODULE_LOADING=EAGER, because
 *     their kernels wait for each other; memory must not be freed while one of them does. All kernels that
 *     wait for each other need room on the device at the same time: with 1 there is room for at least eight,
 *     and for at least two of each rank of a communicator and of what it is a child of, on a device with as
 *     many multiprocessors. A program that runs more of them at once, in several communicators or streams,
 *     sets their number instead. One that runs fewer may do so too, for more thread blocks each. Where the
 *     variable is set, kernels of one stream do not overlap;
 *   - STRETTO_LANES limits the thread blocks, and with them the memory, that a communicator uses. */
#ifndef STRETTO_H_
#define STRETTO_H_

#include <stddef.h>
#include <stdint.h>

#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ncclCommInitRankConfig for a rank that keeps its data in host memory, whatever STRETTO_DEVICE says: for
 * communicators of both kinds in one process. All ranks call it. */
ncclResult_t strettoCommInitHostRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                     ncclConfig_t* config);

/* The GPU whose memory this rank's data is in, as cudaGetDevice counts; -1 for host memory, for which
 * ncclCommCuDevice has no number and says 0. ncclInProgress while the communicator is still being made. */
ncclResult_t strettoCommDevice(ncclComm_t comm, int* device);

/* "0.1.0"; static storage. */
const char* strettoVersion(void);

/* How the library was built, as JSON: {"schema":"stretto.build/1", "version":..., "commit":... (null where it
 * is not known), "compiler":..., "cuda":true or false, "nvcc":..., "kernels":["sm_90", "compute_90"]}:
 * machine code for GPUs, and PTX, which the driver compiles for later ones; none without CUDA. */
ncclResult_t strettoBuild(char* json, size_t capacity, size_t* needed);

/* Counters of one communicator rank since it was made. Set `size` to sizeof before the call; fields that the
 * library knows and the caller does not are left out, and the other way round set to 0. Times in nanoseconds.
 * ncclInvalidUsage in a forked child of the process that made the communicator. */
typedef struct {
  size_t size;
  uint64_t initNanoseconds;          /* all of ncclCommInitRank */
  uint64_t initBootstrapNanoseconds; /* meeting the other ranks */
  uint64_t initConnectNanoseconds;   /* making and mapping windows; on a GPU also at the first operation */
  uint64_t operations;               /* operations finished */
  uint64_t bytes;                    /* bytes of their buffers, as nccl-tests counts "size" */
  uint64_t slowWaits;                /* waits that were not over at once */
  uint64_t sleeps;                   /* times this rank slept while it waited */
  uint64_t wakeups;                  /* times it woke a peer */
  uint64_t allocations;              /* times the library allocated memory after init */
  uint64_t windowBytes;              /* size of this rank's window (in host memory touched pages only are
                                        resident; on a GPU 0 until an operation of some rank needs it) */
} strettoCounters_t;
ncclResult_t strettoCommCounters(ncclComm_t comm, strettoCounters_t* counters);

/* A question to the planner: how would this operation run? `collective` is "all_reduce", "reduce_scatter",
 * "all_gather", "all_to_all", "broadcast", "reduce", "gather", "scatter" or "all_reduce_add_rms_norm"
 * (strettoAllReduceAddRmsNorm); `bytes` is nccl-tests' "size" (of
 * the larger buffer for reduce_scatter, all_gather, all_to_all, gather and scatter). */
typedef struct {
  const char* collective;
  size_t bytes;
  ncclDataType_t type;
  ncclRedOp_t op;
  int ranks;     /* of this machine; not read when a communicator is asked */
  int windows;   /* 1: the results go into windows that GPU ranks have registered, and not to where the input
                  * is, which of an all-reduce lies in one too; 2: an all-reduce in place in one */
  size_t hidden; /* elements of a token; of "all_reduce_add_rms_norm" alone, and not read of others */
} strettoQuestion_t;

/* Answers as JSON, {"schema":"stretto.explain/1", "candidates":[...], "chosen":...}: for `comm`, or, if that
 * is null, for `ranks` processes of this machine. Writes at most `capacity` bytes with a final 0; *needed is
 * the full length with that 0. */
ncclResult_t strettoExplain(ncclComm_t comm, const strettoQuestion_t* question, char* json, size_t capacity,
                            size_t* needed);

/* Forces how `collective` runs on this communicator from now on; all ranks must do the same between the same
 * two operations. NULL `algorithm` goes back to the planner; 0 `chunkBytes` leaves the chunk to it, and 0
 * `blocks` the number of thread blocks, which ranks on GPUs have. What is not there is refused with the list
 * of what is. */
ncclResult_t strettoCommForce(ncclComm_t comm, const char* collective, const char* algorithm,
                              const char* protocol, size_t chunkBytes, int blocks);

/* Whether the first part of a message from rank `peer` is there: *arrived is 1 or 0. A receive from that rank
 * would begin at once, and may wait for the rest. With it a program takes the message that comes first,
 * whoever sends it. *arrived may also be 1 when `peer` has begun a collective that this rank has not.
 * Waits for nothing: while operations of this rank on the communicator are under way, *arrived is 0.
 * ncclRemoteError when a rank is lost, as for an operation; also when nothing of `peer` is there and `peer`
 * has finalised its communicator or given it up, which ends nothing else. ncclInvalidUsage for ranks on
 * GPUs. */
ncclResult_t strettoCommProbe(ncclComm_t comm, int peer, int* arrived);

/* All-reduce, residual add and RMSNorm as one operation: what tensor parallelism does between two layers of a
 * transformer. Of each of `tokens` tokens of `hidden` elements, in float32:
 *
 *   reduced     = sum of all ranks' `input`, in the order of ranks, rounded to `type`
 *   residualOut = reduced + residual + bias, rounded to `type`
 *   normalised  = residualOut / sqrt(mean of residualOut^2 + epsilon) * gamma, rounded to `type`
 *   quantised   = normalised * (1 / scale), rounded to `quantisedType`, saturating; 1 / scale is rounded too
 *
 * The bits are those of an ncclAllReduce that reduces in rank order (STRETTO_DETERMINISTIC=1) and of this
 * norm after it; they do not depend on the number of tokens, nor on how the operation runs, nor on the run.
 * All ranks give the same tokens, hidden, type, epsilon and quantisation, and a residual and a bias all or
 * none; where they differ each is told, with both calls. Groups, host streams, recorders and profilers work
 * as with ncclAllReduce. Without gamma, normalised and quantised it is an all-reduce with a bias or a
 * residual.
 *
 * Error, to first order, against exact arithmetic on what the step before gave, of n ranks; u is half a unit
 * in the last place of 1 in `type`, and v that of float32, 2^-24. It holds where the sum of a token's
 * squares, and the results, are normal numbers of float32 and of `type`:
 *
 *   reduced       (n - 1) v (sum of |input|) + u |reduced|
 *   residualOut   2 v (|reduced| + |residual| + |bias|) + u |residualOut|
 *   normalised    |normalised| ((hidden / 64 + 16) v + u)
 *
 * In place: residualOut may be residual, and one of residualOut, normalised and reduced may be input. Nothing
 * that is written may overlap anything else. Any alignment of an element serves. On GPUs, which have the same
 * bits, all buffers are memory of the rank's GPU, scales among them, and the call may be captured in a graph.
 *
 * Begin with STRETTO_ADD_RMS_NORM_INITIALIZER: fields that a later release adds are then zero, which is to
 * leave them out. */
typedef enum {
  strettoScaleNone = 0,     /* nothing is quantised */
  strettoScalePerToken = 1, /* scales[token] = largest |normalised| of it, or 1/512 if that is more, / largest
                             * number of quantisedType; written. A NaN does not count, and stays one; an
                             * infinity makes the scale infinite, itself NaN and the others 0 */
  strettoScalePerTensor = 2, /* scales[0] is read, and all are multiplied by its reciprocal */
} strettoScale_t;

typedef struct {
  size_t size;
  size_t tokens; /* 0: nothing happens */
  size_t hidden;
  ncclDataType_t type; /* ncclFloat32, ncclFloat16 or ncclBfloat16, of all buffers but the last two */
  float epsilon;
  const void* input;    /* tokens x hidden */
  const void* residual; /* tokens x hidden, or NULL: nothing is added */
  const void* bias;     /* hidden, added to each token, or NULL */
  const void* gamma;    /* hidden, or NULL: ones */
  void* residualOut;    /* tokens x hidden */
  void* normalised;     /* tokens x hidden, or NULL: not wanted */
  void* reduced;        /* tokens x hidden, or NULL: not wanted */
  strettoScale_t scaling;
  ncclDataType_t quantisedType; /* ncclFloat8e4m3 or ncclFloat8e5m2 */
  void* quantised;              /* tokens x hidden bytes */
  float* scales;                /* tokens of them, or 1 */
} strettoAddRmsNorm_t;
#define STRETTO_ADD_RMS_NORM_INITIALIZER                                                         \
  {                                                                                              \
    sizeof(strettoAddRmsNorm_t), 0, 0, ncclFloat32, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
        strettoScaleNone, ncclFloat8e4m3, NULL, NULL                                             \
  }

ncclResult_t strettoAllReduceAddRmsNorm(const strettoAddRmsNorm_t* step, ncclComm_t comm,
                                        cudaStream_t stream);

/* Host streams, for ranks in host memory: pass one where a cudaStream_t is asked for and the call returns at
 * once; operations of one stream run in order. Destroying waits for what was submitted. */
ncclResult_t strettoStreamCreate(cudaStream_t* stream);
ncclResult_t strettoStreamSynchronize(cudaStream_t stream);
ncclResult_t strettoStreamQuery(cudaStream_t stream); /* ncclSuccess when idle, ncclInProgress */
ncclResult_t strettoStreamDestroy(cudaStream_t stream);

/* The environment variables that the library reads (and a sentence about each that is named STRETTO_... and
 * that nothing reads), and this machine's topology, as JSON. */
ncclResult_t strettoParameters(char* json, size_t capacity, size_t* needed);
ncclResult_t strettoTopology(char* json, size_t capacity, size_t* needed);

/* What the flight recorders of other processes say, as JSON: {"schema":"stretto.doctor/1", "verdict":...,
 * "text":..., "communicators":[...], "problems":[...]}. `target` is a list of process ids, "123,124"; files
 * of recorders (*.flight) and folders of them, such as one that was STRETTO_FLIGHT_DIR, one a line; or "",
 * for the last of this user's jobs that did not end in peace, or runs. The processes may hang, spin or be
 * stopped; they are not disturbed. They also go on, so a second call may need more room than the first said:
 * call until *needed <= capacity. ncclInvalidArgument for a target that is none of these, ncclInvalidUsage
 * when it holds no recorder, ncclSystemError when the kernel does not let us look. */
ncclResult_t strettoDoctor(const char* target, char* json, size_t capacity, size_t* needed);

/* The same recorders, read again and again, cheaply enough for a display that refreshes: {"schema":
 * "stretto.watch/1", "communicators":[...], "problems":[...]}. `pids` is a list of process ids; processes
 * that have no communicator yet may be among them, and one that ends while it is watched stays in the list as
 * it was last. The text of strettoWatchRead belongs to the watch until the next call with it. One thread at a
 * time. strettoWatchOpen: ncclInvalidArgument when there is no such process, ncclInvalidUsage when none has a
 * recorder, ncclSystemError when the kernel does not let us look. */
typedef struct strettoWatch* strettoWatch_t;
ncclResult_t strettoWatchOpen(const char* pids, strettoWatch_t* watch);
ncclResult_t strettoWatchRead(strettoWatch_t watch, const char** json);
ncclResult_t strettoWatchClose(strettoWatch_t watch);

#ifdef __cplusplus
}
#endif

#endif  // STRETTO_H_
