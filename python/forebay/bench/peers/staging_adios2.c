/* The staging of the mini-application with ADIOS2 instead of Forebay: the same calls, the same data.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Compiled by `forebay bench slowdown` together with examples/grayscott, in the place of its staging.c.
 * ADIOS2 from PyPI is built without MPI, so every rank writes a file or a stream of its own.
 *
 * From the environment: BENCH_ADIOS2_ENGINE (BP5 or SST), BENCH_ADIOS2_PARAMETERS (k=v,k=v), and
 * BENCH_ADIOS2_NAME, to which the rank is added.
 */
#include "staging.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <adios2_c.h>

struct fb_producer { /* staging.h calls by this name whatever stages */
    adios2_adios *adios;
    adios2_io *io;
    adios2_engine *engine;
    adios2_variable *variables[FIELDS];
};

static void give_up(const struct grid *grid, const char *what) {
    fprintf(stderr, "grayscott with ADIOS2: rank %d: %s\n", grid->rank, what);
    MPI_Abort(grid->comm, 1);
}

static const char *setting(const struct grid *grid, const char *name) {
    const char *value = getenv(name);
    if (!value) give_up(grid, name);
    return value;
}

void staging_open(struct staging *s, const struct options *o, const struct grid *grid) {
    static const char *const names[FIELDS] = {"U", "V"};
    const size_t zero[3] = {0, 0, 0};
    size_t shape[3];
    char name[1024];
    struct fb_producer *p = calloc(1, sizeof *p);

    *s = (struct staging){.producer = p, .grid = grid};
    if (!p) give_up(grid, "not enough memory");
    if (o->output_every == 0) {
        free(p);
        s->producer = NULL;
        return;
    }
    /* the whole array of the rank, ghosts included, as Forebay puts it */
    for (int d = 0; d < 3; d++) shape[d] = (size_t)grid->local[d] + 2;
    p->adios = adios2_init_serial();
    p->io = p->adios ? adios2_declare_io(p->adios, "grayscott") : NULL;
    if (!p->io || adios2_set_engine(p->io, setting(grid, "BENCH_ADIOS2_ENGINE")) != adios2_error_none ||
        adios2_set_parameters(p->io, setting(grid, "BENCH_ADIOS2_PARAMETERS")) != adios2_error_none)
        give_up(grid, "setting up ADIOS2 failed");
    for (int f = 0; f < FIELDS; f++)
        p->variables[f] = adios2_define_variable(p->io, names[f], adios2_type_double, 3, shape, zero, shape,
                                                 adios2_constant_dims_true);
    snprintf(name, sizeof name, "%s%d", setting(grid, "BENCH_ADIOS2_NAME"), grid->rank);
    p->engine = adios2_open(p->io, name, adios2_mode_write);
    if (!p->engine) give_up(grid, "opening the output failed");
}

void staging_step(struct staging *s, uint64_t number, double time, const double *state) {
    struct fb_producer *p = s->producer;
    adios2_step_status status;
    int wrong;
    (void)number;
    (void)time;
    if (!p) return;
    wrong = adios2_begin_step(p->engine, adios2_step_mode_append, -1.0f, &status) != adios2_error_none;
    for (int f = 0; f < FIELDS && !wrong; f++)
        wrong = adios2_put(p->engine, p->variables[f], state + (size_t)f * s->grid->count, adios2_mode_deferred) !=
                adios2_error_none;
    /* puts are deferred: the data has left the arrays when the step has ended */
    wrong = wrong || adios2_end_step(p->engine) != adios2_error_none;
    s->errors += (uint64_t)wrong;
    s->steps++;
    s->bytes += FIELDS * s->grid->count * sizeof(double);
}

void staging_close(struct staging *s) {
    struct fb_producer *p = s->producer;
    if (!p) return;
    if (adios2_close(p->engine) != adios2_error_none) s->errors++;
    adios2_finalize(p->adios);
    free(p);
    s->producer = NULL;
}
