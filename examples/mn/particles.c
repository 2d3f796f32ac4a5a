/* SPDX-License-Identifier: Apache-2.0 */
#include "particles.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const float softening = 0.05f, mass = 0.05f;

void slab_open(struct slab *slab, MPI_Comm comm) {
    slab->comm = comm;
    MPI_Comm_rank(comm, &slab->rank);
    MPI_Comm_size(comm, &slab->ranks);
    slab->low = EDGE * (float)slab->rank / (float)slab->ranks;
    slab->high = EDGE * (float)(slab->rank + 1) / (float)slab->ranks;
    slab->left = (slab->rank + slab->ranks - 1) % slab->ranks;
    slab->right = (slab->rank + 1) % slab->ranks;
}

void stars_reserve(struct stars *stars, long count) {
    if (count <= stars->room) return;
    const long room = count + count / 2;
    stars->x = realloc(stars->x, (size_t)room * 3 * sizeof(float));
    stars->v = realloc(stars->v, (size_t)room * 3 * sizeof(float));
    stars->id = realloc(stars->id, (size_t)room * sizeof(int64_t));
    if (stars->x == NULL || stars->v == NULL || stars->id == NULL) {
        fprintf(stderr, "simulation: no memory for %ld stars\n", room);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    stars->room = room;
}

/* From 0 to 1: a linear congruential generator (Knuth's MMIX), its upper bits. */
static float at_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) / (float)(1 << 24);
}

void stars_open(struct stars *stars, const struct slab *slab, long count) {
    uint64_t state = 1 + (uint64_t)slab->rank;
    *stars = (struct stars){0};
    stars_reserve(stars, count);
    stars->own = count;
    for (long i = 0; i < count; i++) {
        stars->x[3 * i] = slab->low + (slab->high - slab->low) * at_random(&state);
        for (int d = 1; d < 3; d++) stars->x[3 * i + d] = EDGE * at_random(&state);
        for (int d = 0; d < 3; d++) stars->v[3 * i + d] = 0.4f * (at_random(&state) - 0.5f);
        stars->id[i] = slab->rank * count + i;
        /* The upper end belongs to the next slab. */
        if (stars->x[3 * i] >= slab->high) stars->x[3 * i] = slab->low;
    }
}

void stars_close(struct stars *stars) {
    free(stars->x);
    free(stars->v);
    free(stars->id);
}

void stars_move(struct stars *stars, float dt) {
    stars->ghosts = 0;
    for (long i = 0; i < stars->own; i++) {
        float *x = stars->x + 3 * i, *v = stars->v + 3 * i, r2 = softening * softening;
        for (int d = 0; d < 3; d++) r2 += (x[d] - EDGE / 2) * (x[d] - EDGE / 2);
        const float pull = mass / (r2 * sqrtf(r2));
        for (int d = 0; d < 3; d++) {
            v[d] -= dt * pull * (x[d] - EDGE / 2);
            x[d] += dt * v[d];
            x[d] -= EDGE * floorf(x[d] / EDGE);
            if (x[d] >= EDGE) x[d] = 0; /* what rounding makes of a place just below 0 */
        }
    }
}
