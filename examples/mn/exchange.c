/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parcel {
    float x[3], v[3];
    int64_t id;
};

/* Stars on their way to one neighbour. */
struct outbox {
    struct parcel *parcels;
    long count, room;
};

static void add(struct outbox *box, const struct stars *stars, long i) {
    if (box->count == box->room) {
        box->room = 2 * box->room + 64;
        box->parcels = realloc(box->parcels, (size_t)box->room * sizeof *box->parcels);
        if (box->parcels == NULL) {
            fprintf(stderr, "simulation: no memory for %ld stars on their way\n", box->room);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    struct parcel *parcel = &box->parcels[box->count++];
    memcpy(parcel->x, stars->x + 3 * i, sizeof parcel->x);
    memcpy(parcel->v, stars->v + 3 * i, sizeof parcel->v);
    parcel->id = stars->id[i];
}

/* Sends one way and takes what comes from the other side: behind all that is there. Returns how many came. */
static long pass(struct stars *stars, const struct slab *slab, struct outbox *box, int to, int from) {
    long coming = 0;
    const int one = (int)sizeof(struct parcel);
    MPI_Sendrecv(&box->count, 1, MPI_LONG, to, 0, &coming, 1, MPI_LONG, from, 0, slab->comm, MPI_STATUS_IGNORE);
    struct parcel *came = malloc((size_t)(coming > 0 ? coming : 1) * sizeof *came);
    if (came == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Sendrecv(box->parcels, (int)box->count * one, MPI_BYTE, to, 1, came, (int)coming * one, MPI_BYTE, from, 1, slab->comm,
                 MPI_STATUS_IGNORE);
    const long before = stars->own + stars->ghosts;
    stars_reserve(stars, before + coming);
    for (long i = 0; i < coming; i++) {
        memcpy(stars->x + 3 * (before + i), came[i].x, sizeof came[i].x);
        memcpy(stars->v + 3 * (before + i), came[i].v, sizeof came[i].v);
        stars->id[before + i] = came[i].id;
    }
    free(came);
    free(box->parcels);
    *box = (struct outbox){0};
    return coming;
}

static int is_home(const struct slab *slab, float x) { return x >= slab->low && x < slab->high; }

/* How far to the right of this slab a place lies, around the box. */
static float to_the_right(const struct slab *slab, float x) {
    const float away = x - slab->low;
    return away < 0 ? away + EDGE : away;
}

void exchange_own(struct stars *stars, const struct slab *slab) {
    for (;;) {
        struct outbox left = {0}, right = {0};
        long kept = 0, away = 0;
        for (long i = 0; i < stars->own; i++) {
            if (!is_home(slab, stars->x[3 * i])) {
                add(to_the_right(slab, stars->x[3 * i]) < EDGE / 2 ? &right : &left, stars, i);
                continue;
            }
            memmove(stars->x + 3 * kept, stars->x + 3 * i, 3 * sizeof(float));
            memmove(stars->v + 3 * kept, stars->v + 3 * i, 3 * sizeof(float));
            stars->id[kept++] = stars->id[i];
        }
        stars->own = kept;
        stars->own += pass(stars, slab, &left, slab->left, slab->right);
        stars->own += pass(stars, slab, &right, slab->right, slab->left);
        for (long i = kept; i < stars->own; i++) away += !is_home(slab, stars->x[3 * i]);
        MPI_Allreduce(MPI_IN_PLACE, &away, 1, MPI_LONG, MPI_SUM, slab->comm);
        if (away == 0) return;
    }
}

void exchange_ghosts(struct stars *stars, const struct slab *slab) {
    struct outbox left = {0}, right = {0};
    stars->ghosts = 0;
    for (long i = 0; i < stars->own; i++) {
        if (stars->x[3 * i] < slab->low + REACH) add(&left, stars, i);
        if (stars->x[3 * i] >= slab->high - REACH) add(&right, stars, i);
    }
    stars->ghosts += pass(stars, slab, &left, slab->left, slab->right);
    stars->ghosts += pass(stars, slab, &right, slab->right, slab->left);
}
