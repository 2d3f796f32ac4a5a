/* Expressions, and subscriptions with their events. */
#include <math.h>

#include "check.h"

static const uint64_t SHAPE[2] = {3, 4}, ZERO[2] = {0, 0};

static fb_producer *simulation(const char *stream) {
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_producer *producer;
    options.stream = stream;
    options.timeout = 20;
    options.keep = 4;
    OK(fb_producer_open(&options, &producer));
    declare(producer, "U", FB_F64, 2, SHAPE);
    return producer;
}

/* The largest value lies at [2, 1]. */
static void write_step(fb_producer *producer, uint64_t number, double largest) {
    double values[12] = {0};
    values[0] = NAN;
    values[9] = largest;
    const fb_block block = a_block("U", FB_F64, 2, ZERO, SHAPE, values);
    OK(fb_producer_begin(producer, number, 0.5 * (double)number));
    OK(fb_put(producer, &block));
    OK(fb_producer_end(producer));
    OK(fb_flush(producer));
}

static fb_subscription *watch(const char *stream, const char *text) {
    fb_subscription_options options = FB_SUBSCRIPTION_OPTIONS_INIT;
    fb_subscription *subscription;
    options.stream = stream;
    options.timeout = 20;
    OK(fb_subscribe(&options, text, &subscription));
    return subscription;
}

static fb_event_info told(const fb_event *event) {
    fb_event_info info = FB_EVENT_INFO_INIT;
    OK(fb_event_info_get(event, &info));
    return info;
}

static fb_value evaluated(const fb_step *step, const char *text) {
    fb_value value = FB_VALUE_INIT;
    OK(fb_step_evaluate(step, text, &value));
    return value;
}

CASE(values_at_a_step) {
    fb_admin_options options = FB_ADMIN_OPTIONS_INIT;
    fb_producer *producer = simulation(stream);
    fb_stream *looked;
    fb_step *step;
    fb_value value = FB_VALUE_INIT;
    write_step(producer, 7, 5.5);
    OK(fb_stream_open(&options, stream, &looked));
    OK(fb_stream_latest(looked, &step));
    value = evaluated(step, "max(U)");
    CHECK(value.kind == FB_VALUE_NUMBER && !value.is_integer && value.number == 5.5 && value.label == NULL);
    value = evaluated(step, "count(U == 0)");
    CHECK(value.kind == FB_VALUE_NUMBER && value.is_integer && value.integer == 10 && value.number == 10);
    value = evaluated(step, "any(U > 5) and size(U) == 12");
    CHECK(value.kind == FB_VALUE_CONDITION && value.number == 1);
    value = evaluated(step, "argmax(U)");
    CHECK(value.kind == FB_VALUE_PLACE && value.has_place && value.ndim == 2 && !value.in_block);
    CHECK(value.index[0] == 2 && value.index[1] == 1 && value.level == 0);
    FAILS(FB_NOT_FOUND, "column 1", "no function 'maxx'. Did you mean 'max'?", fb_step_evaluate(step, "maxx(U)", &value));
    FAILS(FB_NOT_FOUND, "V", "", fb_step_evaluate(step, "max(V)", &value));
    FAILS(FB_OUT_OF_BOUNDS, "fb_step_evaluate", "", fb_step_evaluate(step, "max(U[0:9])", &value));
    FAILS(FB_INVALID, "text", "is NULL", fb_step_evaluate(step, NULL, &value));
    FAILS(FB_INVALID, "value", "is NULL", fb_step_evaluate(step, "max(U)", NULL));
    FAILS(FB_INVALID, "step", "is NULL", fb_step_evaluate(NULL, "max(U)", &value));
    OK(fb_step_release(step));
    OK(fb_stream_close(looked));
    OK(fb_producer_close(producer));
}

