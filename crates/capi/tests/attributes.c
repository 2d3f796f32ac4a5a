/* fb_attr, and what a reader sees of it. */
#include "check.h"

static const uint64_t SHAPE[1] = {3}, ZERO[1] = {0};
static const double VALUES[3] = {1, 2, 3};

static fb_attribute an_attribute(const char *field, const char *key, int32_t dtype, const void *values) {
    fb_attribute attribute = FB_ATTRIBUTE_INIT;
    attribute.field = field;
    attribute.key = key;
    attribute.dtype = dtype;
    attribute.values = values;
    return attribute;
}

static void set(fb_producer *producer, fb_attribute attribute, int64_t list) {
    if (list >= 0) {
        attribute.list = 1;
        attribute.count = (uint64_t)list;
    }
    OK(fb_attr(producer, &attribute));
}

static fb_attribute get(const fb_step *step, const char *field, const char *key, int32_t dtype, int32_t list, uint64_t count) {
    fb_attribute told = FB_ATTRIBUTE_INIT;
    OK(fb_attr_get(step, field, key, &told));
    CHECK(told.dtype == dtype && told.list == list && told.count == count);
    CHECK(strcmp(told.key, key) == 0);
    CHECK(field ? strcmp(told.field, field) == 0 : told.field == NULL);
    return told;
}

