/* What nccl.h uses of <stddef.h>, so that a C parser need not read the compiler's own headers. */
#ifndef STRETTO_STUB_STDDEF_H
#define STRETTO_STUB_STDDEF_H
typedef unsigned long size_t;
#define NULL ((void*)0)
#endif
