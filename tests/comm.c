/* A rank of a communicator: comm NAME RANK SIZE. Checks messages, collectives and requests; prints what a few failures say. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forebay_comm.h"

static void check(int result, const char *what) {
    if (result == FB_OK) return;
    fprintf(stderr, "%s: %s\n", what, fb_error());
    exit(1);
}

static void same(double found, double wanted, const char *what) {
    if (found == wanted) return;
    fprintf(stderr, "%s: %g instead of %g\n", what, found, wanted);
    exit(1);
}

/* Of 2 x 2 matrices, one after the other. */
static int multiply(const void *lower, void *higher, uint64_t count, void *user) {
    const double *a = lower;
    double *b = higher;
    *(int *)user += 1;
    for (uint64_t i = 0; i < count; i++, a += 4, b += 4) {
        double c[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2],
                       a[2] * b[1] + a[3] * b[3]};
        memcpy(b, c, sizeof(c));
    }
    return 0;
}

static int refuses(const void *lower, void *higher, uint64_t count, void *user) {
    (void)lower, (void)higher, (void)count, (void)user;
    return 7;
}

static void collectives(fb_comm *comm, int rank, int size) {
    double mine[5], all[5 * 8], sum[5];
    uint64_t counts[8], bytes[8];
    for (int i = 0; i < 5; i++) mine[i] = rank + 10 * i;
    check(fb_comm_allreduce(comm, mine, sum, 5, FB_F64, FB_OP_SUM), "allreduce");
    same(sum[2], size * 20 + size * (size - 1) / 2, "sum");
    memcpy(sum, mine, sizeof(sum));
    check(fb_comm_reduce(comm, sum, sum, 5, FB_F64, FB_OP_MAX, 1), "reduce in place");
    same(sum[0], rank == 1 ? size - 1 : rank, "the root's, the others' as they were");
    check(fb_comm_scan(comm, mine, sum, 5, FB_F64, FB_OP_SUM), "scan");
    same(sum[0], rank * (rank + 1) / 2, "sum up to here");
    check(fb_comm_exscan(comm, mine, sum, 5, FB_F64, FB_OP_SUM), "exscan");
    if (rank > 0) same(sum[0], rank * (rank - 1) / 2, "sum below");
    check(fb_comm_allgather(comm, mine, sizeof(mine), all), "allgather");
    same(all[5 * (size - 1)], size - 1, "the last one's");
    memset(all, 0, sizeof(all));
    memcpy(all + 5 * rank, mine, sizeof(mine));
    check(fb_comm_allgather(comm, all + 5 * rank, sizeof(mine), all), "allgather in place");
    same(all[5 * (size - 1) + 1], size - 1 + 10, "the last one's");
    for (int i = 0; i < size; i++) counts[i] = (uint64_t)i + 1, bytes[i] = 8 * counts[i];
    check(fb_comm_gatherv(comm, mine, bytes[rank], all, bytes, 0), "gatherv");
    if (rank == 0) same(all[3], 2, "the third one's first");
    check(fb_comm_scatterv(comm, all, bytes, sum, bytes[rank], 0), "scatterv");
    same(sum[rank], rank + 10 * rank, "back again");
    double given[8 * 8];
    for (int i = 0; i < size; i++) given[i] = 100 * rank + i;
    check(fb_comm_alltoall(comm, given, all, 8), "alltoall");
    same(all[size - 1], 100 * (size - 1) + rank, "from the last one");
    check(fb_comm_alltoall(comm, given, given, 8), "alltoall in place");
    same(given[size - 1], 100 * (size - 1) + rank, "from the last one");
    int blocks = size * (size + 1) / 2;
    for (int i = 0; i < blocks; i++) given[i] = i;
    check(fb_comm_reduce_scatter(comm, given, all, counts, FB_F64, FB_OP_SUM), "reduce_scatter");
    same(all[0], size * rank * (rank + 1) / 2, "its block");
    struct { double value; int32_t place; } place = {(rank - 1) * (rank - 1), rank}, least;
    check(fb_comm_allreduce(comm, &place, &least, 1, FB_F64_PLACE, FB_OP_MIN_LOCATION), "minloc");
    same(least.place, 1, "where it is least");
    fb_comm_request *requests[3] = {NULL, NULL, NULL};
    check(fb_comm_ibarrier(comm, &requests[0]), "ibarrier");
    check(fb_comm_iallreduce(comm, mine, sum, 5, FB_F64, FB_OP_SUM, &requests[1]), "iallreduce");
    int32_t number = rank == 2 ? 77 : 0;
    check(fb_comm_ibcast(comm, &number, sizeof(number), 2, &requests[2]), "ibcast");
    check(fb_comm_wait_all(requests, 3), "wait_all");
    same(number, 77, "of rank 2");
    if (requests[0] || requests[1] || requests[2]) exit(1);
}

