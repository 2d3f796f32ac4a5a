/* SPDX-License-Identifier: Apache-2.0 */
#include "staging.h"

#include <stdio.h>
#include <stdlib.h>

const char *const call_names[CALLS] = {"activate", "stage", "execute", "deactivate"};

static const char *const field_names[FIELDS] = {"escape", "trap"};

static void check(int result, const char *doing) {
    if (result == FB_OK) return;
    fprintf(stderr, "mandelbulb: %s: %s: %s\n", doing, fb_result_name(result), fb_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(EXIT_FAILURE); /* not every MPI ends the process at once */
}

fb_pipeline *staging_open(const struct options *o, const uint64_t shape[3], MPI_Comm comm) {
    static const char *const dims[3] = {"z", "y", "x"};
    const double origin[3] = {-EDGE, -EDGE, -EDGE};
    double spacing[3];
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_pipeline *pipeline;
    fb_producer *producer;

    options.group = o->group;
    options.placement = FB_PLACEMENT_BY_BLOCK; /* so that a server that joins is given some, too */
    const int opened = fb_pipeline_open_mpi(&options, o->pipeline, -1, comm, &pipeline);
    if (opened != FB_OK) { /* on all ranks, with the same text */
        int rank;
        MPI_Comm_rank(comm, &rank);
        if (rank == 0) fprintf(stderr, "mandelbulb: opening the pipeline: %s: %s\n", fb_result_name(opened), fb_error_mpi());
        MPI_Finalize();
        exit(EXIT_FAILURE);
    }
    check(fb_pipeline_producer(pipeline, &producer), "opening the pipeline");
    for (int d = 0; d < 3; d++) spacing[d] = shape[d] > 1 ? 2 * EDGE / (double)(shape[d] - 1) : 2 * EDGE;
    for (int f = 0; f < FIELDS; f++) {
        fb_field field = FB_FIELD_INIT;
        field.name = field_names[f];
        field.dtype = FB_F32;
        field.association = FB_ASSOCIATION_VERTEX; /* values at points */
        field.ndim = 3;
        field.shape = shape;
        field.dims = dims;
        field.spacing = spacing;
        field.origin = origin;
        field.units = "1";
        check(fb_array(producer, &field), "declaring a field");
    }
    return pipeline;
}

/* What the pipeline does not need is left out by the call itself. */
static void stage(fb_pipeline *pipeline, const struct block *from, uint64_t number, int f) {
    fb_block block = FB_BLOCK_INIT;
    block.field = field_names[f];
    block.number = number;
    block.dtype = FB_F32;
    block.ndim = 3;
    block.offset = from->offset;
    block.shape = from->shape;
    block.data = from->values[f];
    check(fb_pipeline_stage(pipeline, &block), "staging a block");
}

static double lap(double *since) {
    const double now = MPI_Wtime(), took = now - *since;
    *since = now;
    return took;
}

struct cycle staging_cycle(fb_pipeline *pipeline, uint64_t step, double time, const struct block *blocks, uint64_t blocks_count) {
    struct cycle cycle = {0};
    double since = MPI_Wtime();

    check(fb_pipeline_activate(pipeline, step, time, &cycle.workers), "activating a step");
    cycle.seconds[ACTIVATE] = lap(&since);

    for (uint64_t i = 0; i < blocks_count; i++)
        for (int f = 0; f < FIELDS; f++) stage(pipeline, &blocks[i], i, f);
    cycle.seconds[STAGE] = lap(&since);

    check(fb_pipeline_execute(pipeline, step, -1, NULL), "executing the pipeline");
    cycle.seconds[EXECUTE] = lap(&since);

    check(fb_pipeline_deactivate(pipeline, step), "deactivating a step");
    cycle.seconds[DEACTIVATE] = lap(&since);
    return cycle;
}

void staging_close(fb_pipeline *pipeline) { check(fb_pipeline_close(pipeline), "closing the pipeline"); }