CASE(events) {
    fb_subscription *subscription = watch(stream, "m = max(U); m > 2 and sum(U) < 100");
    fb_producer *producer = simulation(stream);
    fb_event *event;
    fb_step *step;
    fb_value value = FB_VALUE_INIT;
    uint64_t run, from, cursor;
    double found = 0;
    const uint64_t at[2] = {2, 1}, one[2] = {1, 1};
    const fb_selection there = a_selection("U", FB_F64, 2, at, one, &found);

    OK(fb_subscription_cursor(subscription, &cursor));
    CHECK(cursor == 0);
    OK(fb_subscription_wait_active(subscription, &run, &from));
    CHECK(run == 1 && from == 0);
    for (uint64_t number = 0; number < 5; number++) write_step(producer, number, (double)number);
    for (uint64_t number = 3; number < 5; number++) {
        OK(fb_event_next(subscription, 20, &event));
        const fb_event_info info = told(event);
        CHECK(info.turn == (number == 3 ? FB_TURN_ROSE : FB_TURN_HOLDS) && info.why == NULL);
        CHECK(info.run == 1 && info.step == number && info.time == 0.5 * (double)number && info.first == 3);
        CHECK(info.number == number - 2 && info.episode == 1 && info.missing == 0 && info.missed == 0);
        CHECK(info.values_count == 2 && info.has_step);
        OK(fb_event_value(event, 0, &value));
        CHECK(strcmp(value.label, "m") == 0 && value.kind == FB_VALUE_NUMBER && value.number == (double)number);
        CHECK(value.nan == 1 && value.has_place && value.index[0] == 2 && value.index[1] == 1);
        OK(fb_event_value(event, 1, &value));
        CHECK(strcmp(value.label, "sum(U)") == 0 && value.number == (double)number && !value.has_place);
        FAILS(FB_NOT_FOUND, "has 2 values", "no value 2", fb_event_value(event, 2, &value));
        OK(fb_event_step(event, &step));
        CHECK(!told(event).has_step);
        OK(fb_get(step, &there));
        CHECK(found == (double)number);
        fb_step *again = step;
        FAILS(FB_CLOSED, "was taken out of this event before", "", fb_event_step(event, &again));
        CHECK(again == NULL);
        /* A step outlives its event. */
        OK(fb_event_release(event));
        OK(fb_get(step, &there));
        OK(fb_step_release(step));
    }
    OK(fb_subscription_cursor(subscription, &cursor));
    CHECK(cursor == 2);
    FAILS(FB_TIMEOUT, "no event of subscription", "", fb_event_next(subscription, 0.05, &event));
    CHECK(event == NULL);
    OK(fb_subscription_change(subscription, FB_CHANGE_REMOVE));
    CHECK(fb_event_next(subscription, 20, &event) == FB_ENDED && event == NULL);
    OK(fb_subscription_close(subscription));
    OK(fb_producer_close(producer));
}

