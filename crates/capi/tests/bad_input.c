/* Bad input through the C interface: refused with the right kind and a text that names what is wrong, and
 * the handle is of use afterwards. */
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static const uint64_t GLOBAL[3] = {4, 5, 6}, ZERO[3] = {0, 0, 0}, ONE[3] = {1, 1, 1};
static double values[4 * 5 * 6];

CASE(nulls) {
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_consumer_options reading = FB_CONSUMER_OPTIONS_INIT;
    fb_space_options spacious = FB_SPACE_OPTIONS_INIT;
    fb_producer *producer;
    fb_consumer *consumer;
    fb_space *space;
    const fb_admin_options looking = FB_ADMIN_OPTIONS_INIT;
    fb_admin *admin;
    fb_step *step;
    const char *name;
    char *text;
    void *data;
    uint64_t count;
    int yes;

    FAILS(FB_INVALID, "fb_producer_open: options", "is NULL", fb_producer_open(NULL, &producer));
    CHECK(producer == NULL);
    FAILS(FB_INVALID, "fb_producer_open: producer", "is NULL", fb_producer_open(&options, NULL));
    FAILS(FB_INVALID, "options->stream", "is NULL", fb_producer_open(&options, &producer));
    FAILS(FB_INVALID, "fb_consumer_open: options", "is NULL", fb_consumer_open(NULL, &consumer));
    FAILS(FB_INVALID, "fb_consumer_open: consumer", "is NULL", fb_consumer_open(&reading, NULL));
    FAILS(FB_INVALID, "options->stream", "is NULL", fb_consumer_open(&reading, &consumer));
    reading.stream = stream;
    reading.fields_count = 1;
    FAILS(FB_INVALID, "options->fields", "is NULL", fb_consumer_open(&reading, &consumer));
    FAILS(FB_INVALID, "fb_space_open: options", "is NULL", fb_space_open(NULL, &space));
    FAILS(FB_INVALID, "fb_space_open: space", "is NULL", fb_space_open(&spacious, NULL));
    spacious.replicas = UINT32_MAX;
    FAILS(FB_INVALID, "replicas", "1 to 8", fb_space_open(&spacious, &space));

    FAILS(FB_INVALID, "fb_array: producer", "is NULL", fb_array(NULL, NULL));
    FAILS(FB_INVALID, "fb_producer_begin: producer", "is NULL", fb_producer_begin(NULL, 0, 0));
    FAILS(FB_INVALID, "fb_demanded: producer", "is NULL", fb_demanded(NULL, "U", &yes));
    FAILS(FB_INVALID, "fb_put: producer", "is NULL", fb_put(NULL, NULL));
    FAILS(FB_INVALID, "fb_alloc: producer", "is NULL", fb_alloc(NULL, NULL, &data));
    FAILS(FB_INVALID, "fb_commit: producer", "is NULL", fb_commit(NULL, NULL));
    FAILS(FB_INVALID, "fb_abort: producer", "is NULL", fb_abort(NULL, NULL));
    FAILS(FB_INVALID, "fb_producer_end: producer", "is NULL", fb_producer_end(NULL));
    FAILS(FB_INVALID, "fb_flush: producer", "is NULL", fb_flush(NULL));
    FAILS(FB_INVALID, "fb_producer_run: producer", "is NULL", fb_producer_run(NULL, &count));
    FAILS(FB_INVALID, "fb_producer_transport: producer", "is NULL", fb_producer_transport(NULL, &name));
    FAILS(FB_INVALID, "fb_producer_lost: producer", "is NULL", fb_producer_lost(NULL, NULL));
    FAILS(FB_INVALID, "fb_consumer_next: consumer", "is NULL", fb_consumer_next(NULL, 0, &step));
    FAILS(FB_INVALID, "fb_step_info_get: step", "is NULL", fb_step_info_get(NULL, NULL));
    FAILS(FB_INVALID, "fb_step_field: step", "is NULL", fb_step_field(NULL, "U", NULL));
    FAILS(FB_INVALID, "fb_step_field_name: step", "is NULL", fb_step_field_name(NULL, 0, &name));
    FAILS(FB_INVALID, "fb_get: step", "is NULL", fb_get(NULL, NULL));
    FAILS(FB_INVALID, "fb_step_block: step", "is NULL", fb_step_block(NULL, "U", 0, NULL));
    FAILS(FB_INVALID, "fb_step_block_count: step", "is NULL", fb_step_block_count(NULL, "U", &count));
    FAILS(FB_INVALID, "fb_step_mine: step", "is NULL", fb_step_mine(NULL, "U", 0, NULL));
    FAILS(FB_INVALID, "fb_step_mine_count: step", "is NULL", fb_step_mine_count(NULL, "U", &count));
    FAILS(FB_INVALID, "fb_step_mine_region: step", "is NULL", fb_step_mine_region(NULL, "U", &count, &count, NULL));
    FAILS(FB_INVALID, "fb_space_put: space", "is NULL", fb_space_put(NULL, NULL, 0, NULL));
    FAILS(FB_INVALID, "fb_space_get: space", "is NULL", fb_space_get(NULL, 0, 0, NULL));
    FAILS(FB_INVALID, "fb_space_remove: space", "is NULL", fb_space_remove(NULL, "U", 0));
    FAILS(FB_INVALID, "fb_consumer_cursor: ", "is NULL", fb_consumer_cursor(NULL, &count, &count));
    FAILS(FB_INVALID, "fb_admin_open: options", "is NULL", fb_admin_open(NULL, &admin));
    FAILS(FB_INVALID, "fb_admin_open: admin", "is NULL", fb_admin_open(&looking, NULL));
    FAILS(FB_INVALID, "fb_admin_status", "is NULL", fb_admin_status(NULL, NULL));
    FAILS(FB_INVALID, "fb_admin_status: admin", "is NULL", fb_admin_status(NULL, &text));
    FAILS(FB_INVALID, "fb_admin_add_servers: admin", "is NULL", fb_admin_add_servers(NULL, 1, NULL));
    FAILS(FB_INVALID, "fb_admin_remove_server: admin", "is NULL", fb_admin_remove_server(NULL, 0, 0));
    FAILS(FB_INVALID, "fb_admin_remove_server: discard", "0 or 1", fb_admin_remove_server(NULL, 0, 7));
    FAILS(FB_INVALID, "fb_admin_create_pipeline: admin", "is NULL", fb_admin_create_pipeline(NULL, NULL));
    FAILS(FB_INVALID, "fb_admin_destroy_pipeline: admin", "is NULL", fb_admin_destroy_pipeline(NULL, "p"));
    FAILS(FB_INVALID, "fb_admin_shutdown: admin", "is NULL", fb_admin_shutdown(NULL));
    OK(fb_admin_close(NULL));
    FAILS(FB_INVALID, "fb_group_text", "is NULL", fb_group_text(NULL, NULL));
    (void)text;

    OK(fb_producer_close(NULL));
    OK(fb_consumer_close(NULL));
    OK(fb_step_release(NULL));
    OK(fb_space_close(NULL));
    fb_free(NULL);

    producer = open_producer(stream);
    FAILS(FB_INVALID, "fb_array: field", "is NULL", fb_array(producer, NULL));
    declare(producer, "U", FB_F64, 3, GLOBAL);
    OK(fb_producer_begin(producer, 0, 0));
    FAILS(FB_INVALID, "fb_put: block", "is NULL", fb_put(producer, NULL));
    FAILS(FB_INVALID, "fb_alloc: data", "is NULL", fb_alloc(producer, NULL, NULL));
    FAILS(FB_INVALID, "fb_demanded: field", "is NULL", fb_demanded(producer, NULL, &yes));
    FAILS(FB_INVALID, "fb_demanded: demanded", "is NULL", fb_demanded(producer, "U", NULL));
    fb_block block = a_block(NULL, FB_F64, 3, ZERO, GLOBAL, values);
    FAILS(FB_INVALID, "block->field", "is NULL", fb_put(producer, &block));
    block = a_block("U", FB_F64, 3, ZERO, NULL, values);
    FAILS(FB_INVALID, "block->shape", "is NULL", fb_put(producer, &block));
    block = a_block("U", FB_F64, 3, ZERO, GLOBAL, NULL);
    FAILS(FB_INVALID, "block->data", "is NULL", fb_put(producer, &block));
    OK(fb_commit(producer, NULL)); /* what fb_alloc gives when nothing wants the field */
    OK(fb_abort(producer, NULL));
    OK(fb_producer_end(producer));
    OK(fb_producer_close(producer));
}

