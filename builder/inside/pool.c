/* One pool of job slots and memory for the compilers of all builds on a machine.
 *
 *     UNIT_POOL    a folder that all builds see
 *     UNIT_JOBS    how many compilers run at once
 *     UNIT_MEMORY  how much they may take together, in blocks (BLOCK_MIB of pool.py)
 *     UNIT_CLAIMS  a file of lines `output <tab> rank <tab> blocks`: what each unit takes; a running unit locks its own
 *
 * A slot is a byte of the pool's file `slots`, a block of memory one of `memory`: who holds the kernel's lock on
 * it has it, and the kernel takes it back from a process that was killed. Units wait by rank, the highest first;
 * those of one rank queue on the file `wait-RANK`. A unit that waits for memory is not passed by lighter ones,
 * else the heaviest would come last and keep the machine waiting for it alone.
 *
 * Builds of several variants come to the same C++ unit at the same time. One compiles it, the others wait for
 * that without a slot, and find it in the compiler cache. A CUDA unit is another one for each variant, but for
 * pieces that several have in common: nvcc.py lets one make them. It makes pieces of one unit side by side, each
 * beyond the first on a slot that it waits for as the unit did, with as much memory as the unit has.
 */
#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 32, OTHERS_BLOCKS = 2 };

static int opened(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("UNIT_POOL"), name);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) fprintf(stderr, "unit: %s cannot be opened: %s\n", path, strerror(errno));
    return file;
}

static int opened_queue(int rank) {
    char name[32];
    snprintf(name, sizeof name, "wait-%02d", rank);
    return opened(name);
}

static int number(const char *name) {
    const char *text = getenv(name);
    int value = text ? atoi(text) : 0;
    return value > 0 ? value : 1;
}

/* The unit's rank and blocks by UNIT_CLAIMS, and the place of its row in that file, which is returned open; for a
 * unit that is not listed, rank 0, OTHERS_BLOCKS and -1. */
static int look_up(const char *output, int *rank, int *blocks, off_t *row) {
    *rank = 0;
    *blocks = OTHERS_BLOCKS;
    const char *path = getenv("UNIT_CLAIMS");
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file) return -1;
    char line[4096];
    size_t length = strlen(output);
    while (*row = ftello(file), fgets(line, sizeof line, file)) {
        if (strncmp(line, output, length) == 0 && line[length] == '\t') {
            sscanf(line + length, "%d %d", rank, blocks);
            *rank = *rank < 0 ? 0 : *rank < RANKS ? *rank : RANKS - 1;
            return fileno(file);
        }
    }
    fclose(file);
    return -1;
}

static int is_cuda(const char *output) {
    const char *end = strstr(output, ".cu.o");
    return end && !end[5];
}

/* A byte of the file `units` for a unit: FNV-1a of its name. */
static off_t place(const char *output) {
    unsigned long long hash = 14695981039346656037ULL;
    for (; *output; ++output) hash = (hash ^ (unsigned char)*output) * 1099511628211ULL;
    return (off_t)(hash >> 2);
}

static void wait_for_same(int file, const char *output) {
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = place(output), .l_len = 1};
    while (fcntl(file, F_OFD_SETLKW, &range) != 0 && errno == EINTR) {}
}

static int lock(int file, short type, off_t start, off_t length) {
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    return fcntl(file, F_OFD_SETLK, &range) == 0;
}

/* Locks WANTED of the first ALL bytes; none where fewer are free. */
static int take(int file, int wanted, int all) {
    int taken = 0;
    for (int at = 0; at < all && taken < wanted; ++at) taken += lock(file, F_WRLCK, at, 1);
    if (taken < wanted) lock(file, F_UNLCK, 0, 0);
    return taken == wanted;
}

static int higher_waits(const int *queues, int rank) {
    for (int other = rank + 1; other < RANKS; ++other) {
        if (flock(queues[other], LOCK_SH | LOCK_NB) != 0) return 1;
        flock(queues[other], LOCK_UN);
    }
    return 0;
}

/* Takes a slot and BLOCKS of memory, unless they are not free or a unit above RANK waits. */
static int take_both(int slots, int memory, int blocks, const int *queues, int rank) {
    if (higher_waits(queues, rank) || !take(slots, 1, number("UNIT_JOBS"))) return 0;
    if (take(memory, blocks, number("UNIT_MEMORY"))) return 1;
    lock(slots, F_UNLCK, 0, 0);
    return 0;
}

void claim(const char *output) {
    if (!getenv("UNIT_POOL")) return;
    int budget = number("UNIT_MEMORY"), rank, blocks, queues[RANKS];
    off_t row;
    int claims = look_up(output, &rank, &blocks, &row);
    if (blocks > budget) blocks = budget; /* it runs alone */
    int slots = opened("slots"), memory = opened("memory"), units = opened("units");
    int failed = slots < 0 || memory < 0 || units < 0;
    for (int other = rank; other < RANKS; ++other) failed |= (queues[other] = opened_queue(other)) < 0;
    if (failed) return; /* said by `opened`; a unit without a claim is better than none */
    if (!is_cuda(output)) wait_for_same(units, output);
    flock(queues[rank], LOCK_EX);
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    while (!take_both(slots, memory, blocks, queues, rank)) nanosleep(&pause, NULL);
    for (int other = rank; other < RANKS; ++other) close(queues[other]);
    if (claims >= 0) lock(claims, F_RDLCK, row, 1); /* for pool.py to see */
    /* `slots`, `memory`, `units` and the claims stay open until this process ends */
}

int claim_spare(const char *output, int (*given_up)(void)) {
    if (!getenv("UNIT_POOL")) return 0;
    int rank, blocks, queues[RANKS], is_next = 0;
    off_t row;
    look_up(output, &rank, &blocks, &row);
    if (2 * blocks > number("UNIT_MEMORY")) return 0; /* the unit has the rest */
    int slots = opened("slots"), memory = opened("memory");
    int failed = slots < 0 || memory < 0;
    for (int other = rank; other < RANKS; ++other) failed |= (queues[other] = opened_queue(other)) < 0;
    if (failed) return 0;
    do {
        is_next = is_next || flock(queues[rank], LOCK_EX | LOCK_NB) == 0;
        if (is_next && take_both(slots, memory, blocks, queues, rank)) {
            close(queues[rank]);
            return 1;
        }
    } while (!given_up());
    return 0;
}