CASE(every_type) {
    const uint8_t yes = 1, flags[3] = {0, 1, 1};
    const int64_t number = INT64_MIN, numbers[2] = {7, INT64_MAX};
    const uint64_t small = 9, large[2] = {0, UINT64_MAX};
    const double half = 0.5, pair[2] = {-1.5, 1e300}, complex[2] = {0.5, -2};
    const char *text = "gr\xc3\xbc\xc3\x9f dich", *texts[3] = {"z", "", "x"};
    fb_consumer *consumer = open_consumer(stream);
    fb_producer *producer = open_producer(stream);
    declare(producer, "U", FB_F64, 1, SHAPE);
    declare(producer, "V", FB_F64, 1, SHAPE);
    set(producer, an_attribute(NULL, "yes", FB_BOOL, &yes), -1);
    set(producer, an_attribute(NULL, "number", FB_I64, &number), -1);
    set(producer, an_attribute(NULL, "half", FB_F64, &half), -1);
    set(producer, an_attribute(NULL, "text", FB_TEXT, &text), -1);
    set(producer, an_attribute("U", "flags", FB_BOOL, flags), 3);
    set(producer, an_attribute("U", "numbers", FB_I64, numbers), 2);
    set(producer, an_attribute("U", "pair", FB_F64, pair), 2);
    set(producer, an_attribute("U", "texts", FB_TEXT, texts), 3);
    set(producer, an_attribute("U", "none", FB_F64, NULL), 0);
    set(producer, an_attribute("V", "small", FB_U64, &small), -1);
    set(producer, an_attribute("V", "large", FB_U64, large), 2);
    set(producer, an_attribute("V", "complex", FB_C128, complex), -1);
    for (uint64_t at = 0; at < 2; at++) {
        const fb_block block = a_block("U", FB_F64, 1, ZERO, SHAPE, VALUES);
        OK(fb_producer_begin(producer, at, 0));
        OK(fb_put(producer, &block));
        OK(fb_producer_end(producer));
        fb_step *step = next_step(consumer, at);
        CHECK(*(const uint8_t *)get(step, NULL, "yes", FB_BOOL, 0, 1).values == 1);
        CHECK(*(const int64_t *)get(step, NULL, "number", FB_I64, 0, 1).values == INT64_MIN);
        CHECK(*(const double *)get(step, NULL, "half", FB_F64, 0, 1).values == 0.5);
        CHECK(strcmp(*(const char *const *)get(step, NULL, "text", FB_TEXT, 0, 1).values, text) == 0);
        CHECK(memcmp(get(step, "U", "flags", FB_BOOL, 1, 3).values, flags, sizeof flags) == 0);
        CHECK(memcmp(get(step, "U", "numbers", FB_I64, 1, 2).values, numbers, sizeof numbers) == 0);
        CHECK(memcmp(get(step, "U", "pair", FB_F64, 1, 2).values, pair, sizeof pair) == 0);
        const char *const *told = get(step, "U", "texts", FB_TEXT, 1, 3).values;
        for (int i = 0; i < 3; i++) CHECK(strcmp(told[i], texts[i]) == 0);
        (void)get(step, "U", "none", FB_F64, 1, 0);
        CHECK(*(const int64_t *)get(step, "V", "small", FB_I64, 0, 1).values == 9);
        CHECK(memcmp(get(step, "V", "large", FB_U64, 1, 2).values, large, sizeof large) == 0);
        CHECK(memcmp(get(step, "V", "complex", FB_C128, 0, 1).values, complex, sizeof complex) == 0);
        static const char *const sorted[4] = {"half", "number", "text", "yes"};
        const char *key;
        for (uint64_t i = 0; i < 4; i++) {
            OK(fb_attr_key(step, NULL, i, &key));
            CHECK(strcmp(key, sorted[i]) == 0);
        }
        FAILS(FB_NOT_FOUND, "fb_attr_key", "4", fb_attr_key(step, NULL, 4, &key));
        OK(fb_attr_key(step, "U", 4, &key));
        FAILS(FB_NOT_FOUND, "no attribute 0", "", fb_attr_key(step, "W", 0, &key));
        fb_attribute none = FB_ATTRIBUTE_INIT;
        FAILS(FB_NOT_FOUND, "the stream has no attribute 'pair'", "half", fb_attr_get(step, NULL, "pair", &none));
        FAILS(FB_NOT_FOUND, "field 'W'", "none", fb_attr_get(step, "W", "pair", &none));
        FAILS(FB_INVALID, "key", "is NULL", fb_attr_get(step, "V", NULL, &none));
        FAILS(FB_INVALID, "attribute", "is NULL", fb_attr_get(step, NULL, "half", NULL));
        FAILS(FB_INVALID, "fb_attr_get: step", "is NULL", fb_attr_get(NULL, NULL, "half", &none));
        FAILS(FB_INVALID, "key", "is NULL", fb_attr_key(step, NULL, 0, NULL));
        OK(fb_step_release(step));
    }
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

CASE(bad_ones) {
    const uint8_t odd = 2;
    const double half = 0.5, other = 0.25;
    const char *null = NULL, *broken = "\xff";
    static int64_t many[8192];
    fb_producer *producer = open_producer(stream);
    fb_attribute bad = an_attribute(NULL, "k", FB_F64, &half);
    declare(producer, "U", FB_F64, 1, SHAPE);
    FAILS(FB_INVALID, "fb_attr: producer", "is NULL", fb_attr(NULL, &bad));
    FAILS(FB_INVALID, "fb_attr: attribute", "is NULL", fb_attr(producer, NULL));
    bad.key = NULL;
    FAILS(FB_INVALID, "attribute->key", "is NULL", fb_attr(producer, &bad));
    bad = an_attribute(NULL, "k", FB_F64, NULL);
    FAILS(FB_INVALID, "attribute->values", "is NULL", fb_attr(producer, &bad));
    bad = an_attribute(NULL, "k", FB_F32, &half);
    FAILS(FB_UNSUPPORTED, "attribute->dtype", "FB_TEXT", fb_attr(producer, &bad));
    bad = an_attribute(NULL, "k", FB_BOOL, &odd);
    FAILS(FB_INVALID, "FB_BOOL", "0 or 1", fb_attr(producer, &bad));
    bad = an_attribute(NULL, "k", FB_TEXT, &null);
    FAILS(FB_INVALID, "attribute->values[0]", "is NULL", fb_attr(producer, &bad));
    bad = an_attribute(NULL, "k", FB_TEXT, &broken);
    FAILS(FB_INVALID, "attribute->values[0]", "UTF-8", fb_attr(producer, &bad));
    bad = an_attribute(NULL, "k", FB_F64, &half);
    bad.count = 2;
    FAILS(FB_INVALID, "attribute->count", "list", fb_attr(producer, &bad));
    bad.list = 3;
    FAILS(FB_INVALID, "attribute->list", "0 or 1", fb_attr(producer, &bad));
    bad.list = 1;
    bad.count = UINT64_MAX;
    FAILS(FB_INVALID, "attribute->count", "64 KiB", fb_attr(producer, &bad));
    bad = an_attribute(NULL, "k", FB_I64, many);
    bad.list = 1;
    bad.count = 8192;
    FAILS(FB_OVER_BUDGET, "'k'", "65536", fb_attr(producer, &bad));
    bad = an_attribute("V", "k", FB_F64, &half);
    FAILS(FB_NOT_FOUND, "'k'", "'V'", fb_attr(producer, &bad));
    bad.field = "U";
    OK(fb_attr(producer, &bad));
    OK(fb_attr(producer, &bad));
    bad.values = &other;
    FAILS(FB_CONFLICT, "field 'U'", "0.25", fb_attr(producer, &bad));
    OK(fb_producer_begin(producer, 0, 0));
    FAILS(FB_STEP_ORDER, "'k'", "within a step", fb_attr(producer, &bad));
    OK(fb_producer_end(producer));
    OK(fb_producer_close(producer));
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"every_type", every_type},
        {"bad_ones", bad_ones},
        {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
