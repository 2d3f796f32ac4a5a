/* fb_put_async and fb_wait, where there is an answer to wait for and where there is none. */
#include <pthread.h>

#include "check.h"

enum { THREADS = 4, BLOCKS = 90, COLUMNS = 170 };
static const uint64_t SHAPE[2] = {1, COLUMNS};

struct worker {
    fb_producer *producer;
    int number;
};

static fb_producer *open_over(const char *stream, const char *transport) {
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_producer *producer;
    options.stream = stream;
    options.transport = transport;
    options.timeout = 20;
    OK(fb_producer_open(&options, &producer));
    return producer;
}

/* Puts every fourth row, and waits for it. */
static void *put_rows(void *argument) {
    const struct worker *worker = argument;
    double rows[BLOCKS][COLUMNS];
    uint64_t dropped = 99;
    for (int i = 0; i < BLOCKS; i++) {
        const uint64_t row = (uint64_t)(i * THREADS + worker->number), offset[2] = {row, 0};
        fb_block block = a_block("U", FB_F64, 2, offset, SHAPE, rows[i]);
        int32_t outcome = -1;
        for (int x = 0; x < COLUMNS; x++) rows[i][x] = (double)row * COLUMNS + x;
        block.number = row;
        block.outcome = &outcome;
        OK(fb_put_async(worker->producer, &block));
        CHECK(outcome == FB_OUTCOME_STAGED);
    }
    OK(fb_wait(worker->producer, &dropped));
    CHECK(dropped == 0);
    memset(rows, 0xff, sizeof rows); /* they are ours again */
    return NULL;
}

static void many_rows(const char *stream, const char *transport) {
    static double out[THREADS * BLOCKS][COLUMNS];
    const uint64_t global[2] = {THREADS * BLOCKS, COLUMNS}, zero[2] = {0, 0};
    fb_consumer *consumer = open_consumer(stream);
    fb_producer *producer = open_over(stream, transport);
    declare(producer, "U", FB_F64, 2, global);
    for (uint64_t number = 0; number < 3; number++) {
        pthread_t threads[THREADS];
        struct worker workers[THREADS];
        OK(fb_producer_begin(producer, number, 0));
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (struct worker){producer, i};
            CHECK(pthread_create(&threads[i], NULL, put_rows, &workers[i]) == 0);
        }
        for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        OK(fb_producer_end(producer));
        fb_step *step = next_step(consumer, number);
        memset(out, 0, sizeof out);
        const fb_selection selection = a_selection("U", FB_F64, 2, zero, global, out);
        OK(fb_get(step, &selection));
        for (int i = 0; i < THREADS * BLOCKS * COLUMNS; i++) CHECK((&out[0][0])[i] == i);
        OK(fb_step_release(step));
    }
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

CASE(many_over_tcp) { many_rows(stream, "tcp"); }

CASE(many_on_one_host) { many_rows(stream, "shm"); }

CASE(order_of_calls) {
    const uint64_t global[2] = {5, COLUMNS}, zero[2] = {0, 0}, outside[2] = {5, 0};
    static const double row[COLUMNS] = {0};
    uint64_t dropped = 99;
    int32_t outcome = -1;
    fb_producer *producer = open_over(stream, "tcp");
    FAILS(FB_INVALID, "fb_wait: producer", "is NULL", fb_wait(NULL, &dropped));
    FAILS(FB_INVALID, "fb_put_async: producer", "is NULL", fb_put_async(NULL, NULL));
    FAILS(FB_INVALID, "fb_put_async: block", "is NULL", fb_put_async(producer, NULL));
    FAILS(FB_STEP_ORDER, "fb_wait", "outside a step", fb_wait(producer, NULL));
    declare(producer, "U", FB_F64, 2, global);
    fb_block block = a_block("U", FB_F64, 2, zero, SHAPE, row);
    block.outcome = &outcome;
    FAILS(FB_STEP_ORDER, "fb_put_async", "outside a step", fb_put_async(producer, &block));
    OK(fb_producer_begin(producer, 0, 0));
    OK(fb_put_async(producer, &block));
    CHECK(outcome == FB_OUTCOME_UNDEMANDED);
    OK(fb_wait(producer, &dropped));
    CHECK(dropped == 0);
    OK(fb_wait(producer, NULL));
    /* What this rank can see is told at once. */
    FAILS(FB_CONFLICT, "fb_put_async", "already put", fb_put_async(producer, &block));
    block.number = 1;
    block.offset = outside;
    FAILS(FB_OUT_OF_BOUNDS, "fb_put_async", "outside", fb_put_async(producer, &block));
    block.dtype = FB_F32;
    FAILS(FB_TYPE_MISMATCH, "fb_put_async", "float64", fb_put_async(producer, &block));
    OK(fb_producer_end(producer));
    OK(fb_producer_close(producer));
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"many_over_tcp", many_over_tcp},
        {"many_on_one_host", many_on_one_host},
        {"order_of_calls", order_of_calls},
        {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
