/* SPDX-License-Identifier: Apache-2.0 */
#include "reaction.h"

#include <math.h>
#include <string.h>

/* A good mixer of 64 bits (splitmix64): noise and fingerprints that depend on nothing but their input. */
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t global_index(const struct grid *grid, uint64_t z, uint64_t y, uint64_t x) {
    return ((z + grid->offset[0]) * grid->shape[1] + y + grid->offset[1]) * grid->shape[2] + x + grid->offset[2];
}

/* Where V starts: boxes at fractions of the domain, off its symmetry planes and of unequal sizes, so that
 * what grows from them meets and shows it if two dimensions were mixed up. */
static const struct { double centre[3], half[3]; } seeds[] = {
    {{0.50, 0.50, 0.50}, {0.070, 0.045, 0.110}},
    {{0.30, 0.28, 0.66}, {0.040, 0.060, 0.040}},
    {{0.72, 0.64, 0.30}, {0.050, 0.035, 0.060}},
    {{0.66, 0.27, 0.76}, {0.030, 0.050, 0.030}},
    {{0.26, 0.74, 0.36}, {0.060, 0.030, 0.035}},
};

static int seeded(const struct grid *grid, const uint64_t at[3]) {
    for (size_t s = 0; s < sizeof seeds / sizeof *seeds; s++) {
        int inside = 1;
        for (int d = 0; d < 3; d++)
            inside &= fabs((double)at[d] + 0.5 - seeds[s].centre[d] * (double)grid->shape[d]) <=
                      fmax(seeds[s].half[d] * (double)grid->shape[d], 1.0);
        if (inside) return 1;
    }
    return 0;
}

#define FOR_INTERIOR(grid)                                      \
    for (uint64_t z = 0; z < (grid)->local[0]; z++)             \
        for (uint64_t y = 0; y < (grid)->local[1]; y++)         \
            for (uint64_t x = 0; x < (grid)->local[2]; x++)

static size_t place(const struct grid *grid, uint64_t z, uint64_t y, uint64_t x) {
    return (z + 1) * grid->stride[0] + (y + 1) * grid->stride[1] + x + 1;
}

void reaction_seed(const struct grid *grid, double *state) {
    double *u = state, *v = state + grid->count;
    FOR_INTERIOR(grid) {
        const uint64_t at[3] = {z + grid->offset[0], y + grid->offset[1], x + grid->offset[2]};
        double noise = (double)(mix(global_index(grid, z, y, x)) >> 11) * 0x1p-53;
        int seed = seeded(grid, at);
        u[place(grid, z, y, x)] = seed ? 0.5 : 1.0;
        v[place(grid, z, y, x)] = seed ? 0.2 + 0.1 * noise : 0.0;
    }
}

void reaction_sweep(const struct grid *grid, const struct options *o, const double *now, double *next) {
    const ptrdiff_t sz = (ptrdiff_t)grid->stride[0], sy = (ptrdiff_t)grid->stride[1];
    const ptrdiff_t nx = (ptrdiff_t)grid->local[2];
    const double du = o->du, dv = o->dv, feed = o->feed, drain = o->feed + o->kill, dt = o->dt;
    for (uint64_t z = 0; z < grid->local[0]; z++)
        for (uint64_t y = 0; y < grid->local[1]; y++) {
            const size_t row = place(grid, z, y, 0);
            const double *restrict u = now + row, *restrict v = now + grid->count + row;
            double *restrict u_next = next + row, *restrict v_next = next + grid->count + row;
            for (ptrdiff_t x = 0; x < nx; x++) {
                double lap_u = u[x - sz] + u[x + sz] + u[x - sy] + u[x + sy] + u[x - 1] + u[x + 1] - 6.0 * u[x];
                double lap_v = v[x - sz] + v[x + sz] + v[x - sy] + v[x + sy] + v[x - 1] + v[x + 1] - 6.0 * v[x];
                double eaten = u[x] * v[x] * v[x];
                u_next[x] = u[x] + dt * (du * lap_u - eaten + feed * (1.0 - u[x]));
                v_next[x] = v[x] + dt * (dv * lap_v + eaten - drain * v[x]);
            }
        }
}

struct reaction_sums reaction_sum(const struct grid *grid, const double *state) {
    double mine[FIELDS] = {0, 0}, all[FIELDS] = {0, 0};
    uint64_t bits = 0, all_bits = 0;
    FOR_INTERIOR(grid) {
        for (int f = 0; f < FIELDS; f++) {
            double value = state[(size_t)f * grid->count + place(grid, z, y, x)];
            uint64_t word;
            memcpy(&word, &value, sizeof word);
            mine[f] += value;
            bits += mix(word ^ mix(FIELDS * global_index(grid, z, y, x) + (uint64_t)f));
        }
    }
    MPI_Reduce(mine, all, FIELDS, MPI_DOUBLE, MPI_SUM, 0, grid->comm);
    MPI_Reduce(&bits, &all_bits, 1, MPI_UINT64_T, MPI_SUM, 0, grid->comm);
    return (struct reaction_sums){all[0], all[1], all_bits};
}
