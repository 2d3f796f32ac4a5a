/* The Gray-Scott model: U is fed, V eats U and multiplies, both diffuse.
 *
 *     dU/dt = Du lap(U) - U V^2 + F (1 - U)
 *     dV/dt = Dv lap(V) + U V^2 - (F + k) V
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef REACTION_H
#define REACTION_H

#include "grid.h"
#include "options.h"

/* Seeds a state: the same whatever the number of ranks.  Ghosts are left to grid_exchange. */
void reaction_seed(const struct grid *grid, double *state);
/* One time step from `now`, whose ghosts are filled, to the interior of `next`. */
void reaction_sweep(const struct grid *grid, const struct options *options, const double *now, double *next);

struct reaction_sums {
    double u, v;          /* over the whole grid; their last digits depend on the number of ranks */
    uint64_t fingerprint; /* of every bit of both fields; does not depend on it */
};
/* Collective; the result is valid on rank 0. */
struct reaction_sums reaction_sum(const struct grid *grid, const double *state);

#endif
