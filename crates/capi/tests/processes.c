/* Threads, forks, and servers that go. */
#include <pthread.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 8, BLOCKS = 12, ROWS = 3, COLUMNS = 170 };

struct worker {
    fb_producer *producer;
    int number;
};

/* Puts every eighth row block, some by a copy and some in place. */
static void *put_blocks(void *argument) {
    const struct worker *worker = argument;
    static const uint64_t shape[2] = {ROWS, COLUMNS};
    for (int i = 0; i < BLOCKS; i++) {
        const uint64_t number = (uint64_t)(i * THREADS + worker->number);
        const uint64_t offset[2] = {number * ROWS, 0};
        double own[ROWS * COLUMNS], *values = own;
        fb_block block = a_block("U", FB_F64, 2, offset, shape, own);
        void *memory = NULL;
        block.number = number;
        if (number % 3 == 0) {
            OK(fb_alloc(worker->producer, &block, &memory));
            CHECK(memory != NULL);
            values = memory;
        }
        for (int at = 0; at < ROWS * COLUMNS; at++) values[at] = (double)number * ROWS * COLUMNS + at;
        OK(memory ? fb_commit(worker->producer, memory) : fb_put(worker->producer, &block));
        /* An error belongs to its thread. */
        char name[16];
        snprintf(name, sizeof name, "W%d", worker->number);
        block.field = name;
        FAILS(FB_NOT_FOUND, "'W", name, fb_put(worker->producer, &block));
    }
    return NULL;
}

/* Whether the last error is about a server, and its text names that one. */
static int names_its_server(int64_t server) {
    char name[32];
    snprintf(name, sizeof name, "server%lld", (long long)server);
    return server >= 0 && strstr(fb_error(), name) != NULL;
}

CASE(threads) {
    static double out[THREADS * BLOCKS * ROWS][COLUMNS];
    const uint64_t global[2] = {THREADS * BLOCKS * ROWS, COLUMNS}, zero[2] = {0, 0};
    fb_consumer *consumer = open_consumer(stream);
    fb_producer *producer = open_producer(stream);
    declare(producer, "U", FB_F64, 2, global);
    for (uint64_t number = 0; number < 3; number++) {
        pthread_t threads[THREADS];
        struct worker workers[THREADS];
        OK(fb_producer_begin(producer, number, 0));
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (struct worker){producer, i};
            CHECK(pthread_create(&threads[i], NULL, put_blocks, &workers[i]) == 0);
        }
        for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        OK(fb_producer_end(producer));
        fb_step *step = next_step(consumer, number);
        memset(out, 0, sizeof out);
        const fb_selection selection = a_selection("U", FB_F64, 2, zero, global, out);
        OK(fb_get(step, &selection));
        for (int i = 0; i < THREADS * BLOCKS * ROWS * COLUMNS; i++) CHECK((&out[0][0])[i] == i);
        OK(fb_step_release(step));
    }
    OK(fb_producer_close(producer));
    OK(fb_consumer_close(consumer));
}

/* Waits for a child that must have ended well. */
static void join_child(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

CASE(forks) {
    const uint64_t global[2] = {3, 500}, zero[2] = {0, 0};
    static double values[3][500], out[3][500];
    fb_consumer *consumer = open_consumer(stream);
    fb_producer *producer = open_producer(stream);
    fb_block block = a_block("U", FB_F64, 2, zero, global, values);
    fb_selection selection = a_selection("U", FB_F64, 2, zero, global, out);
    fb_step *step;
    for (int i = 0; i < 3 * 500; i++) (&values[0][0])[i] = i;
    declare(producer, "U", FB_F64, 2, global);
    OK(fb_producer_begin(producer, 0, 0));
    OK(fb_put(producer, &block));
    OK(fb_producer_end(producer));
    step = next_step(consumer, 0);
    OK(fb_producer_begin(producer, 1, 0));

    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        fb_step *other;
        int yes;
        block.number = 1;
        FAILS(FB_FORKED, "fb_put: this producer", "open one of its own in the child", fb_put(producer, &block));
        FAILS(FB_FORKED, "producer", "child", fb_producer_end(producer));
        FAILS(FB_FORKED, "producer", "child", fb_producer_begin(producer, 2, 0));
        FAILS(FB_FORKED, "producer", "child", fb_demanded(producer, "U", &yes));
        FAILS(FB_FORKED, "fb_get: this step", "child", fb_get(step, &selection));
        FAILS(FB_FORKED, "fb_consumer_next: this consumer", "child", fb_consumer_next(consumer, 1, &other));
        OK(fb_step_release(step));
        OK(fb_consumer_close(consumer));
        OK(fb_producer_close(producer));
        /* One of its own works. */
        producer = open_producer("of the child");
        OK(fb_producer_close(producer));
        _exit(0);
    }
    join_child(child);

    /* The parent goes on where it was. */
    block.number = 0;
    OK(fb_put(producer, &block));
    OK(fb_producer_end(producer));
    OK(fb_get(step, &selection));
    CHECK(memcmp(values, out, sizeof values) == 0);
    OK(fb_step_release(step));
    step = next_step(consumer, 1);
    memset(out, 0, sizeof out);
    OK(fb_get(step, &selection));
    CHECK(memcmp(values, out, sizeof values) == 0);
    OK(fb_step_release(step));
    OK(fb_producer_close(producer));
    FAILS(FB_ENDED, stream, "", fb_consumer_next(consumer, -1, &step));
    OK(fb_consumer_close(consumer));
}