CASE(struct_sizes) {
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    struct {
        fb_field field;
        uint64_t later;
    } newer = {FB_FIELD_INIT, 0};
    const uint64_t sizes[] = {0, 8, offsetof(fb_producer_options, wait_for_readers) - 1, UINT64_MAX, (uint64_t)1 << 40};
    fb_producer *producer;
    options.stream = stream;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        options.struct_size = sizes[i];
        FAILS(FB_INVALID, "options->struct_size", "FB_PRODUCER_OPTIONS_INIT", fb_producer_open(&options, &producer));
    }
    producer = open_producer(stream);
    newer.field = a_field("U", FB_F64, 3, GLOBAL);
    newer.field.struct_size = sizeof newer;
    OK(fb_array(producer, &newer.field)); /* a program compiled for a later release that asks for nothing new */
    newer.later = 1;
    FAILS(FB_UNSUPPORTED, "field has members", "newer", fb_array(producer, &newer.field));

    fb_consumer_options reading = FB_CONSUMER_OPTIONS_INIT;
    fb_consumer *consumer;
    fb_need need = FB_NEED_INIT;
    need.field = "U";
    reading.stream = stream;
    reading.fields = &need;
    reading.fields_count = 1;
    reading.fields_stride = 0;
    FAILS(FB_INVALID, "fields_stride", "sizeof(fb_need)", fb_consumer_open(&reading, &consumer));
    reading.fields_stride = sizeof need;
    need.struct_size = 4096;
    FAILS(FB_INVALID, "fields[0].struct_size", "fields_stride", fb_consumer_open(&reading, &consumer));
    OK(fb_producer_close(producer));
}

