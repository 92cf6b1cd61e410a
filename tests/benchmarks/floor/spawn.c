/* The floor of a spawn: vfork, two pipes, poll, waitpid. For every line on stdin it runs /bin/true
 * once and prints the nanoseconds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *const argv[] = {"/bin/true", NULL};
static char *const envp[] = {"PATH=/usr/bin:/bin", NULL};

static void check(int done) {
    if (done < 0) {
        perror("spawn");
        exit(1);
    }
}

static void run(void) {
    int out[2], err[2], null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    check(null);
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
    close(null);
    close(out[1]);
    close(err[1]);
    struct pollfd fds[2] = {{.fd = out[0], .events = POLLIN}, {.fd = err[0], .events = POLLIN}};
    char buffer[65536];
    for (int open_pipes = 2; open_pipes > 0;) {
        check(poll(fds, 2, -1));
        for (int i = 0; i < 2; i++) {
            if (fds[i].fd >= 0 && fds[i].revents && read(fds[i].fd, buffer, sizeof buffer) <= 0) {
                close(fds[i].fd);
                fds[i].fd = -1;
                open_pipes--;
            }
        }
    }
    int status;
    check(waitpid(pid, &status, 0));
    if (status != 0)
        exit(1);
}

static long long now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(void) {
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        long long begun = now_ns();
        run();
        printf("%lld\n", now_ns() - begun);
        fflush(stdout);
    }
    return 0;
}
