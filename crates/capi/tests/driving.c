/* fb_pipeline_...: a pipeline that is driven from C.  test_driving.py creates it, under the name of the case. */
#include "check.h"

enum { ROWS = 6, COLUMNS = 170 };
static const uint64_t SHAPE[2] = {ROWS, COLUMNS}, ZERO[2] = {0, 0};
static double values[ROWS][COLUMNS];

static void fill(uint64_t step) {
    for (int i = 0; i < ROWS * COLUMNS; i++) (&values[0][0])[i] = (double)step + i;
}

static fb_pipeline *open_pipeline(const char *name, int64_t server, const char *transport) {
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_pipeline *pipeline;
    fb_producer *rank;
    options.timeout = 20;
    options.transport = transport;
    OK(fb_pipeline_open(&options, name, server, &pipeline));
    OK(fb_pipeline_producer(pipeline, &rank));
    declare(rank, "U", FB_F64, 2, SHAPE);
    return pipeline;
}

static void stage(fb_pipeline *pipeline, uint64_t step) {
    fill(step);
    fb_block block = a_block("U", FB_F64, 2, ZERO, SHAPE, values);
    int32_t outcome = -1;
    block.outcome = &outcome;
    OK(fb_pipeline_stage(pipeline, &block));
    CHECK(outcome == FB_OUTCOME_STAGED);
}

static void cycle(const char *name, const char *transport) {
    fb_pipeline *pipeline = open_pipeline(name, -1, transport);
    for (uint64_t step = 5; step < 10; step++) {
        uint32_t workers = 99;
        int ran = -1;
        OK(fb_pipeline_activate(pipeline, step, 0.5, &workers));
        CHECK(workers == 2);
        stage(pipeline, step);
        OK(fb_pipeline_execute(pipeline, step, -1, &ran));
        CHECK(ran == 1);
        OK(fb_pipeline_deactivate(pipeline, step));
    }
    OK(fb_pipeline_close(pipeline));
}

CASE(blocking) { cycle(stream, NULL); }

CASE(over_tcp) { cycle(stream, "tcp"); }

CASE(not_blocking) {
    fb_pipeline *pipeline = open_pipeline(stream, -1, "tcp");
    fb_request *activated, *before = NULL, *request;
    for (uint64_t step = 0; step < 6; step++) {
        uint32_t workers = 99;
        int ran = -1;
        OK(fb_pipeline_activate_async(pipeline, step, 0, &activated));
        fill(step);
        const fb_block block = a_block("U", FB_F64, 2, ZERO, SHAPE, values);
        OK(fb_pipeline_stage_async(pipeline, &block));
        OK(fb_request_wait(activated, 20, &workers, NULL));
        CHECK(workers == 2);
        OK(fb_request_free(activated));
        OK(fb_pipeline_execute_async(pipeline, step, &request));
        if (before) {
            OK(fb_request_wait(before, -1, NULL, &ran));
            CHECK(ran == 1);
            OK(fb_request_wait(before, 0, NULL, &ran));
            OK(fb_request_free(before));
            OK(fb_pipeline_deactivate(pipeline, step - 1));
        }
        before = request;
    }
    OK(fb_request_wait(before, -1, NULL, NULL));
    OK(fb_pipeline_close(pipeline));
    OK(fb_request_free(before));
}

CASE(one_server) {
    fb_pipeline *pipeline = open_pipeline(stream, 1, NULL);
    uint32_t workers = 99;
    int ran = -1;
    OK(fb_pipeline_activate(pipeline, 0, 0, &workers));
    CHECK(workers == 1);
    stage(pipeline, 0);
    OK(fb_pipeline_execute(pipeline, 0, -1, &ran));
    CHECK(ran == 1);
    OK(fb_pipeline_close(pipeline));
}

