/* What nccl.h uses of <limits.h>, so that a C parser need not read the compiler's own headers. */
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
