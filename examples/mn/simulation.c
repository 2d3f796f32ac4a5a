/* SPDX-License-Identifier: Apache-2.0 */
/* A particle simulation on any number of ranks that hands over its stars step by step:
 *
 *     cd examples/mn
 *     mpicc -std=c99 -O3 simulation.c particles.c exchange.c $(forebay config --cflags --libs) -lm -o simulation
 *     mpiexec -n 4 ./simulation [stars per rank] [steps] [file]
 *
 * It ends before that once the file is there.
 *
 * It knows nothing of who reads them, or on how many ranks: readers come and go while it runs. */
#include <stdio.h>
#include <stdlib.h>

#include "exchange.h"
#include "forebay_mpi.h"
#include "particles.h"

static void check(int result, const char *what) {
    if (result == FB_OK) return;
    fprintf(stderr, "simulation: %s: %s: %s\n", what, fb_result_name(result), fb_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static fb_producer *open_stream(MPI_Comm comm) {
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_field fields[3] = {FB_FIELD_INIT, FB_FIELD_INIT, FB_FIELD_INIT};
    fb_producer *producer;
    options.stream = "stars";
    options.policy = FB_POLICY_BLOCK; /* no step is lost: readers that are too slow hold the simulation up */
    const int result = fb_producer_open_mpi(&options, comm, &producer);
    if (result != FB_OK) {
        fprintf(stderr, "simulation: %s\n", fb_error_mpi());
        MPI_Abort(comm, 1);
    }
    fields[0].name = "x";
    fields[1].name = "v";
    fields[0].dtype = fields[1].dtype = FB_F32;
    fields[0].ndim = fields[1].ndim = 2; /* vectors */
    fields[2].name = "id";
    fields[2].dtype = FB_I64;
    fields[2].ndim = 1;
    check(fb_particles(producer, "stars", fields, 3, sizeof fields[0]), "declaring the stars");
    check(fb_rank_bounds(producer, 3, 1), "declaring the slabs");
    return producer;
}

/* The ghosts lie behind a rank's own stars: told apart, and not counted twice. */
static void put_stars(fb_producer *producer, const struct stars *stars) {
    const uint64_t own[2] = {(uint64_t)stars->own, 3}, ghosts[2] = {(uint64_t)stars->ghosts, 0};
    const struct {
        const char *name;
        int32_t dtype;
        uint32_t ndim;
        const void *data;
    } fields[3] = {{"stars/x", FB_F32, 2, stars->x}, {"stars/v", FB_F32, 2, stars->v}, {"stars/id", FB_I64, 1, stars->id}};
    for (int f = 0; f < 3; f++) {
        fb_block block = FB_BLOCK_INIT;
        block.field = fields[f].name;
        block.dtype = fields[f].dtype;
        block.ndim = fields[f].ndim;
        block.shape = own;
        block.ghost_high = ghosts;
        block.data = fields[f].data;
        check(fb_put(producer, &block), fields[f].name);
    }
}

static void put_slab(fb_producer *producer, const struct slab *slab) {
    const double low[3] = {slab->low, 0, 0}, high[3] = {slab->high, EDGE, EDGE};
    const double outer_low[3] = {slab->low - REACH, 0, 0}, outer_high[3] = {slab->high + REACH, EDGE, EDGE};
    check(fb_put_rank_bounds(producer, 3, low, high, outer_low, outer_high), "rank_bounds");
}

/* Whether the file is there that ends the simulation: all ranks hear what the first one sees. */
static int is_to_end(const char *path, const struct slab *slab) {
    int end = 0;
    if (path != NULL && slab->rank == 0) {
        FILE *file = fopen(path, "r");
        end = file != NULL;
        if (file != NULL) fclose(file);
    }
    MPI_Bcast(&end, 1, MPI_INT, 0, slab->comm);
    return end;
}

int main(int argc, char **argv) {
    struct slab slab;
    struct stars stars;
    const float dt = 0.01f;
    MPI_Init(&argc, &argv);
    const long count = argc > 1 ? atol(argv[1]) : 131072, steps = argc > 2 ? atol(argv[2]) : 100;
    slab_open(&slab, MPI_COMM_WORLD);
    stars_open(&stars, &slab, count);
    fb_producer *producer = open_stream(MPI_COMM_WORLD);
    for (long step = 0; step < steps && !is_to_end(argc > 3 ? argv[3] : NULL, &slab); step++) {
        stars_move(&stars, dt);
        exchange_own(&stars, &slab);
        exchange_ghosts(&stars, &slab);
        check(fb_producer_begin(producer, (uint64_t)step, dt * (double)step), "beginning a step");
        put_stars(producer, &stars);
        put_slab(producer, &slab);
        check(fb_producer_end(producer), "ending a step");
    }
    check(fb_producer_close(producer), "closing the stream");
    stars_close(&stars);
    MPI_Finalize();
    return 0;
}
