/*
 * stretto_nccl_config.h: the structs of nccl.h that say how something is to be done, and their initializers.
 * Part of nccl.h, which includes it; do not include it by itself.
 */
#ifndef STRETTO_NCCL_CONFIG_H_
#define STRETTO_NCCL_CONFIG_H_

/* "Not set", by the member's type. */
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT -1.0f

/* What the second member of most configs holds, so that memory which nobody initialised is noticed. */
#define NCCL_API_MAGIC 0xcafebeef

/* hostCftMode in ncclConfig_t; means nothing here. */
typedef enum {
  ncclHostCftDefault = NCCL_CONFIG_UNDEF_INT,
  ncclHostCftEnable = 1,
  ncclHostCftDisable = 2,
  ncclHostCftFallback = 3
} ncclHostCftMode_t;

/* nvlsHostMode in ncclConfig_t: what must not use NVLink multicast. Nothing here does. */
typedef enum {
  ncclNvlsHostModeDefault = NCCL_CONFIG_UNDEF_INT,
  ncclNvlsHostModeEnable = 0,
  ncclNvlsHostModeDisableTransport = 1,
  ncclNvlsHostModeDisableSymmetricMultimem = 2,
  ncclNvlsHostModeDisable = INT_MAX
} ncclNvlsHostMode_t;

/* How a communicator is to be made. Start from NCCL_CONFIG_INITIALIZER and set members by name; a member that
 * stays undefined keeps its default. One that is out of its range, or minCTAs above maxCTAs, is
 * ncclInvalidArgument, whether it means something here or not. The first three members tell the library how
 * large the caller's struct is, so that programs built against another release keep working: do not write
 * them. A config without the magic number is ncclInvalidArgument. The library copies what it needs; the
 * struct and its strings may go when the call returns. */
typedef struct ncclConfig_v23100 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;            /* 1 (default): calls return when done; 0: they may return ncclInProgress */
  int cgaClusterSize;      /* thread blocks per cluster of a kernel, 0 to 8 */
  int minCTAs;             /* thread blocks per operation, at least; no more than an operation has use for */
  int maxCTAs;             /* the same at most: the least of all ranks'; NCCL_MAX_CTAS instead */
  const char* netName;     /* the network plugin to use, by its name */
  int splitShare;          /* 1: children made by ncclCommSplit use the parent's resources */
  int trafficClass;        /* class of service for the network plugin */
  const char* commName;    /* shown in logs, traces and errors */
  int collnetEnable;       /* 1: reductions inside the network, where there are any */
  int CTAPolicy;           /* NCCL_CTA_POLICY_* */
  int shrinkShare;         /* 1: children made by ncclCommShrink use the parent's resources */
  int nvlsCTAs;            /* thread blocks for NVLink multicast */
  int nChannelsPerNetPeer; /* connections to each peer on another host, 1 to 64 */
  int nvlinkCentricSched;  /* 1: place work by NVLink first */
  int graphUsageMode;      /* 0 to 2: no graphs, one at a time, several at once */
  int numRmaCtx;           /* contexts of ncclPutSignal and its like, 1 to 16; all 16 are always there */
  int maxP2pPeers;         /* with how many peers this rank sends and receives, at most */
  int graphStreamOrdering; /* 1: graphs keep the order of their streams */
  int launchOrderImplicit; /* 1: communicators of one device are ordered by the library */
  int numRmaSig;           /* signals of each context and peer, 1 to 64; all 64 are always there */
  int rmaEagerInit;        /* 1: one-sided operations connect when the communicator is made */
  int hostCftMode;         /* ncclHostCftMode_t */
  int nvlsHostMode;        /* ncclNvlsHostMode_t */
} ncclConfig_t;

/* clang-format off */
#define NCCL_CONFIG_INITIALIZER                      \
  {                                                  \
    sizeof(ncclConfig_t),  /* size */                \
    NCCL_API_MAGIC,        /* magic */               \
    NCCL_VERSION_CODE,     /* version */             \
    NCCL_CONFIG_UNDEF_INT, /* blocking */            \
    NCCL_CONFIG_UNDEF_INT, /* cgaClusterSize */      \
    NCCL_CONFIG_UNDEF_INT, /* minCTAs */             \
    NCCL_CONFIG_UNDEF_INT, /* maxCTAs */             \
    NCCL_CONFIG_UNDEF_PTR, /* netName */             \
    NCCL_CONFIG_UNDEF_INT, /* splitShare */          \
    NCCL_CONFIG_UNDEF_INT, /* trafficClass */        \
    NCCL_CONFIG_UNDEF_PTR, /* commName */            \
    NCCL_CONFIG_UNDEF_INT, /* collnetEnable */       \
    NCCL_CONFIG_UNDEF_INT, /* CTAPolicy */           \
    NCCL_CONFIG_UNDEF_INT, /* shrinkShare */         \
    NCCL_CONFIG_UNDEF_INT, /* nvlsCTAs */            \
    NCCL_CONFIG_UNDEF_INT, /* nChannelsPerNetPeer */ \
    NCCL_CONFIG_UNDEF_INT, /* nvlinkCentricSched */  \
    NCCL_CONFIG_UNDEF_INT, /* graphUsageMode */      \
    NCCL_CONFIG_UNDEF_INT, /* numRmaCtx */           \
    NCCL_CONFIG_UNDEF_INT, /* maxP2pPeers */         \
    NCCL_CONFIG_UNDEF_INT, /* graphStreamOrdering */ \
    NCCL_CONFIG_UNDEF_INT, /* launchOrderImplicit */ \
    NCCL_CONFIG_UNDEF_INT, /* numRmaSig */           \
    NCCL_CONFIG_UNDEF_INT, /* rmaEagerInit */        \
    NCCL_CONFIG_UNDEF_INT, /* hostCftMode */         \
    NCCL_CONFIG_UNDEF_INT  /* nvlsHostMode */        \
  }
