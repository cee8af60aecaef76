/* One pool of job slots and memory for the compilers of all builds on a machine.
 *
 *     UNIT_POOL    the folder that all builds share
 *     UNIT_JOBS    the number of compilers that run at once
 *     UNIT_MEMORY  the memory for all of them, in blocks
 *     UNIT_BLOCK   the MiB of a block (BLOCK_MIB of pool.py)
 *     UNIT_CLAIMS  a file with a line `output <tab> rank <tab> blocks <tab> after_ptx <tab> common` for each unit;
 *                  a running unit locks its line
 *
 * A slot is a byte of the pool's file `slots`, a MiB of memory a byte of `memory`, so that builds of two commits count
 * the same memory, whatever their blocks' sizes. A process has a slot or block as long as it holds the kernel's lock on
 * these bytes; the kernel releases the locks of a killed process. Units wait by rank, the highest first; units of one
 * rank queue on the file `wait-RANK`. Lighter units do not overtake a unit that waits for memory; else the heaviest
 * unit would come last and run alone at the end.
 *
 * A unit has `blocks` of memory until nvcc.py has made its PTX, and `after_ptx` of them from then on. The locks on the
 * others are of file descriptors that the compiler inherits (UNIT_UNTIL_PTX), so nvcc.py gives them up. If the unit is
 * killed, they last until the last process that inherited them has ended.
 *
 * Builds of several variants reach the same unit at the same time. Where `common` is 1, one of them compiles the unit;
 * the others wait without a slot, and then find what they have in common in the compiler cache. Pieces of other CUDA
 * units are locked one by one (nvcc.py). nvcc.py makes pieces of one unit in parallel: each beyond the first waits for
 * a slot as the unit did, and for as much memory as the unit has at that time.
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

enum { RANKS = 32, OTHERS_BLOCKS = 8 };

static int opened(const char *name, int inherited) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("UNIT_POOL"), name);
    int file = open(path, O_RDWR | O_CREAT | (inherited ? 0 : O_CLOEXEC), 0666);
    if (file < 0) fprintf(stderr, "unit: %s cannot be opened: %s\n", path, strerror(errno));
    return file;
}

static int opened_queue(int rank) {
    char name[32];
    snprintf(name, sizeof name, "wait-%02d", rank);
    return opened(name, 0);
}

static int number(const char *name) {
    const char *text = getenv(name);
    int value = text ? atoi(text) : 0;
    return value > 0 ? value : 1;
}

struct claims {
    int rank, blocks, after_ptx, common;
    off_t row; /* the offset of the unit's line; its first byte is locked for `after_ptx`, the second for the rest */
};

/* Sets a unit's claims from UNIT_CLAIMS. Returns that file, open. For a unit that is not listed, sets rank 0,
 * OTHERS_BLOCKS and not common, and returns -1. */
static int look_up(const char *output, struct claims *its) {
    *its = (struct claims){.blocks = OTHERS_BLOCKS, .after_ptx = OTHERS_BLOCKS};
    const char *path = getenv("UNIT_CLAIMS");
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file) return -1;
    char line[4096];
    size_t length = strlen(output);
    while (its->row = ftello(file), fgets(line, sizeof line, file)) {
        if (strncmp(line, output, length) == 0 && line[length] == '\t') {
            sscanf(line + length, "%d %d %d %d", &its->rank, &its->blocks, &its->after_ptx, &its->common);
            its->rank = its->rank < 0 ? 0 : its->rank < RANKS ? its->rank : RANKS - 1;
            return fileno(file);
        }
    }
    fclose(file);
    return -1;
}

/* Returns the unit's byte in the file `units`: FNV-1a of its name. */
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

