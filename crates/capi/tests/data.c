/* What is put is what is read: every dtype, ghosts, strides of all kinds, empty and unplaced blocks. */
#include <unistd.h>

#include "check.h"

enum { NZ = 4, NY = 5, NX = 6, COUNT = NZ * NY * NX };
static const uint64_t GLOBAL[3] = {NZ, NY, NX}, ZERO[3] = {0, 0, 0};

static double at(uint64_t z, uint64_t y, uint64_t x) { return (double)(100 * z + 10 * y + x); }

/* Begins a step that is wanted: the consumer attached before the producer. */
static void begin_wanted(fb_producer *producer, uint64_t number, const char *field) {
    int demanded = 0;
    OK(fb_producer_begin(producer, number, 0.5));
    OK(fb_demanded(producer, field, &demanded));
    CHECK(demanded);
}

static void check_whole(fb_step *step, const char *field) {
    double out[NZ][NY][NX];
    const fb_selection selection = a_selection(field, FB_F64, 3, ZERO, GLOBAL, out);
    OK(fb_get(step, &selection));
    for (uint64_t z = 0; z < NZ; z++)
        for (uint64_t y = 0; y < NY; y++)
            for (uint64_t x = 0; x < NX; x++) CHECK(out[z][y][x] == at(z, y, x));
}