/* clang-format on */

/* An option of one vendor's library for one call; a chain of them ends with null and has no key twice. NCCL
 * ignores them all, and so does this library, which has none. */
typedef struct ncclConfigExt {
  struct ncclConfigExt* next;
  struct {
    int vendorId; /* who gives the option its meaning; not 0 */
    int optionId; /* which of that vendor's */
  } key;
  union {
    int i;
    const char* s;
    void* raw;
  } val;
} ncclConfigExt_t;

/* How one collective is to run (ncclAllReduceConfig and its like). Start from NCCL_COLLCONFIG_INITIALIZER;
 * all ranks pass the same. Read before the call returns. What is out of its range is ncclInvalidArgument;
 * what cannot be honoured is ncclInvalidUsage, and says so. */
typedef struct ncclCollConfig_v23200 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  ncclConfigExt_t* ext;
  int minCTAs;                       /* as in ncclConfig_t, for this call */
  int maxCTAs;                       /* no more than the communicator's */
  int nvlsCTAs;                      /* means nothing here */
  int cgaClusterSize;                /* means nothing here */
  const char* algSelection;          /* may name an algorithm; null or "": the library chooses */
  int forceAlgSelection;             /* 1 (default): a name that cannot be had is an error; 0: it is a wish */
  int CTAPolicy;                     /* NCCL_CTA_POLICY_*; undefined: the communicator's */
  uint64_t userProfilerTag;          /* for profiler plugins; 0: none */
  cudaEvent_t launchCompletionEvent; /* recorded when the kernel has been launched; all ranks or none */
} ncclCollConfig_t;

/* clang-format off */
#define NCCL_COLLCONFIG_INITIALIZER                       \
  {                                                       \
    sizeof(ncclCollConfig_t), /* size */                  \
    NCCL_API_MAGIC,           /* magic */                 \
    NCCL_VERSION_CODE,        /* version */               \
    NCCL_CONFIG_UNDEF_PTR,    /* ext */                   \
    NCCL_CONFIG_UNDEF_INT,    /* minCTAs */               \
    NCCL_CONFIG_UNDEF_INT,    /* maxCTAs */               \
    NCCL_CONFIG_UNDEF_INT,    /* nvlsCTAs */              \
    NCCL_CONFIG_UNDEF_INT,    /* cgaClusterSize */        \
    NCCL_CONFIG_UNDEF_PTR,    /* algSelection */          \
    1,                        /* forceAlgSelection */     \
    NCCL_CONFIG_UNDEF_INT,    /* CTAPolicy */             \
    0,                        /* userProfilerTag */       \
    NCCL_CONFIG_UNDEF_PTR     /* launchCompletionEvent */ \
  }
/* clang-format on */

/* What ncclGroupSimulateEnd fills in. Start from NCCL_SIM_INFO_INITIALIZER; do not write the first three. */
typedef struct ncclSimInfo_v22200 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime; /* microseconds; NCCL_UNDEF_FLOAT when no estimate exists */
} ncclSimInfo_t;

/* clang-format off */
#define NCCL_SIM_INFO_INITIALIZER              \
  {                                            \
    sizeof(ncclSimInfo_t), /* size */          \
    0x74685283,            /* magic */         \
    NCCL_VERSION_CODE,     /* version */       \
    NCCL_UNDEF_FLOAT       /* estimatedTime */ \
  }
/* clang-format on */

/* mode in ncclEncryptionConfig_t. PSK: a secret that all processes of the job know before. */
typedef enum { NCCL_ENCRYPTION_MODE_NONE = 0, NCCL_ENCRYPTION_MODE_PSK = 1 } ncclEncryptionMode_t;

/* What ncclSetEncryption reads. Start from NCCL_ENCRYPTION_CONFIG_INITIALIZER. */
typedef struct ncclEncryptionConfig_v23200 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int mode;        /* ncclEncryptionMode_t */
  const char* psk; /* the secret; null: none */
} ncclEncryptionConfig_t;

/* clang-format off */
#define NCCL_ENCRYPTION_CONFIG_INITIALIZER        \
  {                                               \
    sizeof(ncclEncryptionConfig_t), /* size */    \
    NCCL_API_MAGIC,                 /* magic */   \
    NCCL_VERSION_CODE,              /* version */ \
    NCCL_ENCRYPTION_MODE_NONE,      /* mode */    \
    NCCL_CONFIG_UNDEF_PTR           /* psk */     \
  }
/* clang-format on */

#endif
