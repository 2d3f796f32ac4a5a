/* SPDX-License-Identifier: Apache-2.0 */
/* All that Forebay asks of the simulation. */
#ifndef STAGING_H
#define STAGING_H

#include <mpi.h>
#include <stdint.h>

#include "forebay_mpi.h"
#include "fractal.h"
#include "options.h"

enum { ACTIVATE, STAGE, EXECUTE, DEACTIVATE, CALLS };
extern const char *const call_names[CALLS];

/* What a step took. */
struct cycle {
    double seconds[CALLS];
    uint32_t workers; /* that ran it */
};

/* Joins the pipeline's stream, and declares the field.  Ends the job if that fails. */
fb_pipeline *staging_open(const struct options *options, const uint64_t shape[3], MPI_Comm comm);
/* Has the pipeline run on one step.  Ends the job if that fails. */
struct cycle staging_cycle(fb_pipeline *pipeline, uint64_t step, double time, const struct block *blocks, uint64_t blocks_count);
void staging_close(fb_pipeline *pipeline);

#endif
