/* How long the steps took, and what came out.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef REPORT_H
#define REPORT_H

#include "reaction.h"
#include "staging.h"

struct report {
    const struct options *options;
    const struct grid *grid;
    uint64_t extra_sweeps;                  /* as given or as calibrated */
    double *step_seconds, *staging_seconds; /* [steps] of this rank; staging is part of step */
};

/* Returns 0 if there is no memory for it. */
int report_create(struct report *report, const struct options *options, const struct grid *grid);
/* Collective.  Rank 0 prints, or writes the JSON; returns 0 on all ranks if that failed. */
int report_print(struct report *report, const struct staging *staging, struct reaction_sums sums);
void report_free(struct report *report);

#endif
