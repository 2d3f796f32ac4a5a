/* What the test programs of the C interface share: cases by name, checks, and short ways to open things.
 *
 * A program runs the case that is named on its command line; test_c_api.py finds the names by CASE(name).
 * Every case uses its own name as the stream's.  The group comes from FOREBAY_GROUP.
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forebay.h"

struct test_case {
    const char *name;
    void (*run)(const char *stream);
};

#define CASE(name) static void name(const char *stream)

static inline void fail(int line, const char *what, const char *more) {
    fprintf(stderr, "line %d: %s: %s\n", line, what, more);
    exit(1);
}

#define CHECK(condition) ((condition) ? (void)0 : fail(__LINE__, #condition, "is not true"))

static inline void check_ok(int line, const char *what, int result) {
    if (result != FB_OK) fail(line, what, fb_error());
}
#define OK(call) check_ok(__LINE__, #call, call)

/* The call fails with this kind, and its text has both parts: what failed, and on what. */
static inline void check_fails(int line, const char *what, int result, int kind, const char *part, const char *other) {
    if (result == kind && strstr(fb_error(), part) && strstr(fb_error(), other)) return;
    fprintf(stderr, "line %d: %s: gave %s (%s), not %s with '%s' and '%s'\n", line, what, fb_result_name(result),
            result == FB_OK ? "" : fb_error(), fb_result_name(kind), part, other);
    exit(1);
}
#define FAILS(kind, part, other, call) check_fails(__LINE__, #call, call, kind, part, other)

static inline int run_case(int argc, char **argv, const struct test_case *cases) {
    for (; argc == 2 && cases->name; cases++)
        if (strcmp(cases->name, argv[1]) == 0) {
            cases->run(cases->name);
            return 0;
        }
    fprintf(stderr, "usage: %s CASE\n", argv[0]);
    return 2;
}

/* ---- short ways ----------------------------------------------------------------------------- */

static inline fb_producer *open_producer(const char *stream) {
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_producer *producer;
    options.stream = stream;
    options.timeout = 20;
    OK(fb_producer_open(&options, &producer));
    return producer;
}

static inline fb_consumer *open_consumer(const char *stream) {
    fb_consumer_options options = FB_CONSUMER_OPTIONS_INIT;
    fb_consumer *consumer;
    options.stream = stream;
    options.timeout = 20;
    OK(fb_consumer_open(&options, &consumer));
    return consumer;
}

/* `shape` NULL: an unplaced field. */
static inline fb_field a_field(const char *name, int32_t dtype, uint32_t ndim, const uint64_t *shape) {
    fb_field field = FB_FIELD_INIT;
    field.name = name;
    field.dtype = dtype;
    field.ndim = ndim;
    field.shape = shape;
    return field;
}

static inline void declare(fb_producer *producer, const char *name, int32_t dtype, uint32_t ndim, const uint64_t *shape) {
    const fb_field field = a_field(name, dtype, ndim, shape);
    OK(fb_array(producer, &field));
}

static inline fb_block a_block(const char *field, int32_t dtype, uint32_t ndim, const uint64_t *offset, const uint64_t *shape,
                               const void *data) {
    fb_block block = FB_BLOCK_INIT;
    block.field = field;
    block.dtype = dtype;
    block.ndim = ndim;
    block.offset = offset;
    block.shape = shape;
    block.data = data;
    return block;
}

static inline fb_selection a_selection(const char *field, int32_t dtype, uint32_t ndim, const uint64_t *offset,
                                       const uint64_t *shape, void *data) {
    fb_selection selection = FB_SELECTION_INIT;
    selection.field = field;
    selection.dtype = dtype;
    selection.ndim = ndim;
    selection.offset = offset;
    selection.shape = shape;
    selection.data = data;
    return selection;
}

static inline fb_step *next_step(fb_consumer *consumer, uint64_t number) {
    fb_step_info info = FB_STEP_INFO_INIT;
    fb_step *step;
    OK(fb_consumer_next(consumer, -1, &step));
    OK(fb_step_info_get(step, &info));
    CHECK(info.number == number);
    return step;
}

#endif
