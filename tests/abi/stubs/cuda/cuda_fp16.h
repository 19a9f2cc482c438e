/* Empty: nccl.h includes it for its users, and needs nothing of it. */
