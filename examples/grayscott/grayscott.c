/* Gray-Scott on MPI, staged with Forebay: a model of a simulation that hands over its steps.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * All that Forebay asks of a simulation is in staging.c.  The rest is the simulation: reaction.c computes,
 * grid.c cuts the domain and exchanges ghosts, report.c says how long the steps took.
 *
 *     cd examples/grayscott
 *     mpicc -std=c99 -O3 -I../../include *.c -lforebay -lm -o grayscott
 *     mpicc -std=c99 -O3 -DGRAYSCOTT_NO_FOREBAY *.c -lm -o grayscott-plain
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "grid.h"
#include "options.h"
#include "reaction.h"
#include "report.h"
#include "staging.h"

struct state {
    double *now, *next; /* each U, then V, with ghosts */
};

static void time_step(const struct grid *grid, const struct options *options, struct state *state) {
    double *next = state->next;
    reaction_sweep(grid, options, state->now, next);
    grid_exchange(grid, next);
    state->next = state->now;
    state->now = next;
}

/* Work that leaves no trace: it computes the next state and forgets it. */
static void idle_sweep(const struct grid *grid, const struct options *options, struct state *state) {
    reaction_sweep(grid, options, state->now, state->next);
}

/* How many idle sweeps make a step last `step_ms`.  All ranks work, since they share the machine's memory
 * and cores; rank 0's watch decides, so that all ranks do the same. */
static uint64_t calibrate(const struct grid *grid, const struct options *options, struct state *state) {
    const double enough = 0.2; /* seconds */
    double began, seconds[2], extra;
    for (int with_exchange = 0; with_exchange < 2; with_exchange++) {
        uint64_t rounds = 0, again = 1;
        MPI_Barrier(grid->comm);
        began = MPI_Wtime();
        while (again) {
            idle_sweep(grid, options, state);
            if (with_exchange) grid_exchange(grid, state->next);
            rounds++;
            again = MPI_Wtime() - began < enough;
            if (with_exchange) MPI_Bcast(&again, 1, MPI_UINT64_T, 0, grid->comm);
        }
        seconds[with_exchange] = (MPI_Wtime() - began) / (double)rounds;
    }
    extra = (options->step_ms / 1e3 - (double)options->sub_steps * seconds[1]) / seconds[0];
    uint64_t sweeps = extra > 0 ? (uint64_t)(extra + 0.5) : 0;
    MPI_Bcast(&sweeps, 1, MPI_UINT64_T, 0, grid->comm);
    return sweeps;
}

static void run(const struct grid *grid, const struct options *o, struct state *state, struct staging *staging,
                struct report *report) {
    uint64_t told = 0;
    for (uint64_t step = 1; step <= o->steps; step++) {
        double began = MPI_Wtime();
        for (uint64_t i = 0; i < o->sub_steps; i++) time_step(grid, o, state);
        for (uint64_t i = 0; i < report->extra_sweeps; i++) idle_sweep(grid, o, state);

        double computed = MPI_Wtime();
        if (o->output_every && step % o->output_every == 0)
            staging_step(staging, step, (double)(step * o->sub_steps) * o->dt, state->now);
        double ended = MPI_Wtime();

        report->step_seconds[step - 1] = ended - began;
        report->staging_seconds[step - 1] = ended - computed;
        if (o->progress && grid->rank == 0 && (step * 100 / o->steps > told || step == 1)) {
            told = step * 100 / o->steps;
            printf("step %llu\n", (unsigned long long)step);
            fflush(stdout);
        }
    }
}

static int simulate(const struct grid *grid, const struct options *options) {
    struct state state = {calloc(FIELDS * grid->count, sizeof(double)), calloc(FIELDS * grid->count, sizeof(double))};
    struct report report;
    struct staging staging;
    int good = report_create(&report, options, grid) && state.now && state.next, all_good;

    MPI_Allreduce(&good, &all_good, 1, MPI_INT, MPI_LAND, grid->comm);
    if (!good) fprintf(stderr, "grayscott: rank %d: not enough memory for a grid of this size\n", grid->rank);
    if (all_good) {
        reaction_seed(grid, state.now);
        grid_exchange(grid, state.now);
        if (options->step_ms > 0) report.extra_sweeps = calibrate(grid, options, &state);

        staging_open(&staging, options, grid);
        MPI_Barrier(grid->comm);
        run(grid, options, &state, &staging, &report);
        staging_close(&staging);

        struct reaction_sums sums = reaction_sum(grid, state.now);
        all_good = report_print(&report, &staging, sums);
        if (grid->rank == 0 && !isfinite(sums.u + sums.v)) {
            fprintf(stderr, "grayscott: the fields are no longer finite; try a smaller --dt\n");
            all_good = 0;
        }
        MPI_Bcast(&all_good, 1, MPI_INT, 0, grid->comm);
    }
    report_free(&report);
    free(state.now);
    free(state.next);
    return all_good ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv) {
    enum { WRONG_USAGE = 2 };
    struct options options;
    struct grid grid;
    char complaint[256];
    int rank, ranks, parts[3], code = EXIT_SUCCESS;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    enum options_result parsed = options_parse(argc, argv, &options, complaint, sizeof complaint);
    if (parsed == OPTIONS_HELP) {
        if (rank == 0) fputs(options_help(), stdout);
    } else if (parsed == OPTIONS_WRONG) {
        if (rank == 0) fprintf(stderr, "grayscott: %s\n", complaint);
        code = WRONG_USAGE;
    } else if (!grid_cut(options.shape, ranks, parts)) {
        if (rank == 0) fprintf(stderr, "grayscott: the grid cannot be cut into %d parts; use fewer ranks\n", ranks);
        code = WRONG_USAGE;
    } else {
        grid_create(&grid, options.shape, parts);
        code = simulate(&grid, &options);
        grid_free(&grid);
    }
    MPI_Finalize();
    return code;
}
