/* One rank of `forebay bench collectives`: how long messages and collectives take, by Forebay's communicator or by MPI.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Compiled once with -DWITH_MPI for each MPI, and once without. collectives WHAT[,WHAT...] BYTES[,BYTES...] SECONDS
 * Rank 0 prints a line for each: what, bytes, seconds of one call, how many calls.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef WITH_MPI
#include <mpi.h>
#else
#include "forebay_comm.h"
#endif

static int rank, size;
static char *mine, *theirs;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

#ifdef WITH_MPI

static void check(int result) {
    if (result != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
}

static void begin(int *argc, char ***argv) {
    check(MPI_Init(argc, argv));
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    check(MPI_Comm_size(MPI_COMM_WORLD, &size));
}

static void end(void) { check(MPI_Finalize()); }

static void send_to(int other, const void *bytes, size_t count) {
    check(MPI_Send(bytes, (int)count, MPI_BYTE, other, 0, MPI_COMM_WORLD));
}

static void receive_from(int other, void *bytes, size_t count) {
    check(MPI_Recv(bytes, (int)count, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

static void barrier(void) { check(MPI_Barrier(MPI_COMM_WORLD)); }

static void make_another(void) {
    MPI_Comm another;
    check(MPI_Comm_dup(MPI_COMM_WORLD, &another));
    check(MPI_Comm_free(&another));
}

static void bcast(size_t count) { check(MPI_Bcast(mine, (int)count, MPI_BYTE, 0, MPI_COMM_WORLD)); }

static void reduce(size_t count) {
    check(MPI_Reduce(mine, theirs, (int)(count / 8), MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD));
}

static void allreduce(size_t count) {
    check(MPI_Allreduce(mine, theirs, (int)(count / 8), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
}

static void allgather(size_t count) {
    check(MPI_Allgather(mine, (int)count, MPI_BYTE, theirs, (int)count, MPI_BYTE, MPI_COMM_WORLD));
}

static void alltoall(size_t count) {
    check(MPI_Alltoall(mine, (int)count, MPI_BYTE, theirs, (int)count, MPI_BYTE, MPI_COMM_WORLD));
}

#else

static fb_comm *comm;

static void check(int result) {
    if (result == FB_OK) return;
    fprintf(stderr, "rank %d: %s\n", rank, fb_error());
    exit(1);
}

static void begin(int *argc, char ***argv) {
    (void)argc, (void)argv;
    rank = atoi(getenv("FOREBAY_RANK"));
    size = atoi(getenv("FOREBAY_SIZE"));
    check(fb_comm_open(getenv("FOREBAY_COMM"), (uint32_t)rank, (uint32_t)size, NULL, 30.0, &comm));
}

static void end(void) {
    check(fb_comm_barrier(comm));
    check(fb_comm_close(comm));
}

static void send_to(int other, const void *bytes, size_t count) {
    check(fb_comm_send(comm, (uint32_t)other, 0, bytes, count));
}

static void receive_from(int other, void *bytes, size_t count) {
    check(fb_comm_recv(comm, other, 0, bytes, count, NULL));
}

static void barrier(void) { check(fb_comm_barrier(comm)); }

static void make_another(void) {
    fb_comm *another;
    check(fb_comm_split(comm, 0, 0, &another));
    check(fb_comm_close(another));
}

static void bcast(size_t count) { check(fb_comm_bcast(comm, mine, count, 0)); }

static void reduce(size_t count) { check(fb_comm_reduce(comm, mine, theirs, count / 8, FB_F64, FB_OP_SUM, 0)); }

static void allreduce(size_t count) {
    check(fb_comm_allreduce(comm, mine, theirs, count / 8, FB_F64, FB_OP_SUM));
}

static void allgather(size_t count) { check(fb_comm_allgather(comm, mine, count, theirs)); }

static void alltoall(size_t count) { check(fb_comm_alltoall(comm, mine, theirs, count)); }

#endif

/* There and back between ranks 0 and 1: half of that is one message. */
static void sendrecv(size_t count) {
    if (rank == 0) {
        send_to(1, mine, count);
        receive_from(1, theirs, count);
    } else if (rank == 1) {
        receive_from(0, theirs, count);
        send_to(0, mine, count);
    }
}

static void barrier_of(size_t count) {
    (void)count;
    barrier();
}

static void dup_of(size_t count) {
    (void)count;
    make_another();
}

static const struct {
    const char *name;
    void (*call)(size_t count);
    double share; /* of a call that is told */
} WHATS[] = {
    {"sendrecv", sendrecv, 0.5},   {"barrier", barrier_of, 1.0},  {"bcast", bcast, 1.0},       {"reduce", reduce, 1.0},
    {"allreduce", allreduce, 1.0}, {"allgather", allgather, 1.0}, {"alltoall", alltoall, 1.0}, {"dup", dup_of, 1.0},
};

/* What was computed is right. */
static void check_sums(size_t count) {
    double *given = (double *)mine, *sums = (double *)theirs;
    for (size_t i = 0; i < count / 8; i++) given[i] = (double)(i % 100) + rank;
    allreduce(count);
    for (size_t i = 0; i < count / 8; i++) {
        if (sums[i] == size * (double)(i % 100) + size * (size - 1) / 2.0) continue;
        fprintf(stderr, "rank %d: element %zu is %g\n", rank, i, sums[i]);
        exit(1);
    }
}

static double measured(void (*call)(size_t), size_t count, long calls) {
    barrier();
    double began = now();
    for (long i = 0; i < calls; i++) call(count);
    barrier();
    return (now() - began) / (double)calls;
}

static void measure(const char *name, size_t count, double seconds) {
    for (size_t i = 0; i < sizeof(WHATS) / sizeof(WHATS[0]); i++) {
        if (strcmp(WHATS[i].name, name) != 0) continue;
        measured(WHATS[i].call, count, 3);
        double once = measured(WHATS[i].call, count, 10);
        long calls = (long)(seconds / once);
        calls = calls < 5 ? 5 : calls > 200000 ? 200000 : calls;
        /* All ranks do it as often as rank 0 says. */
        if (rank == 0) {
            for (int other = 1; other < size; other++) send_to(other, &calls, sizeof(calls));
        } else {
            receive_from(0, &calls, sizeof(calls));
        }
        double each = measured(WHATS[i].call, count, calls) * WHATS[i].share;
        if (rank == 0) printf("%s %zu %.9f %ld\n", name, count, each, calls);
        return;
    }
    fprintf(stderr, "no measurement '%s'\n", name);
    exit(2);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    if (argc != 4) return fprintf(stderr, "usage: collectives WHAT,... BYTES,... SECONDS\n"), 2;
    double seconds = atof(argv[3]);
    size_t most = 1 << 16;
    for (char *at = argv[2]; *at; at++) {
        size_t count = strtoull(at, &at, 10);
        if (count > most) most = count;
        if (!*at) break;
    }
    mine = malloc(most * (size_t)size);
    theirs = malloc(most * (size_t)size);
    if (!mine || !theirs) return fprintf(stderr, "no memory\n"), 1;
    memset(mine, 1, most * (size_t)size);
    memset(theirs, 2, most * (size_t)size);
    check_sums(most);
    char *rest = argv[1];
    for (char *name = strtok_r(rest, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        for (char *at = argv[2]; *at; at++) {
            measure(name, strtoull(at, &at, 10), seconds);
            if (!*at || strcmp(name, "barrier") == 0 || strcmp(name, "dup") == 0) break;
        }
    }
    fflush(stdout);
    end();
    return 0;
}