static void messages(fb_comm *comm, int rank, int size) {
    fb_comm_status status;
    int up = (rank + 1) % size, down = (rank + size - 1) % size, there, done = 0;
    size_t count = 1 << 20;
    char *out = malloc(count), *in = malloc(count);
    memset(out, 'a' + rank, count);
    check(fb_comm_sendrecv(comm, (uint32_t)up, 5, out, count, FB_ANY, FB_ANY, in, count, &status), "sendrecv");
    if ((int)status.source != down || status.tag != 5 || status.bytes != count || in[count - 1] != 'a' + down) exit(1);
    fb_comm_request *requests[2];
    check(fb_comm_irecv(comm, down, 9, in, count, &requests[0]), "irecv");
    check(fb_comm_isend(comm, (uint32_t)up, 9, out, 3, &requests[1]), "isend");
    for (int i = 0; i < 2; i++) {
        uint64_t index;
        check(fb_comm_wait_any(requests, 2, &index, &status), "wait_any");
        if (index == 0 && status.bytes != 3) exit(1);
    }
    uint64_t index;
    if (fb_comm_wait_any(requests, 2, &index, NULL) != FB_ENDED || index != 2) exit(1);
    check(fb_comm_iprobe(comm, FB_ANY, 123, &there, NULL), "iprobe");
    check(fb_comm_irecv(comm, FB_ANY, 123, in, count, &requests[0]), "irecv");
    check(fb_comm_test(&requests[0], &done, NULL), "test");
    check(fb_comm_cancel(&requests[0]), "cancel");
    if (there || done || requests[0]) exit(1);
    check(fb_comm_send(comm, (uint32_t)rank, 1, "to me", 6), "send to itself");
    check(fb_comm_probe(comm, rank, FB_ANY, &status), "probe");
    check(fb_comm_recv(comm, rank, (int64_t)status.tag, in, status.bytes, NULL), "recv");
    if (strcmp(in, "to me") != 0) exit(1);
    free(out);
    free(in);
}

static void pictures(fb_comm *comm, int rank, int size) {
    unsigned char colors[4 * 6], into[4 * 6];
    float depths[6];
    for (int i = 0; i < 6; i++) {
        memset(colors + 4 * i, rank + 1, 4);
        depths[i] = i == 5 ? 1 : (float)((rank + i) % size + 1) / 10;
    }
    check(fb_comm_composite_nearest(comm, colors, depths, 6, 1.0, 1, 1), "composite_nearest");
    for (int i = 0; rank == 1 && i < 6; i++) same(colors[4 * i], i == 5 ? 2 : (2 * size - i) % size + 1, "the nearest");
    if (rank == 1) same(depths[0], 0.1f, "its depth");
    unsigned char half[4 * 6];
    for (int i = 0; i < 24; i++) half[i] = i % 4 == 3 ? 128 : rank == 2 ? 100 : 0;
    const void *layers[1] = {half};
    uint32_t position = (uint32_t)(size - rank);
    check(fb_comm_composite_over(comm, layers, &position, rank > 0, 6, FB_U8, into, FB_ALL_RANKS), "composite_over");
    same(into[0], 100, "what is in front");
    same(into[3], 192, "half, and half of half");
    double boxes[12] = {0, 0, 0, 1, 1, 1, 1, 0, 0, 2, 1, 1}, eye[3] = {5, 0, 0}, direction[3] = {1, 0, 0};
    uint64_t order[2];
    check(fb_front_to_back(boxes, 2, eye, NULL, order), "front_to_back");
    same(order[0], 1, "the nearer");
    check(fb_front_to_back(boxes, 2, NULL, direction, order), "front_to_back along");
    same(order[0], 0, "the first");
}

static void functions(fb_comm *comm, int rank, int size) {
    int calls = 0;
    int32_t op;
    double shear[4] = {1, rank, 0, 1}, all[4], turn[4] = {rank == 0 ? 0 : 1, rank == 0, rank == 0, rank == 0 ? 0 : 1};
    check(fb_comm_function_op(comm, multiply, &calls, &op), "function_op");
    check(fb_comm_allreduce(comm, shear, all, 1, FB_ELEMENT(32), op), "allreduce by a function");
    same(all[1], size * (size - 1) / 2, "all shears");
    double first[4] = {turn[0] + shear[0] * 0, turn[1], turn[2], turn[3]};
    check(fb_comm_scan(comm, rank == 0 ? first : shear, all, 1, FB_ELEMENT(32), op), "scan by a function");
    if (rank == 1) same(all[3], 1, "a turn, then a shear: not the other way round");
    if (size > 1 && calls == 0) exit(1);
}