CASE(producer_options) {
    const fb_producer_options good = FB_PRODUCER_OPTIONS_INIT;
    fb_producer_options bad;
    fb_producer *producer;
#define REFUSED(kind, part, other, member, value) \
    do { \
        bad = good; \
        bad.stream = stream; \
        bad.member = value; \
        FAILS(kind, part, other, fb_producer_open(&bad, &producer)); \
        CHECK(producer == NULL); \
    } while (0)
    REFUSED(FB_INVALID, "rank 3 of 1", "count from 0", rank, 3);
    REFUSED(FB_INVALID, "rank 0 of 0", "", size, 0);
    REFUSED(FB_UNSUPPORTED, "FB_POLICY_SPILL", "not built", policy, FB_POLICY_SPILL);
    REFUSED(FB_INVALID, "policy is 9", "FB_POLICY_", policy, 9);
    REFUSED(FB_INVALID, "on_loss is 2", "FB_ON_LOSS_", on_loss, 2);
    REFUSED(FB_INVALID, "continues_run is 0", "counted from 1", continues_step, 7);
    REFUSED(FB_INVALID, "timeout is 0", "seconds", timeout, 0);
    REFUSED(FB_INVALID, "timeout is -1", "seconds", timeout, -1);
    REFUSED(FB_INVALID, "timeout is NaN", "seconds", timeout, NAN);
    REFUSED(FB_INVALID, "'pigeon'", "shm or tcp", transport, "pigeon");
    REFUSED(FB_INVALID, "stream", "not UTF-8", stream, "\xff\xfe");
    REFUSED(FB_INVALID, "name", "1 to 255", stream, "");
    REFUSED(FB_CONNECTION_FILE, "/nonexistent/group.json", "forebay up", group, "/nonexistent/group.json");
    REFUSED(FB_CONNECTION_FILE, "the given text", "no connection file", group, " { \"forebay\": 1 }");
#undef REFUSED
}

