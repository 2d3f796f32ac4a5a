/* Looking at a stream from outside. */
#include "check.h"

static const uint64_t SHAPE[1] = {3}, ZERO[1] = {0};

static fb_producer *keeping(const char *stream, uint32_t keep) {
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_producer *producer;
    options.stream = stream;
    options.timeout = 20;
    options.keep = keep;
    OK(fb_producer_open(&options, &producer));
    declare(producer, "U", FB_F64, 1, SHAPE);
    return producer;
}

static void write_step(fb_producer *producer, uint64_t number) {
    const double values[3] = {(double)number, 1, 2};
    const fb_block block = a_block("U", FB_F64, 1, ZERO, SHAPE, values);
    OK(fb_producer_begin(producer, number, 0.5));
    OK(fb_put(producer, &block));
    OK(fb_producer_end(producer));
    OK(fb_flush(producer));
}

static fb_stream *look_at(const char *name) {
    fb_admin_options options = FB_ADMIN_OPTIONS_INIT;
    fb_stream *stream;
    options.timeout = 20;
    OK(fb_stream_open(&options, name, &stream));
    return stream;
}

static void check_is(fb_step *step, uint64_t number) {
    fb_step_info info = FB_STEP_INFO_INIT;
    double values[3] = {0, 0, 0};
    const fb_selection all = a_selection("U", FB_F64, 1, ZERO, SHAPE, values);
    OK(fb_step_info_get(step, &info));
    CHECK(info.run == 1 && info.number == number && info.time == 0.5);
    OK(fb_get(step, &all));
    CHECK(values[0] == (double)number && values[2] == 2);
    OK(fb_step_release(step));
}

CASE(steps_that_are_held) {
    fb_stream *looked = look_at(stream);
    fb_step *step;
    char *json;
    OK(fb_stream_steps(looked, &json));
    CHECK(strcmp(json, "[]") == 0);
    fb_free(json);
    FAILS(FB_NOT_FOUND, "no step of stream", stream, fb_stream_latest(looked, &step));
    CHECK(step == NULL);
    FAILS(FB_NOT_FOUND, "nobody has opened stream", stream, fb_stream_at(looked, 0, 0, &step));
    fb_producer *producer = keeping(stream, 2);
    for (uint64_t number = 0; number < 4; number++) write_step(producer, number);
    OK(fb_stream_steps(looked, &json));
    CHECK(strstr(json, "\"number\":2") && strstr(json, "\"number\":3") && !strstr(json, "\"number\":1,"));
    CHECK(strstr(json, "\"fields\":[\"U\"]") && strstr(json, "\"bytes\":24") && strstr(json, "\"time\":0.5"));
    fb_free(json);
    OK(fb_stream_latest(looked, &step));
    check_is(step, 3);
    OK(fb_stream_at(looked, 0, 2, &step));
    check_is(step, 2);
    FAILS(FB_DROPPED, "step 0 of run 1", "the next that is held is 2", fb_stream_at(looked, 1, 0, &step));
    CHECK(step == NULL);
    OK(fb_stream_at(looked, 1, 3, &step));
    /* A step outlives what it was found with. */
    OK(fb_stream_close(looked));
    check_is(step, 3);
    OK(fb_producer_close(producer));
}

CASE(steps_that_are_there) {
    fb_consumer *consumer = open_consumer(stream);
    fb_step *step;
    OK(fb_consumer_poll(consumer, &step));
    CHECK(step == NULL);
    fb_producer *producer = keeping(stream, 0);
    write_step(producer, 0);
    do OK(fb_consumer_poll(consumer, &step));
    while (step == NULL);
    check_is(step, 0);
    OK(fb_consumer_poll(consumer, &step));
    CHECK(step == NULL);
    OK(fb_producer_close(producer));
    int result;
    do result = fb_consumer_poll(consumer, &step);
    while (result == FB_OK);
    CHECK(result == FB_ENDED && step == NULL);
    FAILS(FB_INVALID, "step", "is NULL", fb_consumer_poll(consumer, NULL));
    FAILS(FB_INVALID, "consumer", "is NULL", fb_consumer_poll(NULL, &step));
    OK(fb_consumer_close(consumer));
}

CASE(bad_input) {
    fb_admin_options options = FB_ADMIN_OPTIONS_INIT;
    fb_stream *looked = look_at(stream), *none = looked;
    fb_step *step;
    char *json;
    FAILS(FB_INVALID, "fb_stream_open: stream", "is NULL", fb_stream_open(&options, stream, NULL));
    FAILS(FB_INVALID, "name", "is NULL", fb_stream_open(&options, NULL, &none));
    CHECK(none == NULL);
    FAILS(FB_INVALID, "stream", "this one has 0", fb_stream_open(&options, "", &none));
    FAILS(FB_INVALID, "fb_stream_steps", "is NULL", fb_stream_steps(looked, NULL));
    FAILS(FB_INVALID, "stream", "is NULL", fb_stream_steps(NULL, &json));
    FAILS(FB_INVALID, "step", "is NULL", fb_stream_latest(looked, NULL));
    FAILS(FB_INVALID, "stream", "is NULL", fb_stream_at(NULL, 0, 0, &step));
    fb_producer *producer = keeping(stream, 1);
    FAILS(FB_NOT_FOUND, "has had no run 9", "its latest is 1", fb_stream_at(looked, 9, 0, &step));
    FAILS(FB_NOT_FOUND, "step 7 of run 1", "none is", fb_stream_at(looked, 0, 7, &step));
    OK(fb_producer_close(producer));
    OK(fb_stream_close(looked));
    OK(fb_stream_close(NULL));
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"steps_that_are_held", steps_that_are_held},
        {"steps_that_are_there", steps_that_are_there},
        {"bad_input", bad_input},
        {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