/* Locks WANTED of the first ALL pieces of SIZE bytes, or none where fewer are free. Returns whether it locked them. */
static int take(int file, int wanted, int all, int size) {
    int taken = 0;
    for (int at = 0; at < all && taken < wanted; ++at) taken += lock(file, F_WRLCK, (off_t)at * size, size);
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

/* Open files of the pool, and the number of blocks to lock in them. */
struct room {
    int slots, memory, until_ptx; /* the last is the file `memory` once more; unused where `rest` is 0 */
    int blocks, rest;             /* to lock in `memory` and in `until_ptx` */
};

/* Takes a slot and memory if they are free and no unit above RANK waits. Returns whether it took them. */
static int take_all(const struct room *room, const int *queues, int rank) {
    int budget = number("UNIT_MEMORY"), block = number("UNIT_BLOCK");
    if (higher_waits(queues, rank) || !take(room->slots, 1, number("UNIT_JOBS"), 1)) return 0;
    if (take(room->memory, room->blocks, budget, block)) {
        if (take(room->until_ptx, room->rest, budget, block)) return 1;
        lock(room->memory, F_UNLCK, 0, 0);
    }
    lock(room->slots, F_UNLCK, 0, 0);
    return 0;
}

/* Locks a byte of UNIT_CLAIMS for pool.py to see, and tells nvcc.py which files to unlock. */
static void lend(int until_ptx, off_t row) {
    int claims = open(getenv("UNIT_CLAIMS"), O_RDONLY);
    if (claims < 0) return; /* the unit has all of its memory until it ends */
    lock(claims, F_RDLCK, row, 1);
    char descriptors[32];
    snprintf(descriptors, sizeof descriptors, "%d %d", until_ptx, claims);
    setenv("UNIT_UNTIL_PTX", descriptors, 1);
}

void claim(const char *output) {
    if (!getenv("UNIT_POOL")) return;
    int budget = number("UNIT_MEMORY"), queues[RANKS];
    struct claims its;
    int claims = look_up(output, &its), rank = its.rank;
    int blocks = its.blocks < budget ? its.blocks : budget; /* the unit has all memory then */
    int first = its.after_ptx < blocks ? its.after_ptx : blocks;
    struct room room = {opened("slots", 0), opened("memory", 0), .blocks = first, .rest = blocks - first};
    if (room.rest) room.until_ptx = opened("memory", 1);
    int units = opened("units", 0);
    int failed = room.slots < 0 || room.memory < 0 || room.until_ptx < 0 || units < 0;
    for (int other = rank; other < RANKS; ++other) failed |= (queues[other] = opened_queue(other)) < 0;
    if (failed) return; /* `opened` has printed why; the unit is compiled without a claim */
    if (its.common) wait_for_same(units, output);
    flock(queues[rank], LOCK_EX);
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    while (!take_all(&room, queues, rank)) nanosleep(&pause, NULL);
    for (int other = rank; other < RANKS; ++other) close(queues[other]);
    if (claims >= 0) lock(claims, F_RDLCK, its.row, 1); /* for pool.py to see */
    if (room.rest) lend(room.until_ptx, its.row + 1);
    /* the files of `room`, `units` and the claims stay open until this process ends */
}

int claim_spare(const char *output, int (*given_up)(void)) {
    if (!getenv("UNIT_POOL")) return 0;
    int queues[RANKS], is_next = 0;
    struct claims its;
    look_up(output, &its);
    int rank = its.rank, blocks = getenv("UNIT_UNTIL_PTX") ? its.blocks : its.after_ptx;
    if (2 * blocks > number("UNIT_MEMORY")) return 0; /* the unit has the rest */
    struct room room = {opened("slots", 0), opened("memory", 0), .blocks = blocks};
    int failed = room.slots < 0 || room.memory < 0;
    for (int other = rank; other < RANKS; ++other) failed |= (queues[other] = opened_queue(other)) < 0;
    if (failed) return 0;
    do {
        is_next = is_next || flock(queues[rank], LOCK_EX | LOCK_NB) == 0;
        if (is_next && take_all(&room, queues, rank)) {
            close(queues[rank]);
            return 1;
        }
    } while (!given_up());
    return 0;
}
