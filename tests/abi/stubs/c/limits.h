/* The one macro of <limits.h> that nccl.h uses, so that a C parser need not read the compiler's own headers. */
#define INT_MIN (-2147483647 - 1)
