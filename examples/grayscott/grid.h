/* The global grid, this rank's part of it, and the exchange of ghosts with the neighbours.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Dimensions are slowest first: 0 is z, 1 is y, 2 is x.
 */
#ifndef GRID_H
#define GRID_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

enum { FIELDS = 2 };

struct grid {
    MPI_Comm comm;
    int rank, ranks;
    uint64_t shape[3];  /* of the whole grid */
    int parts[3];       /* ranks in each dimension */
    uint64_t offset[3]; /* of this rank's interior */
    uint64_t local[3];  /* its extents, ghosts aside */
    size_t stride[3];   /* elements between neighbours in memory, ghosts included */
    size_t count;       /* elements of one field, ghosts included */
    /* by dimension and side (0 low, 1 high) */
    int neighbour[3][2];
    MPI_Datatype edge[3][2], ghost[3][2]; /* of all fields at once */
};

/* Cuts `shape` into `ranks` boxes with the least surface.  Returns 0 if there are more ranks than fit. */
int grid_cut(const uint64_t shape[3], int ranks, int parts[3]);
void grid_create(struct grid *grid, const uint64_t shape[3], const int parts[3]);
/* Fills the ghosts of a state (FIELDS arrays of `count`, one after the other), corners included. */
void grid_exchange(const struct grid *grid, double *state);
void grid_free(struct grid *grid);

#endif
