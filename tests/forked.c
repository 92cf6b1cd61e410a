/* Be a forked process, for who starts programs by their command line; see `tests.forking`.

`forked ADDRESS PYTHON PROGRAM ARGS` hands over its streams, folder and environment, and ends as
that process ends. PYTHON becomes `sys.executable` of the process; `-` leaves the usual one. It is
in C because each such process needs one, and an interpreter takes ten times as long to begin. */

#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static pid_t process;

static void pass_on(int number) { kill(process, number); }

static void give_up(const char *what) {
    perror(what);
    _exit(125);
}

static void say(FILE *wish, const char *text) { fwrite(text, 1, strlen(text) + 1, wish); }

static void say_all(FILE *wish, char **texts) {
    int count = 0;
    char number[16];
    while (texts[count]) count++;
    snprintf(number, sizeof number, "%d", count);
    say(wish, number);
    for (int each = 0; each < count; each++) say(wish, texts[each]);
}

static long receive(int status) {
    char text[64];
    ssize_t size = recv(status, text, sizeof text - 1, 0);
    if (size <= 0) _exit(125); /* whoever forks has ended */
    text[size] = 0;
    return atol(text);
}

int main(int argc, char **argv) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int status = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    size_t length = strlen(argv[1]);
    memcpy(address.sun_path, argv[1], length);
    address.sun_path[0] = 0;
    if (connect(status, (void *)&address, offsetof(struct sockaddr_un, sun_path) + length))
        give_up("connect");

    char **args = argv + 3;
    while (*args && **args == '-') args++; /* an option of the interpreter */
    int held = memfd_create("wish", 0);
    FILE *wish = fdopen(dup(held), "w");
    char *folder = getcwd(NULL, 0);
    say(wish, folder ? folder : "/");
    say(wish, argv[2]);
    say(wish, getpgrp() == getpid() ? "1" : "");
    say_all(wish, args);
    say_all(wish, environ);
    fclose(wish);

    int handed[] = {0, 1, 2, held};
    char control[CMSG_SPACE(sizeof handed)] = {0}, dot = '.';
    struct iovec data = {&dot, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof handed);
    memcpy(CMSG_DATA(rights), handed, sizeof handed);
    if (sendmsg(status, &message, 0) < 0) give_up("sendmsg");

    process = receive(status);
    for (int each = 0; each < 4; each++) close(each < 3 ? each : held);
    for (int each = 0; each < 3; each++)
        signal((int[]){SIGTERM, SIGINT, SIGHUP}[each], pass_on);
    int ended = receive(status);
    _exit(WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended));
}