CASE(consumer_options) {
    fb_need needs[2] = {FB_NEED_INIT, FB_NEED_INIT};
    const fb_consumer_options good = FB_CONSUMER_OPTIONS_INIT;
    fb_consumer_options bad;
    fb_consumer *consumer;
#define REFUSED(kind, part, other, member, value) \
    do { \
        bad = good; \
        bad.stream = stream; \
        bad.member = value; \
        FAILS(kind, part, other, fb_consumer_open(&bad, &consumer)); \
        CHECK(consumer == NULL); \
    } while (0)
    REFUSED(FB_INVALID, "window is 0", "1 to 1024", window, 0);
    REFUSED(FB_INVALID, "start is 9", "FB_START_", start, 9);
    REFUSED(FB_INVALID, "start_run is 0", "counted from 1", start, FB_START_CURSOR);
    REFUSED(FB_INVALID, "follow is 2", "0 or 1", follow, 2);
    REFUSED(FB_INVALID, "every is 0", "1 or more", every, 0);
    REFUSED(FB_INVALID, "timeout is NaN", "seconds", timeout, NAN);
#undef REFUSED
    bad = good;
    bad.stream = stream;
    bad.fields = needs;
    bad.fields_count = 2;
    FAILS(FB_INVALID, "fields[0].field", "is NULL", fb_consumer_open(&bad, &consumer));
    needs[0].field = needs[1].field = "U";
    FAILS(FB_INVALID, "'U'", "named twice", fb_consumer_open(&bad, &consumer));
    needs[1].field = "V";
    needs[1].dtype = 16;
    FAILS(FB_INVALID, "16 is no dtype", "FB_C128", fb_consumer_open(&bad, &consumer));
    needs[1].dtype = 0;
    needs[1].every = 0;
    FAILS(FB_INVALID, "'V'", "period is 0", fb_consumer_open(&bad, &consumer));
}

CASE(connection_files) {
    char path[4096], *text;
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_producer *producer;
    options.stream = stream;
    options.group = path;
    OK(fb_group_text(NULL, &text));
    CHECK(text[0] == '{');
    snprintf(path, sizeof path, "%s.readable", getenv("FOREBAY_GROUP"));
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    OK(fb_producer_open(&options, &producer)); /* a good copy is as good */
    OK(fb_producer_close(producer));
    CHECK(fchmod(file, 0644) == 0);
    FAILS(FB_CONNECTION_FILE, path, "chmod 600", fb_producer_open(&options, &producer));
    CHECK(fchmod(file, 0600) == 0 && ftruncate(file, (off_t)strlen(text) / 2) == 0);
    FAILS(FB_CONNECTION_FILE, path, "no connection file", fb_producer_open(&options, &producer));
    close(file);
    unlink(path);

    /* Another secret: refused, and it says so. */
    char *secret = strstr(text, "\"secret\": \"");
    CHECK(secret != NULL);
    secret += strlen("\"secret\": \"");
    *secret = *secret == '0' ? '1' : '0';
    options.group = text;
    FAILS(FB_WRONG_SECRET, "fb_producer_open", "secret", fb_producer_open(&options, &producer));
    fb_free(text);
}

CASE(fields) {
    const char *const dims[3] = {"z", NULL, "x"};
    fb_producer *producer = open_producer(stream);
    fb_field bad;
#define REFUSED(kind, part, other, member, value) \
    do { \
        bad = a_field("U", FB_F64, 3, GLOBAL); \
        bad.member = value; \
        FAILS(kind, part, other, fb_array(producer, &bad)); \
    } while (0)
    REFUSED(FB_INVALID, "field->name", "is NULL", name, NULL);
    REFUSED(FB_INVALID, "field", "1 to 255", name, "");
    REFUSED(FB_INVALID, "field->name", "not UTF-8", name, "\xc3(");
    REFUSED(FB_INVALID, "0 is no dtype", "FB_BOOL", dtype, 0);
    REFUSED(FB_INVALID, "16 is no dtype", "FB_C128", dtype, 16);
    REFUSED(FB_OUT_OF_BOUNDS, "field->ndim is 9", "8", ndim, 9);
    REFUSED(FB_INVALID, "association is 7", "FB_ASSOCIATION_", association, 7);
    REFUSED(FB_INVALID, "'U'", "period is 0", every, 0);
    REFUSED(FB_UNSUPPORTED, "reserved is 1", "0", reserved, 1);
    REFUSED(FB_INVALID, "field->dims[1]", "is NULL", dims, dims);
    const uint64_t huge[3] = {UINT64_MAX, 2, 3};
    REFUSED(FB_OUT_OF_BOUNDS, "'U'", "2^64", shape, huge);
#undef REFUSED
    declare(producer, "U", FB_F64, 3, GLOBAL);
    OK(fb_producer_begin(producer, 0, 0));
    bad = a_field("V", FB_F64, 3, GLOBAL);
    FAILS(FB_STEP_ORDER, "'V'", "within a step", fb_array(producer, &bad));
    OK(fb_producer_end(producer));
    OK(fb_producer_close(producer));
}

