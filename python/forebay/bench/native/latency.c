/* The age of an 8-byte step when the reader has its value, as programs in C see it.
 *
 *   latency GROUP STREAM TRANSPORT STEPS GAP_US
 *
 * Two processes.  The producer takes the time (CLOCK_MONOTONIC), begins a step, puts the time in it and ends it, and
 * sleeps GAP_US.  The consumer sleeps until a step comes, takes its block, reads the value and looks at the clock.
 * The consumer prints each age in nanoseconds, that of the first tenth of the steps left out.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <forebay.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void check(int result, const char *what) {
    if (result == FB_OK) return;
    fprintf(stderr, "%s: %s\n", what, fb_error());
    exit(1);
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Attaches, says so by closing `attached`, and takes every step. */
static int consume(char **argv, uint64_t steps, int attached) {
    fb_consumer_options options = FB_CONSUMER_OPTIONS_INIT;
    fb_consumer *consumer;
    options.group = argv[1];
    options.stream = argv[2];
    options.transport = argv[3];
    check(fb_consumer_open(&options, &consumer), "fb_consumer_open");
    close(attached);
    uint64_t next = 0;
    for (;;) {
        fb_step *step;
        const int result = fb_consumer_next(consumer, 60, &step);
        if (result == FB_ENDED) break;
        check(result, "fb_consumer_next");
        fb_view view = FB_VIEW_INIT;
        check(fb_step_block(step, "T", 0, &view), "fb_step_block");
        const int64_t written = *(const int64_t *)view.data, age = now() - written;
        fb_step_info info = FB_STEP_INFO_INIT;
        check(fb_step_info_get(step, &info), "fb_step_info_get");
        if (view.bytes != 8 || age <= 0 || info.number != next++) {
            fprintf(stderr, "step %llu is not what was put\n", (unsigned long long)info.number);
            return 3;
        }
        if (next > steps / 10) printf("%lld\n", (long long)age);
        check(fb_step_release(step), "fb_step_release");
    }
    check(fb_consumer_close(consumer), "fb_consumer_close");
    if (next == steps) return 0;
    fprintf(stderr, "%llu of %llu steps came\n", (unsigned long long)next, (unsigned long long)steps);
    return 3;
}

static void produce(char **argv, uint64_t steps, long gap) {
    const uint64_t one = 1, zero = 0;
    const struct timespec pause = {gap / 1000000, gap % 1000000 * 1000};
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_producer *producer;
    fb_field field = FB_FIELD_INIT;
    fb_block block = FB_BLOCK_INIT;
    int64_t value;
    options.group = argv[1];
    options.stream = argv[2];
    options.transport = argv[3];
    options.policy = FB_POLICY_BLOCK;
    field.name = block.field = "T";
    field.dtype = block.dtype = FB_I64;
    field.ndim = block.ndim = 1;
    field.shape = block.shape = &one;
    block.offset = &zero;
    block.data = &value;
    check(fb_producer_open(&options, &producer), "fb_producer_open");
    check(fb_array(producer, &field), "fb_array");
    for (uint64_t number = 0; number < steps; number++) {
        value = now();
        check(fb_producer_begin(producer, number, 0), "fb_producer_begin");
        check(fb_put(producer, &block), "fb_put");
        check(fb_producer_end(producer), "fb_producer_end");
        nanosleep(&pause, NULL);
    }
    check(fb_producer_close(producer), "fb_producer_close");
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: latency GROUP STREAM TRANSPORT STEPS GAP_US\n");
        return 2;
    }
    const uint64_t steps = strtoull(argv[4], NULL, 10);
    int attached[2];
    char byte;
    if (pipe(attached) != 0) return 1;
    const pid_t consumer = fork();
    if (consumer < 0) return 1;
    if (consumer == 0) {
        close(attached[0]);
        return consume(argv, steps, attached[1]);
    }
    close(attached[1]);
    if (read(attached[0], &byte, 1) != 0) return 1;
    produce(argv, steps, strtol(argv[5], NULL, 10));
    int status;
    if (waitpid(consumer, &status, 0) != consumer || !WIFEXITED(status)) return 1;
    return WEXITSTATUS(status);
}
