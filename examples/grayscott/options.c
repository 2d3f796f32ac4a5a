/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: grayscott [options]\n"
    "\n"
    "Gray-Scott reaction and diffusion in three dimensions, periodic, on any number\n"
    "of MPI ranks. Stages the fields U and V with Forebay.\n"
    "\n"
    "model\n"
    "  --shape ZxYxX        grid points, slowest dimension first          (64x64x64)\n"
    "  --steps N            steps                                         (100)\n"
    "  --sub-steps N        time steps of dt in each step                 (8)\n"
    "  --feed F             feed rate of U                                (0.030)\n"
    "  --kill K             removal rate of V                             (0.0625)\n"
    "  --du D, --dv D       diffusion of U and V                      (0.14, 0.07)\n"
    "  --dt T               time step                                     (1.0)\n"
    "load, for benchmarks\n"
    "  --step-ms X          repeat sweeps until a step computes for about X\n"
    "                       milliseconds; the report gives the number of extra\n"
    "                       sweeps that this took here\n"
    "  --extra-sweeps N     exactly so many extra sweeps for each step    (0)\n"
    "staging\n"
    "  --group GROUP        connection file, or a group's name      (FOREBAY_GROUP)\n"
    "  --stream NAME        the stream's name                             (grayscott)\n"
    "  --output-every N     stage every so many steps; 0: never           (1)\n"
    "  --put ghosts|interior                                              (ghosts)\n"
    "                       put the arrays with their ghosts, or only what they\n"
    "                       enclose\n"
    "  --policy drop-oldest|block|latest                             (drop-oldest)\n"
    "                       when readers cannot keep up\n"
    "  --replicas N         how many servers hold each block              (1)\n"
    "  --timeout SECONDS    deadline of Forebay's waits                   (30)\n"
    "  --transport auto|shm|tcp                                           (auto)\n"
    "  --strict             abort on an error of Forebay's, instead of going on\n"
    "                       without\n"
    "report\n"
    "  --json FILE          write the report there as one line of JSON; - for\n"
    "                       standard output\n"
    "  --progress           print \"step N\" as the run goes\n";

const char *options_help(void) { return help; }

/* What is being parsed, and where a complaint goes. */
struct parser {
    const char *name, *value;
    char *complaint;
    int room;
    int wrong;
};

static void complain(struct parser *p, const char *expected) {
    if (!p->wrong) snprintf(p->complaint, (size_t)p->room, "%s %s: expected %s", p->name, p->value, expected);
    p->wrong = 1;
}

static int read_count(const char *text, char **end, uint64_t low, uint64_t high, uint64_t *out) {
    errno = 0;
    if (*text < '0' || *text > '9') return 0; /* strtoull would take a minus sign */
    *out = strtoull(text, end, 10);
    return errno == 0 && *out >= low && *out <= high;
}

static void count(struct parser *p, uint64_t low, uint64_t *out) {
    char *end;
    if (!read_count(p->value, &end, low, INT_MAX, out) || *end)
        complain(p, low ? "a whole number from 1" : "a whole number from 0");
}

static void real(struct parser *p, double *out) {
    char *end;
    *out = strtod(p->value, &end);
    if (end == p->value || *end || !isfinite(*out) || *out < 0) complain(p, "a number that is not negative");
}

static void shape(struct parser *p, uint64_t out[3]) {
    char *at = (char *)p->value;
    for (int d = 0; d < 3; d++) {
        /* MPI describes a rank's part with ints, two ghosts included. */
        if (!read_count(at, &at, 1, INT_MAX - 2, &out[d]) || *at != (d < 2 ? 'x' : '\0')) {
            complain(p, "three extents such as 64x48x80");
            return;
        }
        at++;
    }
}

static void choice(struct parser *p, const char *const *names, int *out) {
    char list[128] = "one of";
    for (int i = 0; names[i]; i++) {
        if (strcmp(p->value, names[i]) == 0) {
            *out = i;
            return;
        }
        strcat(strcat(list, " "), names[i]);
    }
    complain(p, list);
}

static int flag(const char *name, struct options *o) {
    if (strcmp(name, "--strict") == 0) return o->strict = 1;
    if (strcmp(name, "--progress") == 0) return o->progress = 1;
    return 0;
}

static const char *const policies[] = {"drop-oldest", "block", "latest", NULL}; /* in the order of FB_POLICY_... */
static const char *const puts_of[] = {"ghosts", "interior", NULL};

/* Returns 0 if there is no such option. */
static int valued(struct parser *p, struct options *o) {
    const char *name = p->name;
#define IS(text) (strcmp(name, text) == 0)
    if (IS("--shape")) shape(p, o->shape);
    else if (IS("--steps")) count(p, 1, &o->steps);
    else if (IS("--sub-steps")) count(p, 1, &o->sub_steps);
    else if (IS("--feed")) real(p, &o->feed);
    else if (IS("--kill")) real(p, &o->kill);
    else if (IS("--du")) real(p, &o->du);
    else if (IS("--dv")) real(p, &o->dv);
    else if (IS("--dt")) real(p, &o->dt);
    else if (IS("--step-ms")) real(p, &o->step_ms);
    else if (IS("--extra-sweeps")) count(p, 0, &o->extra_sweeps);
    else if (IS("--group")) o->group = p->value;
    else if (IS("--stream")) o->stream = p->value;
    else if (IS("--output-every")) count(p, 0, &o->output_every);
    else if (IS("--put")) choice(p, puts_of, &o->interior_only);
    else if (IS("--policy")) choice(p, policies, &o->policy);
    else if (IS("--replicas")) count(p, 1, &o->replicas);
    else if (IS("--timeout")) real(p, &o->timeout);
    else if (IS("--transport")) o->transport = p->value;
    else if (IS("--json")) o->json = p->value;
    else return 0;
#undef IS
    return 1;
}

enum options_result options_parse(int words_count, char **words, struct options *o, char *complaint, int room) {
    struct parser p = {NULL, NULL, complaint, room, 0};
    *o = (struct options){
        .shape = {64, 64, 64}, .steps = 100, .sub_steps = 8,
        .feed = 0.030, .kill = 0.0625, .du = 0.14, .dv = 0.07, .dt = 1.0, /* tubes that grow into a labyrinth */
        .stream = "grayscott", .output_every = 1, .replicas = 1, .timeout = 30.0,
    };
    for (int i = 1; i < words_count && !p.wrong; i++) {
        p.name = words[i];
        p.value = i + 1 < words_count ? words[i + 1] : "(nothing)";
        if (strcmp(p.name, "--help") == 0 || strcmp(p.name, "-h") == 0) return OPTIONS_HELP;
        if (flag(p.name, o)) continue;
        if (!valued(&p, o)) {
            snprintf(complaint, (size_t)room, "%s: no such option; --help lists them", p.name);
            return OPTIONS_WRONG;
        }
        if (++i == words_count && !p.wrong) complain(&p, "a value");
    }
    if (p.wrong) return OPTIONS_WRONG;
    /* Explicit diffusion in three dimensions doubles its errors beyond this. */
    double fastest = o->dt * (o->du > o->dv ? o->du : o->dv);
    if (fastest > 1.0 / 6.0) {
        snprintf(complaint, (size_t)room, "dt times the larger of du and dv is %g: unstable; keep it within 1/6",
                 fastest);
        return OPTIONS_WRONG;
    }
    if (o->step_ms > 0 && o->extra_sweeps > 0) {
        snprintf(complaint, (size_t)room, "--step-ms and --extra-sweeps exclude each other");
        return OPTIONS_WRONG;
    }
    return OPTIONS_RUN;
}
