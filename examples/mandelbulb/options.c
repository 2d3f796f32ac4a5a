/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char help[] =
    "usage: mandelbulb [options]\n"
    "\n"
    "Computes the Mandelbulb, a fractal in three dimensions, on any number of MPI\n"
    "ranks, and drives a pipeline of Forebay's with it: at each step it activates\n"
    "the pipeline, stages its blocks, has it executed and deactivates it.\n"
    "\n"
    "fractal\n"
    "  --block ZxYxX        points of a block, slowest dimension first  (16x128x128)\n"
    "  --blocks N           blocks of each rank, one behind the other in z    (4)\n"
    "  --steps N            steps                                             (10)\n"
    "  --iterations N       after so many a point counts as inside            (12)\n"
    "  --power P            of the formula, more than 1                       (8)\n"
    "  --power-step D       what is added to it with each step; with 0 it is\n"
    "                       computed once and staged again at each step       (0.05)\n"
    "staging\n"
    "  --group GROUP        connection file, or a group's name      (FOREBAY_GROUP)\n"
    "  --pipeline NAME      which pipeline is driven                  (mandelbulb)\n"
    "  --until FILE         end before all steps are done, once this file is there\n"
    "report\n"
    "  --json FILE          write what each step took there, a line of JSON for each\n";

const char *options_help(void) { return help; }

static const uint64_t MOST_POINTS = (uint64_t)1 << 40;

static int count(const char *text, char **end, uint64_t *out) {
    errno = 0;
    if (*text < '0' || *text > '9') return 0; /* strtoull would take a minus sign */
    *out = strtoull(text, end, 10);
    return errno == 0 && *out >= 1 && *out <= 1000000000;
}

static int whole(const char *text, uint64_t *out) {
    char *end;
    return count(text, &end, out) && !*end;
}

static int real(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && isfinite(*out);
}

static int shape(const char *text, uint64_t out[3]) {
    char *at = (char *)text;
    for (int d = 0; d < 3; d++, at++)
        if (!count(at, &at, &out[d]) || *at != (d < 2 ? 'x' : '\0')) return 0;
    /* Their bytes can be counted. */
    return out[0] <= MOST_POINTS / out[1] / out[2];
}

/* What one option's value should have been; NULL if it is right. */
static const char *take(int which, const char *value, struct options *o) {
    switch (which) {
    case 'b': return shape(value, o->block) ? NULL : "three extents such as 64x48x80";
    case 'n': return whole(value, &o->blocks) ? NULL : "a whole number from 1";
    case 's': return whole(value, &o->steps) ? NULL : "a whole number from 1";
    case 'i': return whole(value, &o->iterations) ? NULL : "a whole number from 1";
    case 'p': return real(value, &o->power) && o->power > 1 ? NULL : "a number greater than 1";
    case 'd': return real(value, &o->power_step) && o->power_step >= 0 ? NULL : "a number that is not negative";
    case 'g': o->group = value; return NULL;
    case 'P': o->pipeline = value; return NULL;
    case 'u': o->until = value; return NULL;
    default: o->json = value; return NULL;
    }
}

enum options_result options_parse(int words_count, char **words, struct options *o, char *complaint, int room) {
    static const struct option known[] = {
        {"block", required_argument, NULL, 'b'},    {"blocks", required_argument, NULL, 'n'},
        {"steps", required_argument, NULL, 's'},    {"iterations", required_argument, NULL, 'i'},
        {"power", required_argument, NULL, 'p'},    {"power-step", required_argument, NULL, 'd'},
        {"group", required_argument, NULL, 'g'},    {"pipeline", required_argument, NULL, 'P'},
        {"until", required_argument, NULL, 'u'},    {"json", required_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0},
    };
    *o = (struct options){.block = {16, 128, 128}, .blocks = 4, .steps = 10, .iterations = 12,
                          .power = 8, .power_step = 0.05, .pipeline = "mandelbulb"};
    opterr = 0;
    for (int which, at = 0; (which = getopt_long(words_count, words, ":h", known, &at)) != -1;) {
        if (which == 'h') return OPTIONS_HELP;
        if (which == '?' || which == ':') {
            snprintf(complaint, (size_t)room, "%s: %s; --help lists all options", words[optind - 1],
                     which == ':' ? "expected a value" : "no such option");
            return OPTIONS_WRONG;
        }
        const char *expected = take(which, optarg, o);
        if (expected) {
            snprintf(complaint, (size_t)room, "--%s %s: expected %s", known[at].name, optarg, expected);
            return OPTIONS_WRONG;
        }
    }
    if (optind < words_count) {
        snprintf(complaint, (size_t)room, "%s: no such option; --help lists them", words[optind]);
        return OPTIONS_WRONG;
    }
    return OPTIONS_RUN;
}