/* The same mistakes are told whether somebody reads or not: else they would show on the day of the first look. */
static void bad_blocks(fb_producer *producer) {
    const uint64_t far[3] = {3, 0, 0}, further[3] = {UINT64_MAX, 0, 0}, two[3] = {2, 2, 2};
    const uint64_t wide[3] = {UINT64_MAX, 0, 0};
    const int64_t strides[3] = {INT64_MAX, 48, 8};
    fb_block bad;
#define REFUSED(kind, part, other, member, value) \
    do { \
        void *data = &bad; \
        bad = a_block("U", FB_F64, 3, ZERO, two, values); \
        bad.member = value; \
        FAILS(kind, part, other, fb_put(producer, &bad)); \
        FAILS(kind, part, other, fb_alloc(producer, &bad, &data)); \
        CHECK(data == NULL); \
    } while (0)
    REFUSED(FB_NOT_FOUND, "'W'", "offers U", field, "W");
    REFUSED(FB_TYPE_MISMATCH, "'U' is float64", "says int64", dtype, FB_I64);
    REFUSED(FB_INVALID, "block->dtype", "99 is no dtype", dtype, 99);
    REFUSED(FB_OUT_OF_BOUNDS, "'U'", "2 dimensions", ndim, 2);
    REFUSED(FB_OUT_OF_BOUNDS, "block->ndim is 9", "8", ndim, 9);
    REFUSED(FB_OUT_OF_BOUNDS, "'U'", "outside the global shape", offset, far);
    REFUSED(FB_OUT_OF_BOUNDS, "offset", "64 bits", offset, further);
    REFUSED(FB_OUT_OF_BOUNDS, "'U'", "no offset", offset, NULL);
    REFUSED(FB_OUT_OF_BOUNDS, "ghosts", "64 bits", ghost_low, wide);
    REFUSED(FB_UNSUPPORTED, "memory is 1", "FB_MEMORY_HOST", memory, 1);
#undef REFUSED
    bad = a_block("U", FB_F64, 3, ZERO, two, values);
    bad.strides = strides;
    bad.offset = ZERO;
    bad.shape = GLOBAL;
    FAILS(FB_OUT_OF_BOUNDS, "with strides [9223372036854775807, 48, 8]", "memory", fb_put(producer, &bad));
}

CASE(blocks) {
    fb_producer *producer = open_producer(stream);
    fb_consumer *consumer;
    declare(producer, "U", FB_F64, 3, GLOBAL);
    fb_block block = a_block("U", FB_F64, 3, ZERO, GLOBAL, values);
    FAILS(FB_STEP_ORDER, "outside a step", "begin", fb_put(producer, &block));
    OK(fb_producer_begin(producer, 0, 0));
    bad_blocks(producer);
    OK(fb_producer_end(producer));

    consumer = open_consumer(stream);
    uint64_t number = 1;
    for (int demanded = 0; !demanded; number++) {
        CHECK(number < 10000);
        OK(fb_producer_begin(producer, number, 0));
        OK(fb_demanded(producer, "U", &demanded));
        if (demanded) {
            bad_blocks(producer);
            /* A refused block has used up nothing: its number may be put. */
            OK(fb_put(producer, &block));
            FAILS(FB_CONFLICT, "block 0", "already put", fb_put(producer, &block));
        }
        OK(fb_producer_end(producer));
    }
    fb_step *step = next_step(consumer, number - 1);
    OK(fb_step_release(step));

    /* Blocks that overlap: the servers see it when the step closes, and tell at a later beginning. */
    OK(fb_producer_begin(producer, number, 0));
    OK(fb_put(producer, &block));
    fb_block other = a_block("U", FB_F64, 3, ONE, ONE, values);
    other.number = 1;
    OK(fb_put(producer, &other));
    OK(fb_producer_end(producer));
    int result = FB_OK;
    for (number++; result == FB_OK && number < 100000; number++) {
        result = fb_producer_begin(producer, number, 0);
        if (result == FB_OK) OK(fb_producer_end(producer));
    }
    FAILS(FB_CONFLICT, "fb_producer_begin", "overlap", result);
    OK(fb_producer_begin(producer, number, 0)); /* it goes on */
    OK(fb_producer_end(producer));
    OK(fb_consumer_close(consumer));
    OK(fb_producer_close(producer));
}

