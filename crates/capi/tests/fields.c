/* What a reader is told of a field, and where a reader goes on. */
#include "check.h"

enum { NZ = 4, NY = 5, NX = 6 };
static const uint64_t GLOBAL[3] = {NZ, NY, NX}, ZERO[3] = {0, 0, 0};
static double values[NZ][NY][NX];

CASE(what_they_are) {
    static const char *const dims[3] = {"z", "y", "\xc3\xa5"};
    const double spacing[3] = {0.5, 0.25, 2}, origin[3] = {-1, 0, 1e300};
    fb_consumer *consumer = open_consumer(stream);
    fb_producer *producer = open_producer(stream);
    fb_field field = a_field("U", FB_F64, 3, GLOBAL);
    field.dims = dims;
    field.spacing = spacing;
    field.origin = origin;
    field.units = "m/s";
    field.association = FB_ASSOCIATION_VERTEX;
    field.every = 2;
    OK(fb_array(producer, &field));
    declare(producer, "n", FB_I64, 0, NULL);
    OK(fb_producer_begin(producer, 4, 0));
    const fb_block block = a_block("U", FB_F64, 3, ZERO, GLOBAL, values);
    const int64_t n = 7;
    const fb_block scalar = a_block("n", FB_I64, 0, NULL, NULL, &n);
    OK(fb_put(producer, &block));
    OK(fb_put(producer, &scalar));
    OK(fb_producer_end(producer));
    fb_step *step = next_step(consumer, 4);
    fb_field_info info = FB_FIELD_INFO_INIT;
    OK(fb_step_field(step, "U", &info));
    CHECK(strcmp(info.name, "U") == 0 && strcmp(info.units, "m/s") == 0);
    CHECK(info.dtype == FB_F64 && info.ndim == 3 && info.placed && info.every == 2);
    CHECK(info.association == FB_ASSOCIATION_VERTEX);
    CHECK(info.has_dims && info.has_spacing && info.has_origin);
    for (int d = 0; d < 3; d++) {
        CHECK(strcmp(info.dims[d], dims[d]) == 0 && info.shape[d] == GLOBAL[d]);
        CHECK(info.spacing[d] == spacing[d] && info.origin[d] == origin[d]);
    }
    CHECK(info.dims[3] == NULL && info.shape[3] == 0 && info.spacing[3] == 0 && info.origin[3] == 0);
    /* Texts stay where they are while the step is held. */
    fb_field_info again = FB_FIELD_INFO_INIT;
    OK(fb_step_field(step, "U", &again));
    CHECK(again.units == info.units && again.dims[2] == info.dims[2]);
    OK(fb_step_field(step, "n", &info));
    CHECK(info.ndim == 0 && info.placed && !info.has_dims && info.dims[0] == NULL && info.units[0] == 0);
    CHECK(info.association == FB_ASSOCIATION_CELL);
    /* Of no program that was compiled with a header of Forebay. */
    info.struct_size = offsetof(fb_field_info, units);
    info.units = "untouched";
    FAILS(FB_INVALID, "info->struct_size", "FB_FIELD_INFO_INIT", fb_step_field(step, "U", &info));
    CHECK(strcmp(info.units, "untouched") == 0);
    OK(fb_step_release(step));
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

CASE(what_belongs_to_the_run) {
    const uint64_t four[1] = {4}, zero[1] = {0};
    const int32_t mask[4] = {1, 0, 1, 1};
    fb_consumer *consumer = open_consumer(stream);
    fb_producer *producer = open_producer(stream);
    declare(producer, "U", FB_F64, 3, GLOBAL);
    fb_field field = a_field("mask", FB_I32, 1, four);
    field.is_static = 2;
    FAILS(FB_INVALID, "field->is_static", "2", fb_array(producer, &field));
    field.is_static = 1;
    OK(fb_array(producer, &field));
    const fb_block block = a_block("U", FB_F64, 3, ZERO, GLOBAL, values);
    const fb_block still = a_block("mask", FB_I32, 1, zero, four, mask);
    for (uint64_t number = 0; number < 2; number++) {
        OK(fb_producer_begin(producer, number, 0));
        OK(fb_put(producer, &block));
        if (number == 0) OK(fb_put(producer, &still));
        else FAILS(FB_STEP_ORDER, "'mask' is static", "not at step 1", fb_put(producer, &still));
        OK(fb_producer_end(producer));
        fb_step *step = next_step(consumer, number);
        fb_field_info info = FB_FIELD_INFO_INIT;
        OK(fb_step_field(step, "mask", &info));
        CHECK(info.is_static && strcmp(info.name, "mask") == 0);
        OK(fb_step_field(step, "U", &info));
        CHECK(!info.is_static);
        fb_view view = FB_VIEW_INIT;
        OK(fb_step_block(step, "mask", 0, &view));
        CHECK(memcmp(view.data, mask, sizeof mask) == 0);
        OK(fb_step_release(step));
    }
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

CASE(what_is_shared_out) {
    fb_consumer_options options = FB_CONSUMER_OPTIONS_INIT;
    fb_consumer *first, *second, *third;
    options.stream = stream;
    options.timeout = 20;
    options.share = FB_SHARE_ROUND_ROBIN;
    FAILS(FB_INVALID, "'round-robin'", "has no name", fb_consumer_open(&options, &first));
    options.name = "w";
    OK(fb_consumer_open(&options, &first));
    OK(fb_consumer_open(&options, &second));
    options.share = 7;
    FAILS(FB_INVALID, "options->share", "7", fb_consumer_open(&options, &third));
    options.share = FB_SHARE_ON_DEMAND;
    FAILS(FB_CONFLICT, "share its steps", "the same share", fb_consumer_open(&options, &third));
    options.share = FB_SHARE_ROUND_ROBIN;
    fb_producer *producer = open_producer(stream);
    declare(producer, "U", FB_F64, 3, GLOBAL);
    const fb_block block = a_block("U", FB_F64, 3, ZERO, GLOBAL, values);
    for (uint64_t number = 0; number < 2; number++) {
        OK(fb_producer_begin(producer, number, 0));
        OK(fb_put(producer, &block));
        OK(fb_producer_end(producer));
    }
    /* The step that the second one has not looked at is the first one's. */
    fb_step *step = next_step(first, 0), *none;
    fb_step_info info = FB_STEP_INFO_INIT;
    OK(fb_step_info_get(step, &info));
    CHECK(info.attempt == 0 && info.number == 0);
    OK(fb_step_release(step));
    OK(fb_consumer_close(second));
    /* What it gives back it is given again, since nobody else is there. */
    OK(fb_step_give_back(next_step(first, 1)));
    step = next_step(first, 1);
    OK(fb_step_info_get(step, &info));
    CHECK(info.attempt == 1);
    OK(fb_step_release(step));
    OK(fb_step_give_back(NULL));
    OK(fb_consumer_open(&options, &second));
    OK(fb_consumer_abandon(second));
    OK(fb_consumer_abandon(NULL));
    OK(fb_producer_close(producer));
    CHECK(fb_consumer_next(first, -1, &none) == FB_ENDED);
    OK(fb_consumer_close(first));
}

CASE(where_things_lie) {
    fb_consumer *consumer = open_consumer(stream);
    fb_producer *producer = open_producer(stream);
    const double spacing[3] = {0.5, 1, 2}, origin[3] = {0, 0, 1}, low[2] = {0, -1}, high[2] = {1, 1}, outer[2] = {-0.5, -2};
    fb_field field = a_field("U", FB_F64, 3, GLOBAL), x = FB_FIELD_INIT;
    field.spacing = spacing;
    field.origin = origin;
    OK(fb_array(producer, &field));
    x.name = "x";
    x.dtype = FB_F64;
    x.ndim = 2;
    OK(fb_particles(producer, "ions", &x, 1, sizeof x));
    OK(fb_rank_bounds(producer, 2, 1));
    FAILS(FB_OUT_OF_BOUNDS, "ndim", "9", fb_rank_bounds(producer, 9, 1));
    OK(fb_producer_begin(producer, 0, 0));
    const fb_block block = a_block("U", FB_F64, 3, ZERO, GLOBAL, values);
    OK(fb_put(producer, &block));
    const double rows[6][2] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}};
    const uint64_t four[2] = {4, 2}, ghosts[2] = {1, 0};
    fb_block ions = a_block("ions/x", FB_F64, 2, NULL, four, rows);
    ions.ghost_low = ions.ghost_high = ghosts;
    OK(fb_put(producer, &ions));
    FAILS(FB_INVALID, "in dimension 0", "from 1 to 0", fb_put_rank_bounds(producer, 2, high, low, NULL, NULL));
    FAILS(FB_INVALID, "low", "NULL", fb_put_rank_bounds(producer, 2, NULL, high, NULL, NULL));
    OK(fb_put_rank_bounds(producer, 2, low, high, outer, NULL));
    OK(fb_producer_end(producer));
    fb_step *step = next_step(consumer, 0);
    fb_view view = FB_VIEW_INIT;
    double from[3], to[3], outer_from[2], outer_to[2];
    OK(fb_step_block(step, "U", 0, &view));
    OK(fb_view_bounds(step, "U", &view, 0, from, to));
    CHECK(from[0] == -0.25 && from[2] == 0 && to[0] == -0.25 + 0.5 * NZ && to[2] == 2 * NX);
    OK(fb_step_rank_bounds(step, 0, 2, from, to, outer_from, outer_to));
    CHECK(from[1] == -1 && to[1] == 1 && outer_from[0] == -0.5 && outer_to[0] == 1);
    OK(fb_step_rank_bounds(step, 0, 2, NULL, to, NULL, NULL));
    FAILS(FB_NOT_FOUND, "rank 7", "at step 0", fb_step_rank_bounds(step, 7, 2, from, to, NULL, NULL));
    FAILS(FB_OUT_OF_BOUNDS, "ndim is 3", "2 dimensions", fb_step_rank_bounds(step, 0, 3, from, to, NULL, NULL));
    uint64_t count = 0;
    OK(fb_step_row_count(step, "ions/x", &count));
    CHECK(count == 4);
    double some[2][2];
    const uint64_t first[2] = {1, 0}, two[2] = {2, 2}, inner[2] = {0, 1}, many[2] = {4, 2};
    fb_selection selection = a_selection("ions/x", FB_F64, 2, first, two, some);
    OK(fb_get_rows(step, &selection));
    CHECK(some[0][0] == 4 && some[1][1] == 7);
    selection.offset = inner;
    FAILS(FB_OUT_OF_BOUNDS, "read whole", "", fb_get_rows(step, &selection));
    selection.offset = first;
    selection.shape = many;
    FAILS(FB_OUT_OF_BOUNDS, "ions/x", "outside", fb_get_rows(step, &selection));
    FAILS(FB_INVALID, "U", "global shape", fb_step_row_count(step, "U", &count));
    OK(fb_step_release(step));
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

CASE(where_a_reader_goes_on) {
    fb_producer_options writing = FB_PRODUCER_OPTIONS_INIT;
    fb_consumer_options reading = FB_CONSUMER_OPTIONS_INIT;
    fb_producer *producer;
    fb_consumer *consumer;
    uint64_t run = 0;
    writing.stream = reading.stream = stream;
    writing.keep = 8;
    consumer = open_consumer(stream);
    OK(fb_producer_open(&writing, &producer));
    declare(producer, "U", FB_F64, 3, GLOBAL);
    for (uint64_t number = 0; number < 4; number++) {
        const fb_block block = a_block("U", FB_F64, 3, ZERO, GLOBAL, values);
        OK(fb_producer_begin(producer, number, 0));
        OK(fb_put(producer, &block));
        OK(fb_producer_end(producer));
        if (number < 2) OK(fb_step_release(next_step(consumer, number)));
    }
    OK(fb_consumer_cursor(consumer, &reading.start_run, &reading.start_step));
    OK(fb_producer_run(producer, &run));
    CHECK(reading.start_run == run && reading.start_step == 2);
    OK(fb_consumer_close(consumer));
    reading.start = FB_START_CURSOR;
    OK(fb_consumer_open(&reading, &consumer));
    for (uint64_t number = 2; number < 4; number++) OK(fb_step_release(next_step(consumer, number)));
    OK(fb_consumer_close(consumer));
    OK(fb_producer_close(producer));
}

/* A view keeps nothing in the servers' memory beyond what the options say: later blocks are copies. */
CASE(what_is_pinned) {
    fb_consumer_options reading = FB_CONSUMER_OPTIONS_INIT;
    fb_consumer *consumer;
    CHECK(reading.pin_bytes == (uint64_t)1 << 30);
    reading.stream = stream;
    reading.pin_bytes = 0;
    OK(fb_consumer_open(&reading, &consumer));
    fb_producer *producer = open_producer(stream);
    declare(producer, "U", FB_F64, 3, GLOBAL);
    for (uint64_t number = 0; number < 3; number++) {
        const fb_block block = a_block("U", FB_F64, 3, ZERO, GLOBAL, values);
        values[0][0][0] = 7 + (double)number;
        OK(fb_producer_begin(producer, number, 0));
        OK(fb_put(producer, &block));
        OK(fb_producer_end(producer));
        fb_step *step = next_step(consumer, number);
        fb_view view = FB_VIEW_INIT;
        OK(fb_step_block(step, "U", 0, &view));
        CHECK(*(const double *)view.data == 7 + (double)number && view.server < 2);
        OK(fb_step_release(step));
    }
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"what_they_are", what_they_are},
        {"what_belongs_to_the_run", what_belongs_to_the_run},
        {"what_is_shared_out", what_is_shared_out},
        {"where_things_lie", where_things_lie},
        {"where_a_reader_goes_on", where_a_reader_goes_on},
        {"what_is_pinned", what_is_pinned},
        {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
