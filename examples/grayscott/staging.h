/* All that this simulation does to be staged.  With -DGRAYSCOTT_NO_FOREBAY it does nothing and needs no
 * Forebay at all: the same program, to compare with.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STAGING_H
#define STAGING_H

#include "grid.h"
#include "options.h"

struct staging {
    struct fb_producer *producer; /* NULL: not staged */
    const struct grid *grid;
    int interior_only, strict;
    uint64_t errors;       /* Forebay calls that failed on this rank */
    uint64_t steps, bytes; /* what this rank staged; fields that nobody wanted do not count */
};

#ifdef GRAYSCOTT_NO_FOREBAY

enum { STAGING_BUILT = 0 };
static inline void staging_open(struct staging *s, const struct options *o, const struct grid *g) {
    (void)o;
    (void)g;
    *s = (struct staging){0};
}
static inline void staging_step(struct staging *s, uint64_t number, double time, const double *state) {
    (void)s;
    (void)number;
    (void)time;
    (void)state;
}
static inline void staging_close(struct staging *s) { (void)s; }

#else

enum { STAGING_BUILT = 1 };
/* Joins the stream; collective.  A failure is told, and then the run goes on unstaged (or aborts if strict). */
void staging_open(struct staging *staging, const struct options *options, const struct grid *grid);
/* Hands over U and V of one step, ghosts filled. */
void staging_step(struct staging *staging, uint64_t number, double time, const double *state);
void staging_close(struct staging *staging);

#endif
#endif
