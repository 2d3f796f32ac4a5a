/* SPDX-License-Identifier: Apache-2.0 */
/* Stars around a heavy mass in the middle of a periodic box, which is cut into slabs along x: one for each rank. */
#ifndef PARTICLES_H
#define PARTICLES_H

#include <mpi.h>
#include <stdint.h>

#define EDGE 1.0f   /* of the box, from 0 to 1 in each dimension */
#define REACH 0.02f /* how far into its neighbours' slabs a rank sees: their stars there are its ghosts */

struct slab {
    float low, high; /* along x */
    int rank, ranks, left, right;
    MPI_Comm comm;
};

struct stars {
    float *x, *v; /* places and velocities: three numbers for each star */
    int64_t *id;
    long own, ghosts; /* the ghosts lie behind a rank's own stars */
    long room;
};

void slab_open(struct slab *slab, MPI_Comm comm);

/* `count` stars on each rank, at places that depend on the rank alone. */
void stars_open(struct stars *stars, const struct slab *slab, long count);
void stars_close(struct stars *stars);
/* Makes room for so many. */
void stars_reserve(struct stars *stars, long count);
/* One step of the leapfrog. Ghosts are gone after it. */
void stars_move(struct stars *stars, float dt);

#endif
