/* A slow disk: each sync sleeps, and those of the process's first thread are counted apart. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_long delay_ms, syncs, syncs_on_first;

void slow_disk(long wanted_ms) {
    atomic_store(&delay_ms, wanted_ms);
    atomic_store(&syncs, 0);
    atomic_store(&syncs_on_first, 0);
}
long slow_disk_syncs(void) { return atomic_load(&syncs); }
long slow_disk_syncs_on_first(void) { return atomic_load(&syncs_on_first); }

static void slow(void) {
    long wait_ms = atomic_load(&delay_ms);
    struct timespec wait = {wait_ms / 1000, wait_ms % 1000 * 1000000};
    if (wait_ms > 0) nanosleep(&wait, NULL);
    atomic_fetch_add(&syncs, 1);
    if (syscall(SYS_gettid) == getpid()) atomic_fetch_add(&syncs_on_first, 1);
}
int fsync(int descriptor) {
    slow();
    return syscall(SYS_fsync, descriptor);
}
int fdatasync(int descriptor) {
    slow();
    return syscall(SYS_fdatasync, descriptor);
}
