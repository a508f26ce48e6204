/* Counts the calls to malloc and related functions, for each thread, in a file that the runner
 * reads: LD_PRELOAD=alloccount.so BENCH_ALLOC_FILE=<prefix>, with the counters in <prefix>.<pid>.
 * C, C++ and most Rust programs allocate through these functions. Rookery's own allocator counts
 * its calls itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOTS 256 /* threads of one process, as in the runner */

struct slot {
    _Atomic int64_t thread;
    _Atomic uint64_t calls;
    _Atomic uint64_t bytes;
    uint64_t unused;
};

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static struct slot *slots;
static __thread struct slot *mine __attribute__((tls_model("initial-exec")));

__attribute__((constructor)) static void open_counters(void) {
    const char *prefix = getenv("BENCH_ALLOC_FILE");
    char path[512];
    if (prefix == NULL) {
        return;
    }
    snprintf(path, sizeof path, "%s.%d", prefix, getpid());
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, SLOTS * sizeof *slots) != 0) {
        return;
    }
    void *memory = mmap(NULL, SLOTS * sizeof *slots, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory != MAP_FAILED) {
        slots = memory;
    }
}

static void count(size_t bytes) {
    if (mine == NULL) {
        if (slots == NULL) {
            return;
        }
        int64_t thread = gettid();
        for (int i = 0; i < SLOTS; i++) {
            int64_t free = 0;
            if (atomic_compare_exchange_strong(&slots[i].thread, &free, thread)) {
                mine = &slots[i];
                break;
            }
        }
        if (mine == NULL) {
            return;
        }
    }
    atomic_fetch_add_explicit(&mine->calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&mine->bytes, bytes, memory_order_relaxed);
}

void *malloc(size_t size) {
    count(size);
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size) {
    count(number * size);
    return __libc_calloc(number, size);
}

void *realloc(void *old, size_t size) {
    count(size);
    return __libc_realloc(old, size);
}

void *memalign(size_t alignment, size_t size) {
    count(size);
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    count(size);
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
    count(size);
    void *memory = __libc_memalign(alignment, size);
    if (memory == NULL) {
        return ENOMEM;
    }
    *out = memory;
    return 0;
}