static fb_producer *busy;
static volatile int go_on = 1;

static void *put_for_ever(void *stream) {
    static const uint64_t global[1] = {5}, zero[1] = {0};
    static const double values[5] = {0};
    (void)stream;
    for (uint64_t number = 0; go_on; number++) {
        const fb_block block = a_block("U", FB_F64, 1, zero, global, values);
        OK(fb_producer_begin(busy, number, 0));
        OK(fb_put(busy, &block));
        OK(fb_producer_end(busy));
    }
    return NULL;
}

/* A child forked while another thread is inside a call must not wait for that thread's locks. */
CASE(forks_amid_calls) {
    const uint64_t global[1] = {5};
    pthread_t thread;
    busy = open_producer(stream);
    declare(busy, "U", FB_F64, 1, global);
    CHECK(pthread_create(&thread, NULL, put_for_ever, NULL) == 0);
    for (int i = 0; i < 100; i++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(10); /* a hang is a failure */
            if (fb_producer_end(busy) != FB_FORKED || fb_producer_close(busy) != FB_OK) _exit(1);
            _exit(0);
        }
        join_child(child);
    }
    go_on = 0;
    CHECK(pthread_join(thread, NULL) == 0);
    OK(fb_producer_close(busy));
}

/* A child that lives on holds nothing: the parent's end is seen. */
CASE(a_parent_that_dies) {
    int both[2];
    char byte;
    fb_consumer *consumer = open_consumer(stream);
    fb_step *step;
    CHECK(pipe(both) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        const uint64_t global[1] = {5};
        fb_producer *producer = open_producer(stream);
        declare(producer, "U", FB_F64, 1, global);
        OK(fb_producer_begin(producer, 0, 0));
        const pid_t grandchild = fork();
        CHECK(grandchild >= 0);
        if (grandchild == 0) {
            close(both[1]);
            CHECK(read(both[0], &byte, 1) == 0); /* until the test is over */
            _exit(0);
        }
        raise(SIGKILL);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    const int result = fb_consumer_next(consumer, 5, &step);
    if (result == FB_OK) {
        fb_step_info info = FB_STEP_INFO_INIT;
        OK(fb_step_info_get(step, &info));
        CHECK(info.torn);
        OK(fb_step_release(step));
    } else {
        FAILS(FB_CRASHED, stream, "ended without closing it", result);
    }
    OK(fb_consumer_close(consumer));
    close(both[0]);
    close(both[1]);
}

/* The process id of a server, from the status; 0 if there are no more. */
static pid_t server_pid(const char *json, int index) {
    const char *at = json;
    for (int i = 0; at && i <= index; i++) {
        at = strstr(at, "\"pid\":");
        if (at) at += strlen("\"pid\":");
    }
    return at ? (pid_t)atol(at) : 0;
}

CASE(servers_that_are_gone) {
    const uint64_t global[1] = {5000}, zero[1] = {0};
    static double values[5000];
    char *json;
    const fb_admin_options looking = FB_ADMIN_OPTIONS_INIT;
    fb_admin *admin;
    uint64_t skipped = 99;
    fb_consumer *consumer = open_consumer(stream);
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_producer *skipping = open_producer(stream), *failing;
    options.stream = "failing";
    options.on_loss = FB_ON_LOSS_FAIL;
    OK(fb_producer_open(&options, &failing));
    declare(skipping, "U", FB_F64, 1, global);
    OK(fb_producer_lost(skipping, &skipped));
    CHECK(skipped == 0);
    OK(fb_admin_open(&looking, &admin));
    OK(fb_admin_status(admin, &json));
    OK(fb_admin_close(admin));
    const pid_t servers[2] = {server_pid(json, 0), server_pid(json, 1)};
    fb_free(json);
    CHECK(servers[0] > 0 && servers[1] > 0 && servers[0] != servers[1]);
    for (int i = 0; i < 2; i++) CHECK(kill(servers[i], SIGKILL) == 0);
    /* The simulation survives; the first step may still have been under way. */
    for (uint64_t number = 0; number < 4; number++) {
        const fb_block block = a_block("U", FB_F64, 1, zero, global, values);
        OK(fb_producer_begin(skipping, number, 0));
        OK(fb_put(skipping, &block));
        OK(fb_producer_end(skipping));
    }
    FAILS(FB_UNREACHABLE, "fb_producer_lost", "server", fb_producer_lost(skipping, &skipped));
    CHECK(skipped >= 3 && skipped <= 4);
    CHECK(names_its_server(fb_error_server()));
    OK(fb_producer_close(skipping));
    FAILS(FB_INVALID, "fb_put", "NULL", fb_put(failing, NULL));
    CHECK(fb_error_server() == -1);
    FAILS(FB_UNREACHABLE, "fb_producer_begin", "server", fb_producer_begin(failing, 0, 0));
    CHECK(names_its_server(fb_error_server()));
    (void)fb_producer_close(failing);
    fb_step *step;
    /* The reader is told by its own server's end, or before by that of the producers' server, which to the one
     * that still lives is the end of all ranks. */
    const int result = fb_consumer_next(consumer, -1, &step);
    CHECK(result == FB_UNREACHABLE || result == FB_LOST);
    (void)fb_consumer_close(consumer);
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"threads", threads},
        {"forks", forks},
        {"forks_amid_calls", forks_amid_calls},
        {"a_parent_that_dies", a_parent_that_dies},
        {"servers_that_are_gone", servers_that_are_gone},
        {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
