/* Runs a compiler as soon as the pool (pool.c) has room for it, and appends its cost to $UNIT_LOG, one line a unit:
 *
 *     start_ms end_ms cpu_ms peak_kib status output
 *
 * cpu_ms is user and system time of the compiler and all processes that it started, peak_kib the largest resident set
 * among them. Each line is written at once, so that lines of units that end together do not mix. This is a C program
 * because every compiler call runs it: Python would add 20 ms to each.
 *
 *     unit --spare OUTPUT
 *
 * prints a line as soon as it has one more claim for a piece of that unit. It gives the claim back, or stops waiting
 * for it, when its standard input ends. The exit code is 1 if it got no claim.
 */
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static long long milliseconds(struct timeval t) { return t.tv_sec * 1000LL + t.tv_usec / 1000; }

static long long now(void) {
    struct timeval t;
    gettimeofday(&t, NULL);
    return milliseconds(t);
}

static const char *output_of(char **argv) {
    for (; *argv; ++argv)
        if (strcmp(*argv, "-o") == 0 && argv[1]) return argv[1];
    return "-";
}

static void record(const char *log, long long start, int status, const char *output) {
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    char line[4096];
    int length = snprintf(line, sizeof line, "%lld %lld %lld %ld %d %s\n", start, now(),
                          milliseconds(used.ru_utime) + milliseconds(used.ru_stime), used.ru_maxrss, status, output);
    int file = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0 || length >= (int)sizeof line || write(file, line, length) != length)
        fprintf(stderr, "unit: %s cannot be written: %s\n", log, strerror(errno));
    if (file >= 0) close(file);
}

static int input_ended(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, 20) != 0;
}

static int hold_spare(const char *output) {
    if (!claim_spare(output, input_ended)) return 1;
    puts("held");
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}

int main(int argc, char **argv) {
    const char *log = getenv("UNIT_LOG");
    if (argc == 3 && strcmp(argv[1], "--spare") == 0) return hold_spare(argv[2]);
    if (argc < 2) {
        fputs("usage: unit COMPILER ARGUMENTS | unit --spare OUTPUT\n", stderr);
        return 2;
    }
    claim(output_of(argv));
    long long start = now();
    pid_t child = fork(); /* also without a log, because this process holds the claim */
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* else it would run on without a claim */
        execvp(argv[1], argv + 1);
        fprintf(stderr, "unit: %s: %s\n", argv[1], strerror(errno));
        _exit(127);
    }
    int status;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    if (child < 0) {
        perror("unit: fork");
        return 1;
    }
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (log) record(log, start, code, output_of(argv));
    return code;
}
