/* SPDX-License-Identifier: Apache-2.0 */
#include "staging.h"

#ifndef GRAYSCOTT_NO_FOREBAY

#include <stdio.h>

#include "forebay_mpi.h"

static const char *const field_names[FIELDS] = {"U", "V"};

/* The simulation survives everything: the first error is told, the others are counted. */
static int failed_with(struct staging *s, const char *doing, int result, const char *text) {
    if (result == FB_OK) return 0;
    if (s->errors++ == 0)
        fprintf(stderr, "grayscott: rank %d: %s: %s: %s%s\n", s->grid->rank, doing, fb_result_name(result), text,
                s->strict ? "" : " (the simulation goes on; further errors are only counted)");
    if (s->strict) MPI_Abort(s->grid->comm, 1);
    return 1;
}

static int failed(struct staging *s, const char *doing, int result) {
    return failed_with(s, doing, result, result == FB_OK ? "" : fb_error());
}

void staging_open(struct staging *s, const struct options *o, const struct grid *grid) {
    static const char *const dims[3] = {"z", "y", "x"};
    static const double spacing[3] = {1, 1, 1}, origin[3] = {0, 0, 0};
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    int result;

    *s = (struct staging){.grid = grid, .interior_only = o->interior_only, .strict = o->strict};
    if (o->output_every == 0) return;

    options.group = o->group;
    options.stream = o->stream;
    options.policy = o->policy;
    options.replicas = (uint32_t)o->replicas;
    options.timeout = o->timeout;
    options.transport = o->transport;
    result = fb_producer_open_mpi(&options, grid->comm, &s->producer);
    if (failed_with(s, "joining the stream", result, fb_error_mpi())) return;

    for (int f = 0; f < FIELDS; f++) {
        fb_field field = FB_FIELD_INIT;
        field.name = field_names[f];
        field.dtype = FB_F64;
        field.association = FB_ASSOCIATION_VERTEX; /* finite differences: values at points */
        field.ndim = 3;
        field.shape = grid->shape;
        field.dims = dims;
        field.spacing = spacing;
        field.origin = origin;
        field.units = "1";
        failed(s, "declaring a field", fb_array(s->producer, &field));
    }
}

static void put(struct staging *s, int f, const double *values) {
    static const uint64_t one[3] = {1, 1, 1};
    const struct grid *g = s->grid;
    const int64_t strides[3] = {(int64_t)(g->stride[0] * sizeof(double)), (int64_t)(g->stride[1] * sizeof(double)),
                                (int64_t)sizeof(double)};
    fb_block block = FB_BLOCK_INIT;
    int demanded = 0;

    /* fb_put asks this itself; here it tells what really was staged. */
    if (failed(s, "asking for demand", fb_demanded(s->producer, field_names[f], &demanded))) return;
    if (!demanded) return;

    block.field = field_names[f];
    block.dtype = FB_F64;
    block.ndim = 3;
    block.offset = g->offset;
    block.shape = g->local;
    if (s->interior_only) {
        block.data = values + g->stride[0] + g->stride[1] + g->stride[2];
        block.strides = strides;
    } else {
        block.data = values; /* dense as it lies in memory, ghosts included */
        block.ghost_low = one;
        block.ghost_high = one;
    }
    if (failed(s, "putting a field", fb_put(s->producer, &block))) return;
    s->bytes += sizeof(double) * (s->interior_only ? g->local[0] * g->local[1] * g->local[2] : g->count);
}

void staging_step(struct staging *s, uint64_t number, double time, const double *state) {
    if (!s->producer) return;
    if (failed(s, "beginning a step", fb_producer_begin(s->producer, number, time))) return;
    for (int f = 0; f < FIELDS; f++) put(s, f, state + (size_t)f * s->grid->count);
    if (!failed(s, "ending a step", fb_producer_end(s->producer))) s->steps++;
}

void staging_close(struct staging *s) {
    if (s->producer) failed(s, "leaving the stream", fb_producer_close(s->producer));
    s->producer = NULL;
}

#else

typedef int staging_is_compiled_to_nothing; /* ISO C wants at least one declaration in a file */

#endif
