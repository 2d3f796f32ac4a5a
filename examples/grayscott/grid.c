/* SPDX-License-Identifier: Apache-2.0 */
#include "grid.h"

int grid_cut(const uint64_t shape[3], int ranks, int parts[3]) {
    double least = -1;
    for (int z = 1; z <= ranks; z++) {
        if (ranks % z) continue;
        for (int y = 1; y <= ranks / z; y++) {
            if (ranks / z % y) continue;
            int x = ranks / z / y;
            if ((uint64_t)z > shape[0] || (uint64_t)y > shape[1] || (uint64_t)x > shape[2]) continue;
            double a = (double)shape[0] / z, b = (double)shape[1] / y, c = (double)shape[2] / x;
            double surface = b * c + a * c + a * b;
            /* `<=`: of equal cuts the one through the slowest dimension, whose faces lie together in memory */
            if (least < 0 || surface <= least) {
                least = surface;
                parts[0] = z;
                parts[1] = y;
                parts[2] = x;
            }
        }
    }
    return least >= 0;
}

/* A slab of one layer of all fields, `at` a position in dimension `d` counted with ghosts.  Dimensions are
 * exchanged one after the other; a slab covers the ghosts of the dimensions done before, and so the
 * corners arrive without messages of their own. */
static MPI_Datatype layer(const struct grid *grid, int d, int at) {
    int sizes[4] = {FIELDS}, extents[4] = {FIELDS}, starts[4] = {0};
    MPI_Datatype type;
    for (int i = 0; i < 3; i++) {
        int before = i < d;
        sizes[i + 1] = (int)grid->local[i] + 2;
        extents[i + 1] = before ? sizes[i + 1] : (int)grid->local[i];
        starts[i + 1] = before ? 0 : 1;
    }
    extents[d + 1] = 1;
    starts[d + 1] = at;
    MPI_Type_create_subarray(4, sizes, extents, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

void grid_create(struct grid *grid, const uint64_t shape[3], const int parts[3]) {
    int periodic[3] = {1, 1, 1}, place[3];
    MPI_Cart_create(MPI_COMM_WORLD, 3, parts, periodic, 1, &grid->comm);
    MPI_Comm_rank(grid->comm, &grid->rank);
    MPI_Comm_size(grid->comm, &grid->ranks);
    MPI_Cart_coords(grid->comm, grid->rank, 3, place);
    for (int d = 0; d < 3; d++) {
        uint64_t n = shape[d], p = (uint64_t)parts[d], c = (uint64_t)place[d];
        grid->shape[d] = n;
        grid->parts[d] = parts[d];
        grid->offset[d] = n * c / p;
        grid->local[d] = n * (c + 1) / p - grid->offset[d];
        MPI_Cart_shift(grid->comm, d, 1, &grid->neighbour[d][0], &grid->neighbour[d][1]);
    }
    grid->stride[2] = 1;
    grid->stride[1] = (size_t)grid->local[2] + 2;
    grid->stride[0] = ((size_t)grid->local[1] + 2) * grid->stride[1];
    grid->count = ((size_t)grid->local[0] + 2) * grid->stride[0];
    for (int d = 0; d < 3; d++) {
        int last = (int)grid->local[d];
        grid->ghost[d][0] = layer(grid, d, 0);
        grid->edge[d][0] = layer(grid, d, 1);
        grid->edge[d][1] = layer(grid, d, last);
        grid->ghost[d][1] = layer(grid, d, last + 1);
    }
}

void grid_exchange(const struct grid *grid, double *state) {
    for (int d = 0; d < 3; d++) {
        const int *to = grid->neighbour[d];
        MPI_Request requests[4];
        /* The tag is the side that the message comes from: with two ranks both sides are one neighbour. */
        MPI_Irecv(state, 1, grid->ghost[d][0], to[0], 1, grid->comm, &requests[0]);
        MPI_Irecv(state, 1, grid->ghost[d][1], to[1], 0, grid->comm, &requests[1]);
        MPI_Isend(state, 1, grid->edge[d][0], to[0], 0, grid->comm, &requests[2]);
        MPI_Isend(state, 1, grid->edge[d][1], to[1], 1, grid->comm, &requests[3]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    }
}

void grid_free(struct grid *grid) {
    for (int d = 0; d < 3; d++)
        for (int side = 0; side < 2; side++) {
            MPI_Type_free(&grid->edge[d][side]);
            MPI_Type_free(&grid->ghost[d][side]);
        }
    MPI_Comm_free(&grid->comm);
}
