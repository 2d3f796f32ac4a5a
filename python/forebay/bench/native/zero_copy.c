/* What handing over memory without a copy costs, as a simulation in C sees it: no interpreter whose caches the
 * data has washed out.
 *
 *   zero_copy GROUP STREAM ELEMENTS REPETITIONS
 *
 * A step is begun, fb_alloc gives memory, it is filled with numbers that tell step and place, fb_commit and
 * fb_producer_end.  The consumer takes the step, fb_step_block shows the block, its last element is read, and all of it
 * is checked.  Before each call that is timed so much other memory is read that arrays of any size leave the
 * caches alike: a small array would leave there what a large one washes out.
 * Printed for each repetition after the first ten: nanoseconds of alloc + commit, and of the view.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <forebay.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WARMUP = 10 };

static void check(int result, const char *what) {
    if (result == FB_OK) return;
    fprintf(stderr, "%s: %s\n", what, fb_error());
    exit(1);
}

/* Reads other memory, so that the caches hold nothing of ours: as much more as `array`, the bytes that were just
 * filled or looked at, falls short of the largest, so that arrays of any size leave the caches alike.  Some are so
 * large that not even this empties them. */
static void wash_caches(uint64_t array) {
    enum { WORDS = 320 << 17 };
    static double *words;
    const uint64_t most = WORDS, used = array / 8 < most / 2 ? array / 8 : most / 2;
    volatile double sum = 0;
    if (words == NULL && (words = malloc(WORDS * sizeof *words)) != NULL)
        for (int i = 0; i < WORDS; i++) words[i] = i;
    if (words == NULL) exit(1);
    for (uint64_t i = 0; i < most - used; i += 8) sum += words[i];
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: zero_copy GROUP STREAM ELEMENTS REPETITIONS\n");
        return 2;
    }
    const uint64_t elements = strtoull(argv[3], NULL, 10), repetitions = strtoull(argv[4], NULL, 10), zero = 0;
    fb_consumer_options reading = FB_CONSUMER_OPTIONS_INIT;
    fb_producer_options writing = FB_PRODUCER_OPTIONS_INIT;
    fb_field field = FB_FIELD_INIT;
    fb_block block = FB_BLOCK_INIT;
    fb_consumer *consumer;
    fb_producer *producer;
    reading.group = writing.group = argv[1];
    reading.stream = writing.stream = argv[2];
    field.name = block.field = "U";
    field.dtype = block.dtype = FB_F64;
    field.ndim = block.ndim = 1;
    field.shape = block.shape = &elements;
    block.offset = &zero;
    check(fb_consumer_open(&reading, &consumer), "fb_consumer_open");
    check(fb_producer_open(&writing, &producer), "fb_producer_open");
    check(fb_array(producer, &field), "fb_array");
    for (uint64_t number = 0; number < WARMUP + repetitions; number++) {
        void *data = NULL;
        fb_step *step;
        fb_view view = FB_VIEW_INIT;
        check(fb_producer_begin(producer, number, 0), "fb_producer_begin");
        wash_caches(8 * elements);
        const int64_t began = now();
        check(fb_alloc(producer, &block, &data), "fb_alloc");
        const int64_t given = now();
        double *values = data;
        if (values == NULL) {
            fprintf(stderr, "nothing was given at step %llu\n", (unsigned long long)number);
            return 1;
        }
        for (uint64_t i = 0; i < elements; i++) values[i] = (double)(number * 7 + i);
        wash_caches(8 * elements);
        const int64_t filled = now();
        check(fb_commit(producer, data), "fb_commit");
        const int64_t committed = now();
        check(fb_producer_end(producer), "fb_producer_end");

        check(fb_consumer_next(consumer, 30, &step), "fb_consumer_next");
        wash_caches(8 * elements);
        const int64_t asked = now();
        check(fb_step_block(step, "U", 0, &view), "fb_step_block");
        const volatile double *seen = view.data;
        const double last = seen[elements - 1];
        const int64_t shown = now();
        uint64_t wrong = last != (double)(number * 7 + elements - 1) || view.bytes != 8 * elements || view.data == data;
        for (uint64_t i = 0; i < elements; i++) wrong += ((const double *)view.data)[i] != (double)(number * 7 + i);
        if (wrong > 0) {
            fprintf(stderr, "step %llu is not what was put\n", (unsigned long long)number);
            return 3;
        }
        check(fb_step_release(step), "fb_step_release");
        if (number >= WARMUP) printf("%lld %lld\n", (long long)(given - began + committed - filled), (long long)(shown - asked));
    }
    check(fb_producer_close(producer), "fb_producer_close");
    check(fb_consumer_close(consumer), "fb_consumer_close");
    return 0;
}
