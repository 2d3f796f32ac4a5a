/* What the command line says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdint.h>

struct options {
    /* the model */
    uint64_t shape[3]; /* slowest dimension first, as everywhere in this program: z, y, x */
    uint64_t steps, sub_steps;
    double feed, kill, du, dv, dt;
    /* the load, for benchmarks: more work for each step, without other results */
    double step_ms;        /* 0: as it comes */
    uint64_t extra_sweeps; /* the same said exactly, so that several runs do equal work */
    /* the staging */
    const char *group, *stream, *transport; /* NULL: Forebay's default */
    uint64_t output_every;                  /* 0: stage nothing */
    uint64_t replicas;     /* how many servers hold each block */
    double timeout;
    int policy;
    int interior_only, strict;
    /* the report */
    const char *json;
    int progress;
};

enum options_result { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_WRONG };

/* Fills `options`.  If they are wrong, `complaint` says what and how to put it right. */
enum options_result options_parse(int count, char **words, struct options *options, char *complaint,
                                  int complaint_room);
const char *options_help(void);

#endif
