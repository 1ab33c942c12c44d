"""How the C library allocates memory in processes that score."""

# glibc gives large blocks back to the kernel after each op, and pays for them again at the next one
# (docs/troubleshooting.md).
WORKER_ENVIRONMENT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(4 * 2**30),
    "MALLOC_TOP_PAD_": str(256 * 2**20),
    # By default each thread has a heap of its own, and what one frees, no other can use: a session with a mesh of
    # 10,000 services held 1,409 instead of 1,000 MiB.
    "MALLOC_ARENA_MAX": "1",
}
