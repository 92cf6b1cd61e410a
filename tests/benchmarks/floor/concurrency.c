/* The floor of many children at once: for every line on stdin it starts as many `sleep 0.05` as its
 * argument says, each with two pipes, waits for all, and prints the nanoseconds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *const argv[] = {"/bin/sleep", "0.05", NULL};
static char *const envp[] = {"PATH=/usr/bin:/bin", NULL};

static void check(int done) {
    if (done < 0) {
        perror("concurrency");
        exit(1);
    }
}

static pid_t start(int null, struct pollfd *fds) {
    int out[2], err[2];
    check(pipe2(out, O_CLOEXEC));
    check(pipe2(err, O_CLOEXEC));
    pid_t pid = vfork();
    check(pid);
    if (pid == 0) {
        dup2(null, 0);
        dup2(out[1], 1);
        dup2(err[1], 2);
        execve(argv[0], argv, envp);
        _exit(127);
    }
    close(out[1]);
    close(err[1]);
    fds[0] = (struct pollfd){.fd = out[0], .events = POLLIN};
    fds[1] = (struct pollfd){.fd = err[0], .events = POLLIN};
    return pid;
}

static void run(int count) {
    pid_t *pids = calloc(count, sizeof *pids);
    struct pollfd *fds = calloc(2 * count, sizeof *fds);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    check(null);
    for (int i = 0; i < count; i++)
        pids[i] = start(null, fds + 2 * i);
    char buffer[65536];
    for (int open_pipes = 2 * count; open_pipes > 0;) {
        check(poll(fds, 2 * count, -1));
        for (int i = 0; i < 2 * count; i++) {
            if (fds[i].fd >= 0 && fds[i].revents && read(fds[i].fd, buffer, sizeof buffer) <= 0) {
                close(fds[i].fd);
                fds[i].fd = -1;
                open_pipes--;
            }
        }
    }
    for (int i = 0; i < count; i++) {
        int status;
        check(waitpid(pids[i], &status, 0));
        if (status != 0)
            exit(1);
    }
    close(null);
    free(pids);
    free(fds);
}

static long long now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char **argv) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    int count = argc > 1 ? atoi(argv[1]) : 200;
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        long long begun = now_ns();
        run(count);
        printf("%lld\n", now_ns() - begun);
        fflush(stdout);
    }
    return 0;
}
