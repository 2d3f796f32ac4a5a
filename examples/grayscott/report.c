/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int report_create(struct report *r, const struct options *options, const struct grid *grid) {
    *r = (struct report){.options = options, .grid = grid, .extra_sweeps = options->extra_sweeps};
    r->step_seconds = calloc(options->steps, sizeof(double));
    r->staging_seconds = calloc(options->steps, sizeof(double));
    return r->step_seconds && r->staging_seconds;
}

void report_free(struct report *r) {
    free(r->step_seconds);
    free(r->staging_seconds);
}

struct summary { double mean, p50, p99, max; };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Percentiles by nearest rank: a time that was measured, never one between two. */
static struct summary summarise(const double *times, uint64_t n) {
    struct summary s = {0, 0, 0, 0};
    double *sorted = malloc(n * sizeof *sorted);
    if (!sorted) return s;
    memcpy(sorted, times, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, ascending);
    for (uint64_t i = 0; i < n; i++) s.mean += sorted[i] / (double)n;
    s.p50 = sorted[(n + 1) / 2 - 1];
    s.p99 = sorted[(n * 99 + 99) / 100 - 1];
    s.max = sorted[n - 1];
    free(sorted);
    return s;
}

static void print_text(FILE *out, const struct report *r, struct summary step, struct summary staging,
                       struct reaction_sums sums, uint64_t bytes, uint64_t errors) {
    const struct options *o = r->options;
    const struct grid *g = r->grid;
    fprintf(out, "grid %" PRIu64 " x %" PRIu64 " x %" PRIu64 " on %d x %d x %d ranks, %" PRIu64 " steps, %s Forebay\n",
            g->shape[0], g->shape[1], g->shape[2], g->parts[0], g->parts[1], g->parts[2], o->steps,
            STAGING_BUILT ? "with" : "without");
    fprintf(out, "step     ms: mean %9.3f  p99 %9.3f  max %9.3f  (of the slowest rank)\n", 1e3 * step.mean,
            1e3 * step.p99, 1e3 * step.max);
    if (STAGING_BUILT)
        fprintf(out, "staging  ms: mean %9.3f  p99 %9.3f  max %9.3f  %" PRIu64 " bytes, %" PRIu64 " errors\n",
                1e3 * staging.mean, 1e3 * staging.p99, 1e3 * staging.max, bytes, errors);
    if (r->extra_sweeps) fprintf(out, "extra sweeps in each step: %" PRIu64 "\n", r->extra_sweeps);
    fprintf(out, "sum U %.12g, sum V %.12g, fingerprint %016" PRIx64 "\n", sums.u, sums.v, sums.fingerprint);
}

static void json_summary(FILE *out, const char *name, struct summary s) {
    fprintf(out, ", \"%s\": {\"mean\": %.9f, \"p50\": %.9f, \"p99\": %.9f, \"max\": %.9f}", name, s.mean, s.p50, s.p99,
            s.max);
}

static void json_seconds(FILE *out, const char *name, const double *seconds, uint64_t n) {
    fprintf(out, ", \"%s\": [", name);
    for (uint64_t i = 0; i < n; i++) fprintf(out, "%s%.9f", i ? ", " : "", seconds[i]);
    fprintf(out, "]");
}

static void print_json(FILE *out, const struct report *r, struct summary step, struct summary staging,
                       struct reaction_sums sums, uint64_t bytes, uint64_t errors) {
    const struct options *o = r->options;
    const struct grid *g = r->grid;
    fprintf(out, "{\"program\": \"grayscott\", \"forebay\": %s, \"ranks\": %d", STAGING_BUILT ? "true" : "false", g->ranks);
    fprintf(out, ", \"shape\": [%" PRIu64 ", %" PRIu64 ", %" PRIu64 "], \"parts\": [%d, %d, %d]", g->shape[0], g->shape[1],
            g->shape[2], g->parts[0], g->parts[1], g->parts[2]);
    fprintf(out, ", \"steps\": %" PRIu64 ", \"sub_steps\": %" PRIu64 ", \"extra_sweeps\": %" PRIu64, o->steps,
            o->sub_steps, r->extra_sweeps);
    fprintf(out, ", \"output_every\": %" PRIu64 ", \"sum_u\": %.17g, \"sum_v\": %.17g, \"fingerprint\": \"%016" PRIx64 "\"",
            o->output_every, sums.u, sums.v, sums.fingerprint);
    fprintf(out, ", \"staged_bytes\": %" PRIu64 ", \"forebay_errors\": %" PRIu64, bytes, errors);
    json_summary(out, "step", step);
    json_summary(out, "staging", staging);
    fprintf(out, ", \"seconds_are\": \"of the slowest rank in each step; a step is compute, exchange and Forebay calls\"");
    json_seconds(out, "step_seconds", r->step_seconds, o->steps);
    json_seconds(out, "staging_seconds", r->staging_seconds, o->steps);
    fprintf(out, "}\n");
}

static int print(const struct report *r, struct reaction_sums sums, uint64_t bytes, uint64_t errors) {
    const char *path = r->options->json;
    struct summary step = summarise(r->step_seconds, r->options->steps);
    struct summary staging = summarise(r->staging_seconds, r->options->steps);
    if (!path || strcmp(path, "-") != 0) print_text(stdout, r, step, staging, sums, bytes, errors);
    if (!path) return 1;
    FILE *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    if (out) print_json(out, r, step, staging, sums, bytes, errors);
    if (out && fflush(out) == 0 && (out == stdout || fclose(out) == 0)) return 1;
    fprintf(stderr, "grayscott: cannot write %s: %s\n", path, strerror(errno));
    return 0;
}

static void slowest(double *times, uint64_t n, const struct grid *g) {
    /* steps are at most INT_MAX, see options.c */
    MPI_Reduce(g->rank ? times : MPI_IN_PLACE, times, (int)n, MPI_DOUBLE, MPI_MAX, 0, g->comm);
}

int report_print(struct report *r, const struct staging *staging, struct reaction_sums sums) {
    uint64_t mine[2] = {staging->bytes, staging->errors}, all[2] = {0, 0};
    int good = 1;
    slowest(r->step_seconds, r->options->steps, r->grid);
    slowest(r->staging_seconds, r->options->steps, r->grid);
    MPI_Reduce(mine, all, 2, MPI_UINT64_T, MPI_SUM, 0, r->grid->comm);
    if (r->grid->rank == 0) good = print(r, sums, all[0], all[1]);
    MPI_Bcast(&good, 1, MPI_INT, 0, r->grid->comm);
    return good;
}