CASE(step_order) {
    fb_producer *producer = open_producer(stream);
    int yes;
    declare(producer, "U", FB_F64, 3, GLOBAL);
    FAILS(FB_STEP_ORDER, "outside a step", "", fb_producer_end(producer));
    FAILS(FB_STEP_ORDER, "outside a step", "", fb_demanded(producer, "U", &yes));
    FAILS(FB_INVALID, "not from fb_alloc", "", fb_commit(producer, values));
    OK(fb_producer_begin(producer, 7, 0));
    FAILS(FB_STEP_ORDER, "step 7", "end it", fb_producer_begin(producer, 8, 0));
    FAILS(FB_NOT_FOUND, "'W'", "offers U", fb_demanded(producer, "W", &yes));
    OK(fb_producer_end(producer));
    FAILS(FB_STEP_ORDER, "step 7 after step 7", "grow", fb_producer_begin(producer, 7, 0));
    FAILS(FB_STEP_ORDER, "step 3 after step 7", "continues", fb_producer_begin(producer, 3, 0));
    OK(fb_producer_begin(producer, 8, 0));
    OK(fb_producer_end(producer));
    OK(fb_producer_close(producer));
}

CASE(selections) {
    fb_consumer *consumer = open_consumer(stream);
    fb_producer *producer = open_producer(stream);
    const uint64_t most[3] = {3, 5, 6}, far[3] = {0, 0, 4}, part[3] = {2, 5, 2}, zeros[3] = {1, 0, 1};
    const uint64_t turned[3] = {6, 5, 4}, twice[3] = {1, 2, 2};
    const char *name;
    double out[4 * 5 * 6];
    uint64_t count;
    fb_field_info about = FB_FIELD_INFO_INIT;
    fb_step *step;
    fb_step_info info = FB_STEP_INFO_INIT;
    fb_view view = FB_VIEW_INIT;

    FAILS(FB_TIMEOUT, stream, "", fb_consumer_next(consumer, 0.01, &step));
    CHECK(step == NULL);
    FAILS(FB_INVALID, "timeout is NaN", "seconds", fb_consumer_next(consumer, NAN, &step));
    declare(producer, "U", FB_F64, 3, GLOBAL);
    OK(fb_producer_begin(producer, 0, 0));
    const fb_block block = a_block("U", FB_F64, 3, ZERO, most, values);
    OK(fb_put(producer, &block));
    OK(fb_producer_end(producer));
    step = next_step(consumer, 0);

    fb_selection bad;
#define REFUSED(kind, part, other, member, value) \
    do { \
        bad = a_selection("U", FB_F64, 3, ZERO, part_of, out); \
        bad.member = value; \
        FAILS(kind, part, other, fb_get(step, &bad)); \
    } while (0)
    const uint64_t *part_of = part;
    REFUSED(FB_INVALID, "selection->field", "is NULL", field, NULL);
    REFUSED(FB_INVALID, "selection->shape", "is NULL", shape, NULL);
    REFUSED(FB_INVALID, "selection->offset", "is NULL", offset, NULL);
    REFUSED(FB_INVALID, "selection->data", "is NULL", data, NULL);
    REFUSED(FB_NOT_FOUND, "'W'", "it has U", field, "W");
    REFUSED(FB_TYPE_MISMATCH, "'U' is float64", "says float32", dtype, FB_F32);
    REFUSED(FB_INVALID, "selection->dtype", "0 is no dtype", dtype, 0);
    REFUSED(FB_OUT_OF_BOUNDS, "'U'", "2 dimensions", ndim, 2);
    REFUSED(FB_OUT_OF_BOUNDS, "selection->ndim is 9", "8", ndim, 9);
    REFUSED(FB_OUT_OF_BOUNDS, "'U'", "dimension 0", shape, turned);
    REFUSED(FB_INVALID, "fb_get: selection->struct_size", "FB_SELECTION_INIT", struct_size, 3);
    part_of = twice;
    REFUSED(FB_OUT_OF_BOUNDS, "'U'", "every 0 elements", every, zeros);
    part_of = part;
    bad = a_selection("U", FB_F64, 3, far, part, out);
    OK(fb_get(step, &bad));
    const uint64_t further[3] = {0, 0, 5};
    REFUSED(FB_OUT_OF_BOUNDS, "'U'", "dimension 2", offset, further);
    /* Nothing was put at z = 3: told with its name, and nothing is written. */
    for (int i = 0; i < 4 * 5 * 6; i++) out[i] = -1;
    bad = a_selection("U", FB_F64, 3, ZERO, GLOBAL, out);
    FAILS(FB_NOT_COVERED, "'U'", "3", fb_get(step, &bad));
    for (int i = 0; i < 4 * 5 * 6; i++) CHECK(out[i] == -1);
    REFUSED(FB_INVALID, "fb_get: selection->holes", "FB_HOLES_", holes, 7);
    bad.holes = FB_HOLES_LEFT;
    OK(fb_get(step, &bad));
    uint8_t covered[4 * 5 * 6];
    fb_selection mask = a_selection("U", FB_BOOL, 3, ZERO, GLOBAL, covered);
    OK(fb_covered(step, &mask));
    for (int i = 0; i < 4 * 5 * 6; i++) CHECK(covered[i] == (i < 3 * 5 * 6) && (covered[i] || out[i] == -1));
    mask.dtype = FB_U8;
    FAILS(FB_TYPE_MISMATCH, "'U'", "selection->dtype", fb_covered(step, &mask));
    FAILS(FB_INVALID, "fb_covered: step", "is NULL", fb_covered(NULL, &mask));
    FAILS(FB_INVALID, "fb_covered: selection", "is NULL", fb_covered(step, NULL));
#undef REFUSED

    FAILS(FB_NOT_FOUND, "'W'", "it has U", fb_step_field(step, "W", &about));
    FAILS(FB_INVALID, "info", "is NULL", fb_step_field(step, "U", NULL));
    about.struct_size = 9;
    FAILS(FB_INVALID, "info->struct_size", "FB_FIELD_INFO_INIT", fb_step_field(step, "U", &about));
    FAILS(FB_NOT_FOUND, "no field 1", "has 1", fb_step_field_name(step, 1, &name));
    FAILS(FB_NOT_FOUND, "no block 1", "has 1", fb_step_block(step, "U", 1, &view));
    FAILS(FB_NOT_FOUND, "'W'", "", fb_step_block_count(step, "W", &count));
    FAILS(FB_INVALID, "view", "is NULL", fb_step_block(step, "U", 0, NULL));
    FAILS(FB_NOT_FOUND, "no block 1", "has 1", fb_step_mine(step, "U", 1, &view));
    FAILS(FB_NOT_FOUND, "'W'", "", fb_step_mine_count(step, "W", &count));
    FAILS(FB_INVALID, "'U'", "assign 'slab'", fb_step_mine_region(step, "U", &count, &count, NULL));
    view.struct_size = 8;
    FAILS(FB_INVALID, "view->struct_size", "FB_VIEW_INIT", fb_step_block(step, "U", 0, &view));
    info.struct_size = 0;
    FAILS(FB_INVALID, "info->struct_size", "FB_STEP_INFO_INIT", fb_step_info_get(step, &info));
    OK(fb_step_release(step));
    OK(fb_producer_close(producer));
    FAILS(FB_ENDED, stream, "ended", fb_consumer_next(consumer, -1, &step));
    FAILS(FB_ENDED, stream, "ended", fb_consumer_next(consumer, -1, &step));
    OK(fb_consumer_close(consumer));
}