CASE(memory_of_its_own) {
    fb_pipeline *pipeline = open_pipeline(stream, -1, "shm");
    fb_producer *rank;
    void *data = NULL;
    OK(fb_pipeline_producer(pipeline, &rank));
    OK(fb_pipeline_activate(pipeline, 3, 0, NULL));
    const fb_block block = a_block("U", FB_F64, 2, ZERO, SHAPE, NULL);
    OK(fb_alloc(rank, &block, &data));
    fill(3);
    memcpy(data, values, sizeof values);
    OK(fb_commit(rank, data));
    OK(fb_pipeline_execute(pipeline, 3, -1, NULL));
    FAILS(FB_INVALID, "fb_commit", "fb_alloc", fb_commit(rank, data));
    OK(fb_pipeline_deactivate(pipeline, 3));
    OK(fb_pipeline_close(pipeline));
}

CASE(bad_calls) {
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_pipeline *pipeline = (fb_pipeline *)&options;
    fb_producer *rank;
    fb_request *request = (fb_request *)&options;
    int ran = -1;
    options.timeout = 20;
    FAILS(FB_NOT_FOUND, "fb_pipeline_open", "'none'", fb_pipeline_open(&options, "none", -1, &pipeline));
    CHECK(pipeline == NULL);
    FAILS(FB_INVALID, "server is -2", "-1 for all", fb_pipeline_open(&options, stream, -2, &pipeline));
    FAILS(FB_UNREACHABLE, "fb_pipeline_open", "server7", fb_pipeline_open(&options, stream, 7, &pipeline));
    FAILS(FB_INVALID, "name is NULL", "", fb_pipeline_open(&options, NULL, -1, &pipeline));
    FAILS(FB_INVALID, "pipeline is NULL", "", fb_pipeline_open(&options, stream, -1, NULL));
    options.stream = "other";
    FAILS(FB_INVALID, "runs on stream", "not on 'other'", fb_pipeline_open(&options, stream, -1, &pipeline));
    OK(fb_pipeline_close(NULL));
    OK(fb_request_free(NULL));
    FAILS(FB_INVALID, "request is NULL", "", fb_request_wait(NULL, -1, NULL, NULL));
    FAILS(FB_INVALID, "pipeline is NULL", "", fb_pipeline_activate(NULL, 0, 0, NULL));
    pipeline = open_pipeline(stream, -1, NULL);
    OK(fb_pipeline_producer(pipeline, &rank));
    FAILS(FB_INVALID, "fb_producer_begin", "fb_pipeline_activate", fb_producer_begin(rank, 0, 0));
    FAILS(FB_INVALID, "fb_producer_end", "fb_pipeline_execute", fb_producer_end(rank));
    FAILS(FB_INVALID, "fb_producer_close", "fb_pipeline_close", fb_producer_close(rank));
    FAILS(FB_STEP_ORDER, "fb_pipeline_execute", "not active", fb_pipeline_execute(pipeline, 0, -1, &ran));
    FAILS(FB_STEP_ORDER, "fb_pipeline_execute_async", "not active", fb_pipeline_execute_async(pipeline, 0, &request));
    CHECK(request == NULL);
    FAILS(FB_STEP_ORDER, "fb_pipeline_deactivate", "not active", fb_pipeline_deactivate(pipeline, 0));
    const fb_block block = a_block("U", FB_F64, 2, ZERO, SHAPE, values);
    FAILS(FB_STEP_ORDER, "fb_pipeline_stage", "outside a step", fb_pipeline_stage(pipeline, &block));
    OK(fb_pipeline_activate(pipeline, 0, 0, NULL));
    FAILS(FB_INVALID, "timeout", "", fb_pipeline_execute(pipeline, 0, 0.0 / 0.0, &ran));
    stage(pipeline, 0);
    OK(fb_pipeline_execute(pipeline, 0, 20, &ran));
    FAILS(FB_STEP_ORDER, "fb_pipeline_activate", "active already", fb_pipeline_activate(pipeline, 0, 0, NULL));
    OK(fb_pipeline_close(pipeline));
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"blocking", blocking},
        {"over_tcp", over_tcp},
        {"not_blocking", not_blocking},
        {"one_server", one_server},
        {"memory_of_its_own", memory_of_its_own},
        {"bad_calls", bad_calls},
        {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
