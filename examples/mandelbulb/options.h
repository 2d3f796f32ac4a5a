/* SPDX-License-Identifier: Apache-2.0 */
/* What the command line says. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdint.h>

struct options {
    uint64_t block[3]; /* points, the slowest dimension first */
    uint64_t blocks;   /* of each rank */
    uint64_t steps, iterations;
    double power, power_step;
    const char *group, *pipeline, *json, *until;
};

enum options_result { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_WRONG };

const char *options_help(void);
/* Fills `options`, or says in `complaint` what is wrong. */
enum options_result options_parse(int words_count, char **words, struct options *options, char *complaint, int room);

#endif