CASE(what_is_not_known) {
    fb_subscription *subscription = watch(stream, "max(U[2]) > 1");
    fb_producer *producer = simulation(stream);
    fb_event *event;
    const uint64_t half[2] = {2, 4};
    const double values[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    const fb_block block = a_block("U", FB_F64, 2, ZERO, half, values);
    OK(fb_subscription_wait_active(subscription, NULL, NULL));
    OK(fb_producer_begin(producer, 0, NAN));
    OK(fb_put(producer, &block));
    OK(fb_producer_end(producer));
    OK(fb_flush(producer));
    write_step(producer, 1, 3);
    OK(fb_event_next(subscription, 20, &event));
    const fb_event_info info = told(event);
    fb_step *step;
    CHECK(info.turn == FB_TURN_UNKNOWN && info.step == 0 && info.number == 0 && !info.has_step);
    CHECK(info.why != NULL && strlen(info.why) > 0 && info.values_count == 0);
    FAILS(FB_DROPPED, "step 0 is held no longer", "", fb_event_step(event, &step));
    OK(fb_event_release(event));
    OK(fb_event_next(subscription, 20, &event));
    CHECK(told(event).turn == FB_TURN_ROSE && told(event).step == 1);
    OK(fb_event_release(event));
    OK(fb_subscription_close(subscription));
    OK(fb_producer_close(producer));
}

CASE(options_and_others) {
    fb_subscription_options options = FB_SUBSCRIPTION_OPTIONS_INIT;
    fb_admin_options of_admin = FB_ADMIN_OPTIONS_INIT;
    fb_subscription *first, *second;
    fb_admin *admin;
    fb_event *event;
    const char *name;
    char *json;
    options.stream = stream;
    options.name = "hot";
    options.on = FB_ON_BOTH;
    options.keep = 1;
    options.keep_around = 1;
    options.keep_before = 1;
    OK(fb_subscribe(&options, "max(U) > 2", &first));
    OK(fb_subscription_name(first, &name));
    CHECK(strcmp(name, "hot") == 0);
    options.on = FB_ON_RISE;
    FAILS(FB_CONFLICT, "hot", "", fb_subscribe(&options, "max(U) > 2", &second));
    CHECK(second == NULL);
    fb_producer *producer = simulation(stream);
    OK(fb_subscription_wait_active(first, NULL, NULL));
    OK(fb_admin_open(&of_admin, &admin));
    OK(fb_admin_subscriptions(admin, &json));
    CHECK(strstr(json, "\"name\":\"hot\"") && strstr(json, "\"on\":\"both\""));
    fb_free(json);
    write_step(producer, 0, 1);
    write_step(producer, 1, 3);
    write_step(producer, 2, 4);
    write_step(producer, 3, 0);
    OK(fb_event_next(first, 20, &event));
    CHECK(told(event).turn == FB_TURN_ROSE && told(event).step == 1);
    OK(fb_event_release(event));
    /* Somebody else goes on behind the event of this number. */
    options.on = FB_ON_BOTH;
    options.begin = FB_BEGIN_AFTER;
    options.after = 1;
    OK(fb_subscribe(&options, "max(U) > 2", &second));
    OK(fb_event_next(second, 20, &event));
    CHECK(told(event).turn == FB_TURN_FELL && told(event).step == 3);
    OK(fb_event_release(event));
    OK(fb_subscription_close(second));
    OK(fb_admin_change_subscription(admin, "hot", NULL, FB_CHANGE_REMOVE));
    FAILS(FB_NOT_FOUND, "no subscription 'nobody'", "", fb_admin_change_subscription(admin, "nobody", NULL, FB_CHANGE_PAUSE));
    OK(fb_event_next(first, 20, &event));
    CHECK(told(event).turn == FB_TURN_FELL);
    OK(fb_event_release(event));
    CHECK(fb_event_next(first, 20, &event) == FB_ENDED);
    OK(fb_subscription_close(first));
    /* One that ends after an event. */
    options.name = NULL;
    options.limit = 1;
    options.on = FB_ON_EACH;
    options.keep_around = 0;
    options.begin = FB_BEGIN_RESUME;
    OK(fb_subscribe(&options, "max(U) > 2", &first));
    OK(fb_subscription_wait_active(first, NULL, NULL));
    write_step(producer, 4, 5);
    write_step(producer, 5, 5);
    OK(fb_event_next(first, 20, &event));
    CHECK(told(event).step == 4);
    OK(fb_event_release(event));
    CHECK(fb_event_next(first, 20, &event) == FB_ENDED);
    OK(fb_subscription_close(first));
    OK(fb_admin_close(admin));
    OK(fb_producer_close(producer));
}

CASE(values_in_the_space) {
    fb_space_options options = FB_SPACE_OPTIONS_INIT;
    fb_field field = FB_FIELD_INIT;
    fb_space *space;
    fb_value value = FB_VALUE_INIT;
    const double low[6] = {1, 2, 3, 4, 5, 6}, high[6] = {7, 8, 9, 10, 11, NAN};
    const uint64_t shape[2] = {4, 3}, half[2] = {2, 3}, at[2] = {2, 0};
    const fb_block first = a_block(stream, FB_F64, 2, ZERO, half, low), second = a_block(stream, FB_F64, 2, at, half, high);
    char text[256];
    field.name = stream;
    field.dtype = FB_F64;
    field.ndim = 2;
    field.shape = shape;
    OK(fb_space_open(&options, &space));
    OK(fb_space_put(space, &field, 3, &first));
    snprintf(text, sizeof text, "sum(`%s`[:2])", stream);
    OK(fb_space_evaluate(space, 3, 20, text, &value));
    CHECK(value.kind == FB_VALUE_NUMBER && value.number == 21);
    snprintf(text, sizeof text, "argmax(`%s`)", stream);
    FAILS(FB_NOT_COVERED, stream, "nothing was put at [2:4, 0:3]", fb_space_evaluate(space, 3, 0.05, text, &value));
    OK(fb_space_put(space, &field, 3, &second));
    OK(fb_space_evaluate(space, 3, -1, text, &value));
    CHECK(value.kind == FB_VALUE_PLACE && value.index[0] == 3 && value.index[1] == 1);
    FAILS(FB_INVALID, "names no streams", "", fb_space_evaluate(space, 3, -1, "max(a.U)", &value));
    FAILS(FB_INVALID, "space", "is NULL", fb_space_evaluate(NULL, 3, -1, "max(U)", &value));
    OK(fb_space_remove(space, stream, 3));
    OK(fb_space_close(space));
}

CASE(the_space) {
    fb_subscription_options watched = FB_SUBSCRIPTION_OPTIONS_INIT;
    fb_space_options options = FB_SPACE_OPTIONS_INIT;
    fb_space *space;
    fb_subscription *subscription, *none;
    fb_event *event;
    fb_step *step;
    const uint64_t half[2] = {2, 4}, rest[2] = {1, 4}, third[2] = {2, 0};
    const double values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    fb_block block = a_block(stream, FB_F64, 2, ZERO, half, values);
    fb_field field = a_field(stream, FB_F64, 2, SHAPE);
    char text[256];
    snprintf(text, sizeof text, "max(`%s`) > 4", stream);
    watched.space = 1;
    watched.timeout = 20;
    watched.stream = stream;
    FAILS(FB_INVALID, "not both", "", fb_subscribe(&watched, text, &none));
    watched.stream = NULL;
    watched.keep_around = 1;
    FAILS(FB_INVALID, "kept until they are removed", "", fb_subscribe(&watched, text, &none));
    watched.keep_around = 0;
    OK(fb_subscribe(&watched, text, &subscription));
    OK(fb_subscription_wait_active(subscription, NULL, NULL));
    OK(fb_space_open(&options, &space));
    OK(fb_space_put(space, &field, 3, &block));
    FAILS(FB_TIMEOUT, "no event", "", fb_event_next(subscription, 0.05, &event));
    block = a_block(stream, FB_F64, 2, third, rest, values);
    OK(fb_space_put(space, &field, 3, &block));
    OK(fb_event_next(subscription, 20, &event));
    CHECK(told(event).step == 3 && told(event).run == 0 && !told(event).has_step);
    FAILS(FB_DROPPED, "fb_space_get", "", fb_event_step(event, &step));
    OK(fb_event_release(event));
    OK(fb_subscription_change(subscription, FB_CHANGE_REMOVE));
    OK(fb_subscription_close(subscription));
    OK(fb_space_remove(space, stream, 3));
    OK(fb_space_close(space));
}

CASE(bad_input) {
    fb_subscription_options options = FB_SUBSCRIPTION_OPTIONS_INIT;
    fb_subscription *none;
    fb_event *event;
    const char *name;
    FAILS(FB_INVALID, "subscription", "is NULL", fb_subscribe(&options, "max(a.U) > 1", NULL));
    FAILS(FB_INVALID, "text", "is NULL", fb_subscribe(&options, NULL, &none));
    CHECK(none == NULL);
    FAILS(FB_INVALID, "of which stream?", "", fb_subscribe(NULL, "max(U) > 1", &none));
    FAILS(FB_INVALID, "column 12", "found the end", fb_subscribe(&options, "max(a.U > 1", &none));
    options.stream = stream;
#define REFUSED(member, value, part) do { \
        const fb_subscription_options before = options; \
        options.member = value; \
        FAILS(FB_INVALID, part, "", fb_subscribe(&options, "max(U) > 1", &none)); \
        CHECK(none == NULL); \
        options = before; \
    } while (0)
    REFUSED(every, 0, "every is 0");
    REFUSED(on, 4, "options->on is 4: use FB_ON_EACH (0)");
    REFUSED(missing, -1, "options->missing is -1");
    REFUSED(begin, 4, "options->begin is 4");
    REFUSED(window, 0, "options->window is 0: use 1 to 1024");
    REFUSED(keep, 2, "options->keep is 2");
    REFUSED(expires, -1, "options->expires");
    REFUSED(expires, NAN, "options->expires");
    REFUSED(timeout, 0, "timeout");
    REFUSED(hold, 4000000, "hold");
    REFUSED(struct_size, 8, "fb_subscription_options");
    FAILS(FB_INVALID, "subscription", "is NULL", fb_event_next(NULL, 1, &event));
    FAILS(FB_INVALID, "subscription", "is NULL", fb_subscription_wait_active(NULL, NULL, NULL));
    FAILS(FB_INVALID, "subscription", "is NULL", fb_subscription_name(NULL, &name));
    FAILS(FB_INVALID, "event", "is NULL", fb_event_info_get(NULL, NULL));
    fb_subscription *subscription = watch(stream, "max(U) > 1");
    FAILS(FB_INVALID, "event", "is NULL", fb_event_next(subscription, 1, NULL));
    FAILS(FB_INVALID, "timeout", "", fb_event_next(subscription, NAN, &event));
    FAILS(FB_INVALID, "change is 3", "", fb_subscription_change(subscription, 3));
    FAILS(FB_INVALID, "number", "is NULL", fb_subscription_cursor(subscription, NULL));
    OK(fb_subscription_change(subscription, FB_CHANGE_REMOVE));
    OK(fb_subscription_close(subscription));
    OK(fb_subscription_close(NULL));
    OK(fb_event_release(NULL));
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"values_at_a_step", values_at_a_step},
        {"events", events},
        {"what_is_not_known", what_is_not_known},
        {"options_and_others", options_and_others},
        {"values_in_the_space", values_in_the_space},
        {"the_space", the_space},
        {"bad_input", bad_input},
        {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