CASE(dtypes) {
    static const size_t sizes[16] = {0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 8, 16};
    unsigned char in[COUNT * 16], out[COUNT * 16], bools[COUNT];
    fb_consumer *consumer = open_consumer(stream);
    fb_producer *producer = open_producer(stream);
    char name[] = "field 0";
    for (size_t i = 0; i < sizeof in; i++) in[i] = (unsigned char)(i * 7 + i / 256);
    for (size_t i = 0; i < sizeof bools; i++) bools[i] = (unsigned char)(i % 3 == 0);
    for (int dtype = FB_BOOL; dtype <= FB_C128; dtype++) {
        name[6] = (char)('A' + dtype);
        declare(producer, name, dtype, 3, GLOBAL);
    }
    OK(fb_producer_begin(producer, 0, 0));
    for (int dtype = FB_BOOL; dtype <= FB_C128; dtype++) {
        name[6] = (char)('A' + dtype);
        const fb_block block = a_block(name, dtype, 3, ZERO, GLOBAL, dtype == FB_BOOL ? bools : in);
        OK(fb_put(producer, &block));
    }
    OK(fb_producer_end(producer));
    fb_step *step = next_step(consumer, 0);
    for (int dtype = FB_BOOL; dtype <= FB_C128; dtype++) {
        const char *told_name;
        fb_field_info told = FB_FIELD_INFO_INIT;
        name[6] = (char)('A' + dtype);
        OK(fb_step_field_name(step, (uint64_t)dtype - 1, &told_name));
        CHECK(strcmp(told_name, name) == 0);
        OK(fb_step_field(step, name, &told));
        CHECK(strcmp(told.name, name) == 0 && told.dtype == dtype && told.every == 1);
        CHECK(told.placed && told.ndim == 3 && memcmp(told.shape, GLOBAL, sizeof GLOBAL) == 0);
        CHECK(!told.has_dims && !told.has_spacing && !told.has_origin && told.units[0] == 0);
        memset(out, 0xee, sizeof out);
        const fb_selection selection = a_selection(name, dtype, 3, ZERO, GLOBAL, out);
        OK(fb_get(step, &selection));
        CHECK(memcmp(out, dtype == FB_BOOL ? bools : in, COUNT * sizes[dtype]) == 0);
        CHECK(COUNT * sizes[dtype] == sizeof out || out[COUNT * sizes[dtype]] == 0xee);
    }
    OK(fb_step_release(step));
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

/* Only the part that a contract names leaves the simulation, at the steps that it names. */
CASE(contracts) {
    const uint64_t offset[3] = {1, 0, 2}, shape[3] = {2, 5, 2}, stride[3] = {1, 1, 3};
    fb_need needs[2] = {FB_NEED_INIT, FB_NEED_INIT};
    needs[0].field = "U";
    needs[0].every = 2;
    needs[0].first = 40;
    needs[0].ndim = 3;
    needs[0].offset = offset;
    needs[0].shape = shape;
    needs[0].stride = stride;
    needs[1].field = "never";
    needs[1].optional = 1;
    fb_consumer_options options = FB_CONSUMER_OPTIONS_INIT;
    options.stream = stream;
    options.fields = needs;
    options.fields_count = 2;
    options.fields_stride = sizeof needs[0];
    fb_consumer *consumer;
    OK(fb_consumer_open(&options, &consumer));
    fb_producer_options writes = FB_PRODUCER_OPTIONS_INIT;
    writes.stream = stream;
    writes.first = 30;
    writes.stride = 5;
    fb_producer *producer;
    OK(fb_producer_open(&writes, &producer));
    declare(producer, "U", FB_F64, 3, GLOBAL);
    double array[NZ][NY][NX];
    for (uint64_t z = 0; z < NZ; z++)
        for (uint64_t y = 0; y < NY; y++)
            for (uint64_t x = 0; x < NX; x++) array[z][y][x] = at(z, y, x);
    FAILS(FB_INVALID, "step 33", "first=30 and stride=5", fb_producer_begin(producer, 33, 0));
    for (uint64_t number = 30; number <= 50; number += 5) {
        int32_t outcome = -1;
        fb_block block = a_block("U", FB_F64, 3, ZERO, GLOBAL, array);
        block.outcome = &outcome;
        OK(fb_producer_begin(producer, number, 0));
        OK(fb_put(producer, &block));
        OK(fb_producer_end(producer));
        CHECK(outcome == (number == 40 || number == 50 ? FB_OUTCOME_STAGED : FB_OUTCOME_UNDEMANDED));
    }
    fb_step *step = next_step(consumer, 40);
    double out[2][5][2];
    fb_selection selection = a_selection("U", FB_F64, 3, offset, shape, out);
    selection.every = stride;
    OK(fb_get(step, &selection));
    fb_view view = FB_VIEW_INIT;
    OK(fb_step_block(step, "U", 0, &view));
    CHECK(view.bytes == sizeof out && memcmp(view.step, stride, sizeof stride) == 0);
    CHECK(memcmp(view.offset, offset, sizeof offset) == 0 && memcmp(view.shape, shape, sizeof shape) == 0);
    for (uint64_t z = 0; z < 2; z++)
        for (uint64_t y = 0; y < 5; y++)
            for (uint64_t x = 0; x < 2; x++) {
                CHECK(out[z][y][x] == at(z + 1, y, 2 + 3 * x));
                CHECK(((const double(*)[5][2])view.data)[z][y][x] == out[z][y][x]);
            }
    selection.every = NULL;
    FAILS(FB_NOT_COVERED, "'U'", "outside what this reader needs", fb_get(step, &selection));
    OK(fb_step_release(step));
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
    const uint64_t none[3] = {2, 0, 2};
    needs[0].shape = none;
    FAILS(FB_OUT_OF_BOUNDS, "options->fields[0]", "none", fb_consumer_open(&options, &consumer));
    needs[0].shape = NULL;
    FAILS(FB_INVALID, "options->fields[0].shape", "NULL", fb_consumer_open(&options, &consumer));
}

/* One array with unequal ghosts on every side, as its interior alone, and as blocks with ghosts. */
CASE(ghosts_and_interiors) {
    const uint64_t low[3] = {1, 0, 2}, high[3] = {2, 1, 0};
    double array[NZ + 3][NY + 1][NX + 2];
    fb_need needs[2] = {FB_NEED_INIT, FB_NEED_INIT};
    needs[0].field = "with ghosts";
    needs[0].stats = FB_STATS_ALONG;
    needs[1].field = "interior";
    fb_consumer_options reads = FB_CONSUMER_OPTIONS_INIT;
    reads.stream = stream;
    reads.fields = needs;
    reads.fields_count = 2;
    fb_consumer *consumer;
    OK(fb_consumer_open(&reads, &consumer));
    fb_producer *producer = open_producer(stream);
    for (int z = 0; z < NZ + 3; z++)
        for (int y = 0; y < NY + 1; y++)
            for (int x = 0; x < NX + 2; x++) {
                const int inside = z >= 1 && z < NZ + 1 && y < NY && x >= 2;
                array[z][y][x] = inside ? at((uint64_t)z - 1, (uint64_t)y, (uint64_t)x - 2) : -1;
            }
    fb_field counted = a_field("with ghosts", FB_F64, 3, GLOBAL);
    OK(fb_array(producer, &counted));
    declare(producer, "interior", FB_F64, 3, GLOBAL);
    begin_wanted(producer, 0, "interior");
    fb_block block = a_block("with ghosts", FB_F64, 3, ZERO, GLOBAL, array);
    int32_t outcome = -1;
    block.ghost_low = low;
    block.ghost_high = high;
    block.outcome = &outcome;
    OK(fb_put(producer, &block));
    CHECK(outcome == FB_OUTCOME_STAGED);
    const int64_t strides[3] = {sizeof array[0], sizeof array[0][0], sizeof array[0][0][0]};
    block = a_block("interior", FB_F64, 3, ZERO, GLOBAL, &array[1][0][2]);
    block.strides = strides;
    OK(fb_put(producer, &block));
    memset(array, 0xff, sizeof array); /* it is ours again */
    OK(fb_producer_end(producer));

    fb_step *step = next_step(consumer, 0);
    check_whole(step, "with ghosts");
    check_whole(step, "interior");
    fb_view view = FB_VIEW_INIT;
    OK(fb_step_block(step, "with ghosts", 0, &view));
    CHECK(view.ndim == 3 && view.placed && view.rank == 0 && view.dtype == FB_F64);
    CHECK(memcmp(view.shape, GLOBAL, sizeof GLOBAL) == 0 && memcmp(view.offset, ZERO, sizeof ZERO) == 0);
    CHECK(memcmp(view.ghost_low, low, sizeof low) == 0 && memcmp(view.ghost_high, high, sizeof high) == 0);
    CHECK(view.bytes == sizeof array);
    const double *first = view.data;
    CHECK(first[0] == -1 && first[(1 * (NY + 1) + 0) * (NX + 2) + 2] == at(0, 0, 0));
    fb_view again = FB_VIEW_INIT;
    OK(fb_step_block(step, "with ghosts", 0, &again));
    CHECK(again.data == view.data);

    /* Statistics are of the interior; whoever was compiled without them gets the rest. */
    double sum = 0;
    for (uint64_t i = 0; i < COUNT; i++) sum += at(i / NX / NY, i / NX % NY, i % NX);
    CHECK(view.has_stats && view.min == at(0, 0, 0) && view.max == at(NZ - 1, NY - 1, NX - 1));
    CHECK(view.sum == sum && view.count == COUNT && view.nan == 0 && view.variance > 0);
    double least;
    memcpy(&least, &view.min_bits, sizeof least);
    CHECK(least == view.min && view.tiles == 0 && view.tile_bounds == NULL);
    fb_stats stats = FB_STATS_INIT;
    OK(fb_step_stats(step, "with ghosts", &stats));
    CHECK(stats.sum == sum && stats.count == COUNT && stats.variance == view.variance && stats.max_bits == view.max_bits);
    FAILS(FB_NOT_COVERED, "'interior'", "asked for in the contract", fb_step_stats(step, "interior", &stats));
    OK(fb_step_block(step, "interior", 0, &again));
    CHECK(!again.has_stats && again.min == 0 && again.max == 0 && again.sum == 0 && again.count == 0);
    fb_view early = FB_VIEW_INIT;
    early.struct_size = offsetof(fb_view, min);
    early.min = -7;
    OK(fb_step_block(step, "with ghosts", 0, &early));
    CHECK(early.data == view.data && early.bytes == view.bytes && early.min == -7);
    early.struct_size--;
    FAILS(FB_INVALID, "view->struct_size", "fb_view", fb_step_block(step, "with ghosts", 0, &early));
    OK(fb_step_release(step));
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

/* Column-major, turned round, every other element: read where they lie, and written where they go. */
CASE(strides) {
    double column_major[NX][NY][NZ], backwards[COUNT], sparse[NZ][NY][2 * NX];
    fb_consumer *consumer = open_consumer(stream);
    fb_producer *producer = open_producer(stream);
    for (uint64_t z = 0; z < NZ; z++)
        for (uint64_t y = 0; y < NY; y++)
            for (uint64_t x = 0; x < NX; x++) {
                column_major[x][y][z] = at(z, y, x);
                backwards[COUNT - 1 - ((z * NY + y) * NX + x)] = at(z, y, x);
                sparse[z][y][2 * x] = at(z, y, x);
                sparse[z][y][2 * x + 1] = -1;
            }
    const int64_t turned[3] = {8, 8 * NZ, 8 * NZ * NY}, negative[3] = {-8 * NX * NY, -8 * NX, -8};
    const int64_t every_other[3] = {16 * NX * NY, 16 * NX, 16};
    declare(producer, "turned", FB_F64, 3, GLOBAL);
    declare(producer, "backwards", FB_F64, 3, GLOBAL);
    declare(producer, "sparse", FB_F64, 3, GLOBAL);
    begin_wanted(producer, 0, "turned");
    fb_block block = a_block("turned", FB_F64, 3, ZERO, GLOBAL, column_major);
    block.strides = turned;
    OK(fb_put(producer, &block));
    block = a_block("backwards", FB_F64, 3, ZERO, GLOBAL, &backwards[COUNT - 1]);
    block.strides = negative;
    OK(fb_put(producer, &block));
    block = a_block("sparse", FB_F64, 3, ZERO, GLOBAL, sparse);
    block.strides = every_other;
    OK(fb_put(producer, &block));
    OK(fb_producer_end(producer));

    fb_step *step = next_step(consumer, 0);
    check_whole(step, "turned");
    check_whole(step, "backwards");
    check_whole(step, "sparse");
    /* Every second z, from 1; every third x, from 2; into a column-major array. */
    const uint64_t offset[3] = {1, 1, 2}, shape[3] = {2, 4, 2}, apart[3] = {2, 1, 3};
    const int64_t into[3] = {8, 16, 64};
    double out[2][4][2];
    fb_selection selection = a_selection("turned", FB_F64, 3, offset, shape, out);
    selection.every = apart;
    selection.strides = into;
    OK(fb_get(step, &selection));
    for (uint64_t z = 0; z < 2; z++)
        for (uint64_t y = 0; y < 4; y++)
            for (uint64_t x = 0; x < 2; x++) CHECK(out[x][y][z] == at(1 + 2 * z, 1 + y, 2 + 3 * x));
    OK(fb_step_release(step));
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

CASE(empty_and_scalar) {
    const uint64_t none[3] = {4, 0, 6}, edge[3] = {4, 5, 6}, unit[3] = {0, 0, 0};
    const double one = 42;
    double out = -1;
    fb_consumer *consumer = open_consumer(stream);
    fb_producer *producer = open_producer(stream);
    double values[COUNT];
    for (int i = 0; i < COUNT; i++) values[i] = at((uint64_t)i / NX / NY, (uint64_t)i / NX % NY, (uint64_t)i % NX);
    declare(producer, "U", FB_F64, 3, GLOBAL);
    declare(producer, "E", FB_F64, 3, none); /* a field without elements */
    declare(producer, "S", FB_F64, 0, NULL); /* one number */
    begin_wanted(producer, 0, "S");
    fb_block block = a_block("U", FB_F64, 3, ZERO, GLOBAL, values);
    OK(fb_put(producer, &block));
    block = a_block("U", FB_F64, 3, edge, unit, NULL); /* empty, at the far corner */
    block.number = 1;
    OK(fb_put(producer, &block));
    block = a_block("E", FB_F64, 3, ZERO, none, NULL);
    OK(fb_put(producer, &block));
    block = a_block("S", FB_F64, 0, NULL, NULL, &one);
    OK(fb_put(producer, &block));
    OK(fb_producer_end(producer));

    fb_step *step = next_step(consumer, 0);
    check_whole(step, "U");
    fb_selection selection = a_selection("S", FB_F64, 0, NULL, NULL, &out);
    OK(fb_get(step, &selection));
    CHECK(out == 42);
    out = -1;
    selection = a_selection("U", FB_F64, 3, edge, unit, NULL); /* an empty region */
    OK(fb_get(step, &selection));
    selection = a_selection("E", FB_F64, 3, ZERO, none, &out);
    OK(fb_get(step, &selection));
    CHECK(out == -1);
    uint64_t count;
    fb_view view = FB_VIEW_INIT;
    OK(fb_step_block_count(step, "U", &count));
    CHECK(count == 2);
    for (uint64_t i = 0; i < count; i++) {
        OK(fb_step_block(step, "U", i, &view));
        CHECK((view.bytes == 0) == (view.data == NULL) && (view.number == 0) == (view.bytes > 0));
    }
    OK(fb_step_release(step));
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

CASE(empty_in_place) {
    const uint64_t none[3] = {4, 0, 6};
    fb_consumer *consumer = open_consumer(stream);
    fb_producer *producer = open_producer(stream);
    void *memory[2];
    declare(producer, "U", FB_F64, 3, GLOBAL);
    begin_wanted(producer, 0, "U");
    for (int i = 0; i < 2; i++) {
        fb_block block = a_block("U", FB_F64, 3, ZERO, none, NULL);
        block.number = (uint64_t)i;
        OK(fb_alloc(producer, &block, &memory[i]));
    }
    CHECK(memory[0] != memory[1]);
    for (int i = 0; i < 2; i++) OK(fb_commit(producer, memory[i]));
    OK(fb_producer_end(producer));
    fb_step *step = next_step(consumer, 0);
    uint64_t count;
    OK(fb_step_block_count(step, "U", &count));
    CHECK(count == 2);
    OK(fb_step_release(step));
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

CASE(unplaced) {
    const uint64_t shapes[2][2] = {{3, 700}, {2, 5}};
    static int32_t first[3][700], second[2][5];
    fb_consumer *consumer = open_consumer(stream);
    fb_producer *producer = open_producer(stream);
    for (int i = 0; i < 3 * 700; i++) (&first[0][0])[i] = i;
    for (int i = 0; i < 2 * 5; i++) (&second[0][0])[i] = -i;
    declare(producer, "P", FB_I32, 2, NULL);
    begin_wanted(producer, 0, "P");
    fb_block block = a_block("P", FB_I32, 2, NULL, shapes[0], first);
    OK(fb_put(producer, &block));
    block = a_block("P", FB_I32, 2, NULL, shapes[1], second);
    block.number = 9;
    OK(fb_put(producer, &block));
    block = a_block("P", FB_I32, 2, ZERO, shapes[1], second);
    block.number = 10;
    FAILS(FB_OUT_OF_BOUNDS, "'P'", "no global shape", fb_put(producer, &block));
    OK(fb_producer_end(producer));
    fb_step *step = next_step(consumer, 0);
    uint64_t count;
    OK(fb_step_block_count(step, "P", &count));
    CHECK(count == 2);
    for (uint64_t i = 0; i < 2; i++) {
        fb_view view = FB_VIEW_INIT;
        OK(fb_step_block(step, "P", i, &view));
        const int big = view.number == 0;
        CHECK(!view.placed && memcmp(view.shape, shapes[big ? 0 : 1], sizeof shapes[0]) == 0);
        CHECK(view.bytes == (big ? sizeof first : sizeof second));
        CHECK(memcmp(view.data, big ? &first[0][0] : &second[0][0], view.bytes) == 0);
    }
    fb_field_info told = FB_FIELD_INFO_INIT;
    OK(fb_step_field(step, "P", &told));
    CHECK(told.ndim == 2 && !told.placed);
    fb_selection selection = a_selection("P", FB_I32, 2, ZERO, shapes[1], second);
    FAILS(FB_OUT_OF_BOUNDS, "'P'", "no place", fb_get(step, &selection));
    OK(fb_step_release(step));
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

CASE(computed_in_place) {
    fb_consumer *consumer = open_consumer(stream);
    fb_producer *producer = open_producer(stream);
    const char *transport;
    uint64_t run = 0;
    void *half[2], *unused;
    OK(fb_producer_transport(producer, &transport));
    CHECK(strcmp(transport, "shm") == 0);
    OK(fb_producer_run(producer, &run));
    CHECK(run == 1);
    declare(producer, "U", FB_F64, 3, GLOBAL);
    begin_wanted(producer, 0, "U");
    const uint64_t offsets[2][3] = {{0, 0, 0}, {1, 0, 0}}, shapes[2][3] = {{1, NY, NX}, {3, NY, NX}};
    for (int i = 0; i < 2; i++) {
        fb_block block = a_block("U", FB_F64, 3, offsets[i], shapes[i], NULL);
        block.number = (uint64_t)i;
        OK(fb_alloc(producer, &block, &half[i]));
        CHECK(half[i] != NULL);
        double *values = half[i];
        for (uint64_t z = 0; z < shapes[i][0]; z++)
            for (uint64_t y = 0; y < NY; y++)
                for (uint64_t x = 0; x < NX; x++) values[(z * NY + y) * NX + x] = at(offsets[i][0] + z, y, x);
    }
    fb_block block = a_block("U", FB_F64, 3, ZERO, GLOBAL, NULL);
    block.number = 2;
    OK(fb_alloc(producer, &block, &unused));
    OK(fb_abort(producer, unused));
    FAILS(FB_INVALID, "fb_abort", "given back", fb_abort(producer, unused));
    OK(fb_alloc(producer, &block, &unused)); /* left to fb_producer_end */
    OK(fb_commit(producer, half[1]));
    OK(fb_commit(producer, half[0]));
    FAILS(FB_INVALID, "fb_commit", "committed", fb_commit(producer, half[0]));
    OK(fb_producer_end(producer));
    OK(fb_producer_begin(producer, 1, 0));
    FAILS(FB_INVALID, "fb_commit", "in this step", fb_commit(producer, unused));
    OK(fb_producer_end(producer));
    OK(fb_flush(producer));
    fb_step *step = next_step(consumer, 0);
    check_whole(step, "U");
    OK(fb_step_release(step));
    OK(fb_consumer_close(consumer));

    /* With nobody there, there is nothing to compute. */
    int demanded = 1;
    uint64_t number = 2;
    for (; demanded; number++) {
        CHECK(number < 100000);
        OK(fb_producer_begin(producer, number, 0));
        OK(fb_demanded(producer, "U", &demanded));
        if (!demanded) {
            int32_t outcome = -1;
            OK(fb_alloc(producer, &block, &unused));
            CHECK(unused == NULL);
            block.number = 3;
            block.data = half; /* never read */
            block.outcome = &outcome;
            OK(fb_put(producer, &block));
            CHECK(outcome == FB_OUTCOME_UNDEMANDED);
        }
        OK(fb_producer_end(producer));
    }
    OK(fb_producer_close(producer));
}

CASE(a_shape_that_changes) {
    fb_consumer *consumer = open_consumer(stream);
    fb_producer *producer = open_producer(stream);
    for (uint64_t number = 0; number < 4; number++) {
        const uint64_t shape[2] = {2 + number, 7 - number}, zero[2] = {0, 0};
        int16_t in[64], out[64];
        fb_field_info told = FB_FIELD_INFO_INIT;
        for (int i = 0; i < 64; i++) in[i] = (int16_t)(100 * (int)number + i);
        declare(producer, "U", FB_I16, 2, shape);
        begin_wanted(producer, number, "U");
        const fb_block block = a_block("U", FB_I16, 2, zero, shape, in);
        OK(fb_put(producer, &block));
        OK(fb_producer_end(producer));
        fb_step *step = next_step(consumer, number);
        OK(fb_step_field(step, "U", &told));
        CHECK(told.shape[0] == shape[0] && told.shape[1] == shape[1]);
        const fb_selection selection = a_selection("U", FB_I16, 2, zero, shape, out);
        OK(fb_get(step, &selection));
        CHECK(memcmp(in, out, shape[0] * shape[1] * 2) == 0);
        OK(fb_step_release(step));
    }
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

CASE(periods) {
    fb_need need = FB_NEED_INIT;
    fb_consumer_options options = FB_CONSUMER_OPTIONS_INIT;
    fb_consumer *consumer;
    const uint64_t zero[1] = {0}, shape[1] = {3};
    const double values[3] = {1, 2, 3};
    need.field = "U";
    need.dtype = FB_F64;
    need.every = 3;
    options.stream = stream;
    options.fields = &need;
    options.fields_count = 1;
    OK(fb_consumer_open(&options, &consumer));
    fb_producer *producer = open_producer(stream);
    fb_field field = a_field("U", FB_F64, 1, shape);
    field.every = 2;
    OK(fb_array(producer, &field));
    for (uint64_t number = 1; number < 20; number++) {
        int32_t outcome = -1;
        fb_block block = a_block("U", FB_F64, 1, zero, shape, values);
        block.outcome = &outcome;
        OK(fb_producer_begin(producer, number, 0));
        OK(fb_put(producer, &block));
        CHECK(outcome == (number % 6 ? FB_OUTCOME_UNDEMANDED : FB_OUTCOME_STAGED));
        OK(fb_producer_end(producer));
    }
    OK(fb_producer_close(producer));
    for (uint64_t number = 6; number < 20; number += 6) OK(fb_step_release(next_step(consumer, number)));
    fb_step *step;
    FAILS(FB_ENDED, stream, "", fb_consumer_next(consumer, -1, &step));
    OK(fb_consumer_close(consumer));
}

/* A restart from a checkpoint, told to a reader that follows. */
CASE(a_run_that_continues) {
    fb_consumer_options reading = FB_CONSUMER_OPTIONS_INIT;
    fb_producer_options writing = FB_PRODUCER_OPTIONS_INIT;
    fb_step_info info = FB_STEP_INFO_INIT;
    fb_consumer *consumer;
    fb_producer *producer;
    fb_step *step;
    const uint64_t zero[1] = {0}, shape[1] = {3};
    const double values[3] = {1, 2, 3};
    uint64_t run;
    reading.stream = writing.stream = stream;
    reading.follow = 1;
    OK(fb_consumer_open(&reading, &consumer));
    for (int life = 0; life < 2; life++) {
        const uint64_t from = life == 0 ? 1 : 3; /* the checkpoint was written at step 2 */
        OK(fb_producer_open(&writing, &producer));
        declare(producer, "U", FB_F64, 1, shape);
        for (uint64_t number = from; number < from + 4; number++) {
            const fb_block block = a_block("U", FB_F64, 1, zero, shape, values);
            OK(fb_producer_begin(producer, number, 0.25 * (double)number));
            OK(fb_put(producer, &block));
            OK(fb_producer_end(producer));
            OK(fb_consumer_next(consumer, 20, &step));
            OK(fb_step_info_get(step, &info));
            CHECK(info.number == number && info.time == 0.25 * (double)number && info.run == (uint64_t)life + 1);
            CHECK(info.rewound == (life == 1 && number == from) && !info.torn && info.missed == 0);
            OK(fb_step_release(step));
        }
        OK(fb_producer_run(producer, &run));
        OK(fb_producer_close(producer));
        writing.continues_run = run;
        writing.continues_step = 2;
    }
    OK(fb_consumer_close(consumer));
}

/* A stream that keeps steps: a late reader begins with the oldest. */
CASE(the_oldest_that_is_kept) {
    fb_producer_options writing = FB_PRODUCER_OPTIONS_INIT;
    fb_consumer_options reading = FB_CONSUMER_OPTIONS_INIT;
    fb_producer *producer;
    fb_consumer *consumer, *first;
    double values[COUNT];
    for (int i = 0; i < COUNT; i++) values[i] = at((uint64_t)i / NX / NY, (uint64_t)i / NX % NY, (uint64_t)i % NX);
    writing.stream = reading.stream = stream;
    writing.keep = 2;
    first = open_consumer(stream); /* somebody wanted them once */
    OK(fb_producer_open(&writing, &producer));
    declare(producer, "U", FB_F64, 3, GLOBAL);
    for (uint64_t number = 0; number < 5; number++) {
        const fb_block block = a_block("U", FB_F64, 3, ZERO, GLOBAL, values);
        begin_wanted(producer, number, "U");
        OK(fb_put(producer, &block));
        OK(fb_producer_end(producer));
        OK(fb_step_release(next_step(first, number)));
    }
    /* Before that is answered, the server may not know of all that it let go of. */
    OK(fb_consumer_close(first));
    reading.start = FB_START_OLDEST;
    OK(fb_consumer_open(&reading, &consumer));
    for (uint64_t number = 3; number < 5; number++) {
        fb_step *step = next_step(consumer, number);
        check_whole(step, "U");
        OK(fb_step_release(step));
    }
    OK(fb_consumer_close(consumer));
    /* Where an earlier reader stopped. */
    reading.start = FB_START_CURSOR;
    OK(fb_producer_run(producer, &reading.start_run));
    reading.start_step = 4;
    OK(fb_consumer_open(&reading, &consumer));
    OK(fb_step_release(next_step(consumer, 4)));
    OK(fb_consumer_close(consumer));
    reading.start_run++;
    FAILS(FB_NOT_FOUND, "has had no run", "cursor", fb_consumer_open(&reading, &consumer));
    OK(fb_producer_close(producer));
}

/* A run that its rank gives up has crashed, one that it closes has finished; who comes later is told at once. */
CASE(how_a_run_ends) {
    fb_producer_options writing = FB_PRODUCER_OPTIONS_INIT;
    fb_consumer_options reading = FB_CONSUMER_OPTIONS_INIT;
    fb_producer *producer, *stranger;
    char *job;
    fb_consumer *consumer, *late;
    fb_step *step;
    double values[COUNT] = {0};
    writing.stream = reading.stream = stream;
    writing.wait_for_readers = 1;
    writing.timeout = 0.3;
    writing.job = "mine";
    writing.name = "the sim";
    reading.start = FB_START_RUN;
    reading.take = FB_TAKE_LATEST;
    for (int run = 0; run < 2; run++) {
        OK(fb_producer_open(&writing, &producer));
        declare(producer, "U", FB_F64, 3, GLOBAL);
        OK(fb_new_job_name(&job));
        fb_producer_options other = writing;
        other.job = job;
        FAILS(FB_CONFLICT, "of job 'mine'", job, fb_producer_open(&other, &stranger));
        fb_free(job);
        reading.name = NULL;
        OK(fb_consumer_open(&reading, &consumer));
        FAILS(FB_TIMEOUT, "none with a name has come", "give each reader a `name`", fb_producer_begin(producer, 0, 0));
        OK(fb_consumer_close(consumer));
        reading.name = "viewer";
        OK(fb_consumer_open(&reading, &consumer));
        for (uint64_t number = 0; number < 3; number++) {
            const fb_block block = a_block("U", FB_F64, 3, ZERO, GLOBAL, values);
            begin_wanted(producer, number, "U");
            OK(fb_put(producer, &block));
            OK(fb_producer_end(producer));
        }
        OK(fb_flush(producer));
        OK(fb_consumer_next(consumer, -1, &step));
        fb_step_info info = FB_STEP_INFO_INIT;
        OK(fb_step_info_get(step, &info));
        CHECK(info.number == 2 && info.missed == 2);
        OK(fb_step_release(step));
        OK(run ? fb_producer_abandon(producer) : fb_producer_close(producer));
        const int end = fb_consumer_next(consumer, -1, &step);
        if (run) FAILS(FB_CRASHED, "crashed at step 2", "rank 0 of 1 ('the sim', process ", end);
        else FAILS(FB_ENDED, "has ended after 3 steps", stream, end);
        OK(fb_consumer_close(consumer));
        late = open_consumer(stream);
        FAILS(run ? FB_CRASHED : FB_NOT_FOUND, "none of its steps", "`follow`", fb_consumer_next(late, -1, &step));
        OK(fb_consumer_close(late));
    }
    OK(fb_producer_abandon(NULL));
    OK(fb_pipeline_abandon(NULL));
}

CASE(over_tcp) {
    fb_producer_options writing = FB_PRODUCER_OPTIONS_INIT;
    fb_consumer_options reading = FB_CONSUMER_OPTIONS_INIT;
    fb_producer *producer;
    fb_consumer *consumer;
    const char *transport;
    void *memory = &producer;
    static double big[NZ][2 * NY][3 * NX], out[NZ][2 * NY][3 * NX];
    const uint64_t shape[3] = {NZ, 2 * NY, 3 * NX}, inner[3] = {2, 7, 5}, corner[3] = {1, 2, 9};
    writing.stream = reading.stream = stream;
    writing.transport = reading.transport = "tcp";
    OK(fb_consumer_open(&reading, &consumer));
    OK(fb_producer_open(&writing, &producer));
    OK(fb_producer_transport(producer, &transport));
    CHECK(strcmp(transport, "tcp") == 0);
    for (int i = 0; i < NZ * 2 * NY * 3 * NX; i++) (&big[0][0][0])[i] = i;
    declare(producer, "U", FB_F64, 3, shape);
    begin_wanted(producer, 0, "U");
    const fb_block block = a_block("U", FB_F64, 3, ZERO, shape, big);
    FAILS(FB_UNSUPPORTED, "fb_alloc", "put", fb_alloc(producer, &block, &memory));
    CHECK(memory == NULL);
    OK(fb_put(producer, &block));
    OK(fb_producer_end(producer));
    fb_step *step = next_step(consumer, 0);
    fb_selection selection = a_selection("U", FB_F64, 3, ZERO, shape, out);
    OK(fb_get(step, &selection));
    CHECK(memcmp(big, out, sizeof big) == 0);
    selection = a_selection("U", FB_F64, 3, corner, inner, out);
    OK(fb_get(step, &selection));
    for (int i = 0; i < 2 * 7 * 5; i++)
        CHECK((&out[0][0][0])[i] == big[1 + i / 35][2 + i / 5 % 7][9 + i % 5]);
    fb_view view = FB_VIEW_INIT;
    OK(fb_step_block(step, "U", 0, &view));
    CHECK(view.bytes == sizeof big && memcmp(view.data, big, sizeof big) == 0);
    OK(fb_step_release(step));
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

CASE(space) {
    fb_space_options options = FB_SPACE_OPTIONS_INIT;
    fb_space *space;
    const uint64_t rows[2][3] = {{0, 0, 0}, {1, 0, 0}}, shapes[2][3] = {{1, NY, NX}, {3, NY, NX}};
    const uint64_t corner[3] = {0, 1, 2}, part[3] = {2, 3, 2}, apart[3] = {3, 1, 2};
    double values[NZ][NY][NX], out[2][3][2];
    fb_field field = a_field(stream, FB_F64, 3, GLOBAL);
    for (uint64_t z = 0; z < NZ; z++)
        for (uint64_t y = 0; y < NY; y++)
            for (uint64_t x = 0; x < NX; x++) values[z][y][x] = at(z, y, x);
    OK(fb_space_open(&options, &space));
    fb_selection selection = a_selection(stream, FB_F64, 3, corner, part, out);
    selection.every = apart;
    fb_block block = a_block(NULL, FB_F64, 3, rows[0], shapes[0], values[0]);
    OK(fb_space_put(space, &field, 7, &block));
    FAILS(FB_NOT_COVERED, stream, "", fb_space_get(space, 7, 0.05, &selection));
    block = a_block(stream, FB_F64, 3, rows[1], shapes[1], values[1]);
    OK(fb_space_put(space, &field, 7, &block));
    OK(fb_space_get(space, 7, 20, &selection));
    for (uint64_t z = 0; z < 2; z++)
        for (uint64_t y = 0; y < 3; y++)
            for (uint64_t x = 0; x < 2; x++) CHECK(out[z][y][x] == at(3 * z, 1 + y, 2 + 2 * x));
    block.field = "other";
    FAILS(FB_INVALID, "'other'", stream, fb_space_put(space, &field, 7, &block));
    block.field = NULL;
    block.dtype = FB_F32;
    FAILS(FB_TYPE_MISMATCH, "float64", "float32", fb_space_put(space, &field, 7, &block));
    selection.dtype = FB_F32;
    FAILS(FB_TYPE_MISMATCH, stream, "float32", fb_space_get(space, 7, 20, &selection));
    block = a_block(NULL, FB_F64, 3, rows[0], shapes[0], values[0]);
    FAILS(FB_OUT_OF_BOUNDS, stream, "only a whole array", fb_space_replace(space, &field, 7, &block));
    block = a_block(NULL, FB_F64, 3, ZERO, GLOBAL, values);
    OK(fb_space_replace(space, &field, 7, &block));
    OK(fb_space_replace(space, &field, 7, &block));
    FAILS(FB_CONFLICT, stream, "`replace`", fb_space_put(space, &field, 7, &block));
    char *json;
    OK(fb_space_list(space, &json));
    CHECK(json[0] == '[' && strstr(json, stream));
    fb_free(json);
    FAILS(FB_INVALID, "fb_space_list", "is NULL", fb_space_list(space, NULL));
    OK(fb_space_remove(space, stream, 7));
    OK(fb_space_close(space));
}

CASE(the_group) {
    char *text, *json;
    const fb_admin_options looking = FB_ADMIN_OPTIONS_INIT;
    fb_admin *admin;
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_producer *producer;
    OK(fb_group_text(getenv("FOREBAY_GROUP"), &text));
    OK(fb_admin_open(&looking, &admin));
    OK(fb_admin_status(admin, &json));
    OK(fb_admin_close(admin));
    CHECK(json[0] == '{' && strstr(json, "\"servers\""));
    fb_free(json);
    CHECK(unsetenv("FOREBAY_GROUP") == 0);
    options.stream = stream;
    options.group = text;
    OK(fb_producer_open(&options, &producer));
    fb_free(text);
    OK(fb_producer_close(producer));
    CHECK(fb_version()[0] >= '0' && fb_version()[0] <= '9');
    CHECK(fb_result_is_retryable(FB_TIMEOUT) && !fb_result_is_retryable(FB_INVALID) && !fb_result_is_retryable(FB_OK));
    CHECK(strcmp(fb_result_name(FB_NOT_COVERED), "FB_NOT_COVERED") == 0);
    CHECK(fb_error_set(FB_LOST, "of another library") == FB_LOST);
    CHECK(strcmp(fb_error(), "of another library") == 0);
}

/* Two fields that share one count, and bytes; blocks of another length at each step. */
CASE(particles_and_buffers) {
    static double x[40][3];
    static float charge[40];
    const char said[] = "what a rank has to say";
    fb_field fields[2] = {a_field("x", FB_F64, 2, NULL), a_field("charge", FB_F32, 1, NULL)};
    fb_consumer *consumer = open_consumer(stream);
    fb_producer *producer = open_producer(stream);
    FAILS(FB_INVALID, "fields", "is NULL", fb_particles(producer, "ions", NULL, 2, sizeof *fields));
    FAILS(FB_INVALID, "fields_stride", "sizeof(fb_field)", fb_particles(producer, "ions", fields, 2, 8));
    FAILS(FB_INVALID, "species", "is NULL", fb_particles(producer, NULL, fields, 2, sizeof *fields));
    FAILS(FB_INVALID, "'ions'", "no field", fb_particles(producer, "ions", fields, 0, sizeof *fields));
    fields[1].shape = GLOBAL;
    FAILS(FB_INVALID, "'ions'", "'charge'", fb_particles(producer, "ions", fields, 2, sizeof *fields));
    fields[1].shape = NULL;
    fields[1].dtype = 99;
    FAILS(FB_INVALID, "fields[1]", "99", fb_particles(producer, "ions", fields, 2, sizeof *fields));
    fields[1].dtype = FB_F32;
    OK(fb_particles(producer, "ions", fields, 2, sizeof *fields));
    FAILS(FB_INVALID, "fb_buffer: name", "is NULL", fb_buffer(producer, NULL, 1));
    FAILS(FB_INVALID, "'log'", "period", fb_buffer(producer, "log", 0));
    OK(fb_buffer(producer, "log", 1));
    for (int i = 0; i < 40; i++) {
        charge[i] = (float)i;
        for (int c = 0; c < 3; c++) x[i][c] = 10 * i + c;
    }
    for (uint64_t number = 0; number < 3; number++) {
        const uint64_t count = 20 * number, vectors[2] = {count, 3}, more = count + 1, length = sizeof said - number;
        begin_wanted(producer, number, "log");
        fb_block block = a_block("ions/x", FB_F64, 2, NULL, vectors, x);
        OK(fb_put(producer, &block));
        block = a_block("ions/charge", FB_F32, 1, NULL, &more, charge);
        FAILS(FB_CONFLICT, "'ions/charge'", "'ions/x'", fb_put(producer, &block));
        block.shape = &count;
        OK(fb_put(producer, &block));
        block.dtype = FB_F64;
        block.number = 1;
        FAILS(FB_TYPE_MISMATCH, "'ions/charge'", "float32", fb_put(producer, &block));
        block = a_block("log", FB_U8, 1, NULL, &length, said);
        OK(fb_put(producer, &block));
        OK(fb_producer_end(producer));
        fb_step *step = next_step(consumer, number);
        fb_view view = FB_VIEW_INIT;
        OK(fb_step_block(step, "ions/x", 0, &view));
        CHECK(!view.placed && view.ndim == 2 && view.shape[0] == count && view.shape[1] == 3);
        CHECK(view.bytes == 24 * count && (count == 0 || memcmp(view.data, x, view.bytes) == 0));
        OK(fb_step_block(step, "ions/charge", 0, &view));
        CHECK(view.bytes == 4 * count && (count == 0 || memcmp(view.data, charge, view.bytes) == 0));
        OK(fb_step_block(step, "log", 0, &view));
        CHECK(view.dtype == FB_U8 && view.bytes == length && memcmp(view.data, said, length) == 0);
        OK(fb_step_release(step));
    }
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"dtypes", dtypes},
        {"contracts", contracts},
        {"ghosts_and_interiors", ghosts_and_interiors},
        {"strides", strides},
        {"empty_and_scalar", empty_and_scalar},
        {"empty_in_place", empty_in_place},
        {"unplaced", unplaced},
        {"computed_in_place", computed_in_place},
        {"a_shape_that_changes", a_shape_that_changes},
        {"periods", periods},
        {"a_run_that_continues", a_run_that_continues},
        {"the_oldest_that_is_kept", the_oldest_that_is_kept},
        {"how_a_run_ends", how_a_run_ends},
        {"over_tcp", over_tcp},
        {"space", space},
        {"the_group", the_group},
        {"particles_and_buffers", particles_and_buffers},
        {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