static void failures(fb_comm *comm, int rank) {
    double x = 1;
    int32_t op;
    struct { int result; const char *what; } told[] = {
        {fb_comm_send(comm, 99, 0, &x, 8), "no rank"},
        {fb_comm_recv(comm, -5, 0, &x, 8, NULL), "no source"},
        {fb_comm_send(comm, 0, 0, NULL, 8), "no bytes"},
        {fb_comm_allreduce(comm, &x, &x, 1, 4711, FB_OP_SUM), "no dtype"},
        {fb_comm_allreduce(comm, &x, &x, 1, FB_F64, 4711), "no operation"},
        {fb_comm_allreduce(comm, &x, &x, 1, FB_F64, FB_OP_BIT_OR), "not defined"},
        {fb_comm_allreduce(comm, &x, &x, UINT64_MAX, FB_F64, FB_OP_SUM), "too many"},
        {fb_comm_gatherv(comm, &x, 8, &x, NULL, (uint32_t)rank), "no counts"},
        {fb_comm_function_op(comm, NULL, NULL, &op), "no function"},
        {fb_comm_rank(NULL, NULL), "no communicator"},
        {fb_comm_composite_nearest(comm, &x, &x, 2, 1.0, 0, -2), "no root"},
        {fb_comm_composite_nearest(comm, &x, NULL, 2, 1.0, 0, 0), "no depths"},
        {fb_comm_composite_nearest(comm, &x, &x, UINT64_MAX, 1.0, 0, 0), "too many pixels"},
        {fb_comm_composite_over(comm, NULL, NULL, 1, 2, FB_U8, &x, 0), "no layers"},
        {fb_comm_composite_over(comm, NULL, NULL, 0, 2, FB_F64, &x, 0), "no channels"},
        {fb_front_to_back(&x, 0, NULL, NULL, NULL), "no view"},
    };
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        if (told[i].result == FB_INVALID) continue;
        fprintf(stderr, "%s: %d\n", told[i].what, told[i].result);
        exit(1);
    }
}

/* Rank 1 cannot go on in a copy: the others hear why, and the communicator itself goes on. */
static void revoked(fb_comm *comm, int rank) {
    fb_comm *copy;
    check(fb_comm_dup(comm, &copy), "dup");
    if (rank == 1) check(fb_comm_revoke(copy, "no memory"), "revoke");
    int result = fb_comm_barrier(copy);
    if (result != FB_UNREACHABLE || !strstr(fb_error(), "rank 1 has revoked communicator")
        || !strstr(fb_error(), ": no memory")) {
        fprintf(stderr, "revoked: %d %s\n", result, fb_error());
        exit(1);
    }
    if (fb_comm_revoke(copy, NULL) != FB_INVALID) exit(1);
    check(fb_comm_close(copy), "close");
    check(fb_comm_barrier(comm), "barrier");
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    fb_comm *comm, *part, *copy;
    uint32_t rank, size, inner;
    int32_t op;
    check(fb_comm_open(argv[1], (uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]), NULL, 30.0, &comm), "open");
    check(fb_comm_rank(comm, &rank), "rank");
    check(fb_comm_size(comm, &size), "size");
    check(fb_comm_set_timeout(comm, 30.0), "set_timeout");
    collectives(comm, (int)rank, (int)size);
    messages(comm, (int)rank, (int)size);
    functions(comm, (int)rank, (int)size);
    pictures(comm, (int)rank, (int)size);
    failures(comm, (int)rank);
    if (size > 1) revoked(comm, (int)rank);
    check(fb_comm_split(comm, rank == 0 ? -1 : 3, -(int64_t)rank, &part), "split");
    if ((part == NULL) != (rank == 0)) return 1;
    if (part) {
        check(fb_comm_rank(part, &inner), "rank in the part");
        same(inner, size - 1 - rank, "the order of the part");
        check(fb_comm_barrier(part), "barrier of the part");
    }
    check(fb_comm_close(part), "close the part");
    check(fb_comm_dup(comm, &copy), "dup");
    check(fb_comm_close(comm), "close");
    check(fb_comm_function_op(copy, refuses, NULL, &op), "function_op");
    double x = 1;
    int failed = fb_comm_allreduce(copy, &x, &x, 1, FB_F64, op);
    if (failed == FB_OK) failed = fb_comm_barrier(copy);
    printf("%s\n", strstr(fb_error(), "returned 7") ? "as it should" : fb_error());
    return fb_comm_close(copy) != FB_OK || failed == FB_OK;
}