CASE(a_contract_that_cannot_be_met) {
    fb_need need = FB_NEED_INIT;
    fb_consumer_options options = FB_CONSUMER_OPTIONS_INIT;
    fb_consumer *consumer;
    fb_step *step;
    fb_producer *producer = open_producer(stream);
    declare(producer, "U", FB_F64, 3, GLOBAL);
    OK(fb_producer_begin(producer, 0, 0));
    OK(fb_producer_end(producer));
    need.field = "U";
    need.dtype = FB_F32;
    options.stream = stream;
    options.fields = &need;
    options.fields_count = 1;
    options.timeout = 20;
    int result = fb_consumer_open(&options, &consumer);
    if (result == FB_OK) {
        result = fb_consumer_next(consumer, -1, &step);
        OK(fb_consumer_close(consumer));
    }
    FAILS(FB_TYPE_MISMATCH, "'U'", "float64", result);
    OK(fb_producer_close(producer));
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"nulls", nulls},
        {"struct_sizes", struct_sizes},
        {"producer_options", producer_options},
        {"consumer_options", consumer_options},
        {"connection_files", connection_files},
        {"fields", fields},
        {"blocks", blocks},
        {"step_order", step_order},
        {"selections", selections},
        {"a_contract_that_cannot_be_met", a_contract_that_cannot_be_met},
        {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
