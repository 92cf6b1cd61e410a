/* A slow disk: each sync sleeps.

   What holds up the process's first thread, which runs the event loop, is counted, and raises
   SIGUSR2 there, so that Python's faulthandler writes down where: a sync, a sleep, a lock that is
   waited for without an end, and a lock that another thread held while it synced. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_long delay_ms, syncs, syncs_with_gil, holdups, moment;
static atomic_long wait_began;
static _Atomic(sem_t *) waited_for;
static atomic_int posted_behind_a_sync;
static __thread long sync_ended;

void slow_disk(long wanted_ms) {
    atomic_store(&syncs, 0);
    atomic_store(&syncs_with_gil, 0);
    atomic_store(&holdups, 0);
    atomic_store(&delay_ms, wanted_ms);
}
long slow_disk_syncs(void) { return atomic_load(&syncs); }
long slow_disk_syncs_with_gil(void) { return atomic_load(&syncs_with_gil); }
long slow_disk_holdups(void) { return atomic_load(&holdups); }

static int is_slow(void) { return atomic_load(&delay_ms) > 0; }
static int is_first(void) { return syscall(SYS_gettid) == getpid(); }

static void held_up(void) {
    int problem = errno;
    if (is_slow() && is_first()) {
        atomic_fetch_add(&holdups, 1);
        raise(SIGUSR2);
    }
    errno = problem;
}

static void slow(void) {
    static int (*has_gil)(void);
    long wait_ms = atomic_load(&delay_ms);
    struct timespec wait = {wait_ms / 1000, wait_ms % 1000 * 1000000};
    if (wait_ms == 0) return;
    if (has_gil == NULL) has_gil = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
    if (has_gil != NULL && has_gil()) atomic_fetch_add(&syncs_with_gil, 1);
    held_up();
    syscall(SYS_nanosleep, &wait, NULL);
    atomic_fetch_add(&syncs, 1);
    sync_ended = atomic_fetch_add(&moment, 1) + 1;
}

int fsync(int descriptor) {
    slow();
    return syscall(SYS_fsync, descriptor);
}
int fdatasync(int descriptor) {
    slow();
    return syscall(SYS_fdatasync, descriptor);
}
int syncfs(int descriptor) {
    slow();
    return syscall(SYS_syncfs, descriptor);
}

int nanosleep(const struct timespec *wait, struct timespec *left) {
    held_up();
    return syscall(SYS_nanosleep, wait, left);
}
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wait,
                    struct timespec *left) {
    held_up();
    return syscall(SYS_clock_nanosleep, clock, flags, wait, left) == 0 ? 0 : errno;
}
int flock(int descriptor, int operation) {
    if (!(operation & (LOCK_NB | LOCK_UN))) held_up();
    return syscall(SYS_flock, descriptor, operation);
}

static void begin_wait(sem_t *lock) {
    if (!is_slow() || !is_first()) return;
    atomic_store(&posted_behind_a_sync, 0);
    atomic_store(&wait_began, atomic_fetch_add(&moment, 1) + 1);
    atomic_store(&waited_for, lock);
}
static void end_wait(sem_t *lock) {
    if (atomic_load(&waited_for) != lock || !is_first()) return;
    atomic_store(&waited_for, NULL);
    if (atomic_exchange(&posted_behind_a_sync, 0)) held_up();
}
int sem_post(sem_t *lock) {
    static int (*real)(sem_t *);
    if (real == NULL) real = dlsym(RTLD_NEXT, "sem_post");
    if (atomic_load(&waited_for) == lock && sync_ended > atomic_load(&wait_began))
        atomic_store(&posted_behind_a_sync, 1);
    return real(lock);
}
int sem_wait(sem_t *lock) {
    static int (*real)(sem_t *);
    if (real == NULL) real = dlsym(RTLD_NEXT, "sem_wait");
    begin_wait(lock);
    int done = real(lock);
    end_wait(lock);
    return done;
}
int sem_timedwait(sem_t *lock, const struct timespec *until) {
    static int (*real)(sem_t *, const struct timespec *);
    if (real == NULL) real = dlsym(RTLD_NEXT, "sem_timedwait");
    begin_wait(lock);
    int done = real(lock, until);
    end_wait(lock);
    return done;
}
int sem_clockwait(sem_t *lock, clockid_t clock, const struct timespec *until) {
    static int (*real)(sem_t *, clockid_t, const struct timespec *);
    if (real == NULL) real = dlsym(RTLD_NEXT, "sem_clockwait");
    begin_wait(lock);
    int done = real(lock, clock, until);
    end_wait(lock);
    return done;
}
