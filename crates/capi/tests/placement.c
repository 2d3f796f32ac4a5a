/* Which server holds a block, as the options of a producer say it. */
#include "check.h"

enum { ROWS = 40, COLUMNS = 170, BLOCKS = 5 };
static const uint64_t GLOBAL[2] = {ROWS, COLUMNS}, SHAPE[2] = {ROWS / BLOCKS, COLUMNS};

struct told {
    int calls;
    uint64_t servers;
};

/* The first and the last block on the last server, the others on the first. */
static int64_t at_the_ends(void *context, const fb_to_place *block) {
    struct told *told = context;
    CHECK(block->struct_size == sizeof(fb_to_place));
    CHECK(strcmp(block->field, "U") == 0);
    CHECK(block->ndim == 2 && block->rank == 0);
    CHECK(block->shape[0] == SHAPE[0] && block->shape[1] == SHAPE[1]);
    CHECK(block->offset[0] == block->number * SHAPE[0] && block->offset[1] == 0);
    told->calls++;
    told->servers = block->servers_count;
    CHECK(block->servers[0] == 0);
    const int is_end = block->number == 0 || block->number == BLOCKS - 1;
    return block->servers[is_end ? block->servers_count - 1 : 0];
}

static int64_t nowhere(void *context, const fb_to_place *block) {
    (void)context;
    return block->number == 0 ? -3 : 2;
}

static fb_producer *open_placing(const char *stream, int32_t placement, fb_place_function place, void *context) {
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_producer *producer;
    options.stream = stream;
    options.timeout = 20;
    options.placement = placement;
    options.place = place;
    options.place_context = context;
    OK(fb_producer_open(&options, &producer));
    return producer;
}

/* Steps that are put and read back whole. */
static void put_and_read(const char *stream, int32_t placement, fb_place_function place, void *context) {
    static double rows[ROWS][COLUMNS], out[ROWS][COLUMNS];
    const uint64_t zero[2] = {0, 0};
    fb_consumer *consumer = open_consumer(stream);
    fb_producer *producer = open_placing(stream, placement, place, context);
    declare(producer, "U", FB_F64, 2, GLOBAL);
    for (uint64_t number = 0; number < 3; number++) {
        for (int i = 0; i < ROWS * COLUMNS; i++) (&rows[0][0])[i] = i + 0.25 * (double)number;
        OK(fb_producer_begin(producer, number, 0));
        for (uint64_t i = 0; i < BLOCKS; i++) {
            const uint64_t offset[2] = {i * SHAPE[0], 0};
            fb_block block = a_block("U", FB_F64, 2, offset, SHAPE, rows[offset[0]]);
            block.number = i;
            OK(fb_put(producer, &block));
        }
        OK(fb_producer_end(producer));
        fb_step *step = next_step(consumer, number);
        const fb_selection selection = a_selection("U", FB_F64, 2, zero, GLOBAL, out);
        memset(out, 0, sizeof out);
        OK(fb_get(step, &selection));
        CHECK(memcmp(rows, out, sizeof rows) == 0);
        OK(fb_step_release(step));
    }
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

CASE(by_block) { put_and_read(stream, FB_PLACEMENT_BY_BLOCK, NULL, NULL); }

CASE(by_a_function) {
    struct told told = {0, 0};
    put_and_read(stream, FB_PLACEMENT_FUNCTION, at_the_ends, &told);
    CHECK(told.calls == 3 * BLOCKS);
    CHECK(told.servers == 2);
}

CASE(bad_placements) {
    static const double row[8 * COLUMNS] = {0};
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_producer *producer;
    options.stream = stream;
    options.placement = 7;
    FAILS(FB_INVALID, "fb_producer_open", "options->placement is 7", fb_producer_open(&options, &producer));
    options.placement = FB_PLACEMENT_FUNCTION;
    FAILS(FB_INVALID, "fb_producer_open", "options->place is NULL", fb_producer_open(&options, &producer));

    fb_consumer *consumer = open_consumer(stream);
    producer = open_placing(stream, FB_PLACEMENT_FUNCTION, nowhere, NULL);
    declare(producer, "U", FB_F64, 2, GLOBAL);
    OK(fb_producer_begin(producer, 0, 0));
    for (uint64_t i = 0; i < 2; i++) {
        const uint64_t offset[2] = {i * SHAPE[0], 0};
        fb_block block = a_block("U", FB_F64, 2, offset, SHAPE, row);
        block.number = i;
        FAILS(FB_INVALID, "fb_put", i == 0 ? "-3" : "server2; there are server0, server1", fb_put(producer, &block));
    }
    OK(fb_producer_end(producer));
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"by_block", by_block},
        {"by_a_function", by_a_function},
        {"bad_placements", bad_placements},
        {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
