/* The Mandelbulb on MPI: a simulation that drives a pipeline of Forebay's, and says what each call took.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * fractal.c computes, staging.c makes the four calls: activate, stage, execute, deactivate.
 *
 *     cd examples/mandelbulb
 *     mpicc -std=c99 -O3 *.c -lforebay -lm -o mandelbulb
 *     forebay up -n 2
 *     forebay pipeline create mandelbulb ../pipelines/mandelbulb.py:Bulb --driven
 *     mpiexec -n 2 ./mandelbulb
 *     forebay add 1                       # in another terminal, meanwhile
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fractal.h"
#include "options.h"
#include "staging.h"

struct simulation {
    const struct options *options;
    int rank, ranks;
    uint64_t shape[3]; /* of the whole grid */
    struct block *blocks;
};

/* Each rank has its blocks one behind the other, and behind them are the next rank's. */
static int cut(struct simulation *s) {
    const struct options *o = s->options;
    memcpy(s->shape, o->block, sizeof s->shape);
    s->shape[0] *= o->blocks * (uint64_t)s->ranks;
    s->blocks = calloc(o->blocks, sizeof *s->blocks);
    if (!s->blocks) return 0;
    for (uint64_t i = 0; i < o->blocks; i++) {
        struct block *block = &s->blocks[i];
        memcpy(block->shape, o->block, sizeof block->shape);
        block->offset[0] = ((uint64_t)s->rank * o->blocks + i) * o->block[0];
        for (int f = 0; f < FIELDS; f++)
            if (!(block->values[f] = malloc(sizeof(float) * o->block[0] * o->block[1] * o->block[2]))) return 0;
    }
    return 1;
}

static void free_blocks(struct simulation *s) {
    for (uint64_t i = 0; s->blocks && i < s->options->blocks; i++)
        for (int f = 0; f < FIELDS; f++) free(s->blocks[i].values[f]);
    free(s->blocks);
}

/* Whether the file is there that ends the run: all ranks hear what the first one sees. */
static int is_to_end(const struct simulation *s) {
    int end = 0;
    if (!s->options->until) return 0;
    if (s->rank == 0) {
        FILE *file = fopen(s->options->until, "r");
        end = file != NULL;
        if (file) fclose(file);
    }
    MPI_Bcast(&end, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return end;
}

/* Of each call what the slowest rank took. */
static void tell(const struct simulation *s, uint64_t step, const struct cycle *cycle, FILE *json) {
    double slowest[CALLS];
    MPI_Reduce(cycle->seconds, slowest, CALLS, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (s->rank != 0) return;
    printf("step %llu on %u workers:", (unsigned long long)step, cycle->workers);
    for (int i = 0; i < CALLS; i++) printf(" %s %.2f ms%s", call_names[i], 1e3 * slowest[i], i < CALLS - 1 ? "," : "\n");
    fflush(stdout);
    if (!json) return;
    fprintf(json, "{\"step\": %llu, \"workers\": %u", (unsigned long long)step, cycle->workers);
    for (int i = 0; i < CALLS; i++) fprintf(json, ", \"%s\": %.9f", call_names[i], slowest[i]);
    fprintf(json, "}\n");
    fflush(json);
}

static void run(const struct simulation *s, FILE *json) {
    const struct options *o = s->options;
    fb_pipeline *pipeline = staging_open(o, s->shape, MPI_COMM_WORLD);
    for (uint64_t step = 0; step < o->steps && !is_to_end(s); step++) {
        const double power = o->power + (double)step * o->power_step;
        for (uint64_t i = 0; i < o->blocks && (step == 0 || o->power_step > 0); i++)
            fractal_fill(&s->blocks[i], s->shape, power, (int)o->iterations);
        MPI_Barrier(MPI_COMM_WORLD); /* so that no call's time is that of a neighbour that still computes */
        const struct cycle cycle = staging_cycle(pipeline, step, power, s->blocks, o->blocks);
        tell(s, step, &cycle, json);
    }
    staging_close(pipeline);
}

int main(int argc, char **argv) {
    enum { WRONG_USAGE = 2 };
    struct options options;
    struct simulation s = {.options = &options};
    char complaint[256];
    int code = EXIT_SUCCESS;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &s.ranks);
    const enum options_result parsed = options_parse(argc, argv, &options, complaint, sizeof complaint);
    if (parsed == OPTIONS_HELP) {
        if (s.rank == 0) fputs(options_help(), stdout);
    } else if (parsed == OPTIONS_WRONG) {
        if (s.rank == 0) fprintf(stderr, "mandelbulb: %s\n", complaint);
        code = WRONG_USAGE;
    } else {
        FILE *json = s.rank == 0 && options.json ? fopen(options.json, "w") : NULL;
        int good = cut(&s) && (s.rank != 0 || !options.json || json), all_good;
        if (!good) fprintf(stderr, "mandelbulb: rank %d: no memory for its blocks, or no file %s\n", s.rank, options.json ? options.json : "");
        MPI_Allreduce(&good, &all_good, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
        if (all_good) run(&s, json);
        else code = EXIT_FAILURE;
        if (json) fclose(json);
        free_blocks(&s);
    }
    MPI_Finalize();
    return code;
}
