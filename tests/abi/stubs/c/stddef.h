/* The names of <stddef.h> that nccl.h uses, so that a C parser need not read the compiler's own headers. */
#ifndef STRETTO_STUB_STDDEF_H
#define STRETTO_STUB_STDDEF_H
typedef unsigned long size_t;
#define NULL ((void*)0)
#endif
