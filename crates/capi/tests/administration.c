/* fb_admin_...: a group of two servers is looked after, and ended.  test_administration.py gives the code of a pipeline as
 * the argument. */
#include "check.h"

int main(int argc, char **argv) {
    fb_admin_options options = FB_ADMIN_OPTIONS_INIT;
    fb_pipeline_options pipeline = FB_PIPELINE_OPTIONS_INIT;
    fb_admin *admin;
    char *json;
    uint32_t added[2] = {99, 99}, answering[8], silent[8], answering_count = 99, silent_count = 99;
    CHECK(argc == 2);
    options.timeout = 40;
    OK(fb_admin_open(&options, &admin));
    OK(fb_admin_status(admin, &json));
    CHECK(strstr(json, "\"servers\""));
    fb_free(json);

    OK(fb_admin_add_servers(admin, 2, added));
    CHECK(added[0] == 2 && added[1] == 3);
    FAILS(FB_NOT_FOUND, "no server9", "server3", fb_admin_remove_server(admin, 9, 0));
    OK(fb_admin_remove_server(admin, added[0], 0));
    OK(fb_admin_add_servers(admin, 1, NULL));

    pipeline.name = "nothing";
    pipeline.code = argv[1];
    pipeline.stream = "s";
    pipeline.config = "{\"a\": 1}";
    pipeline.driven = 1;
    OK(fb_admin_create_pipeline(admin, &pipeline));
    FAILS(FB_CONFLICT, "nothing", "", fb_admin_create_pipeline(admin, &pipeline));
    OK(fb_admin_status(admin, &json));
    CHECK(strstr(json, "\"nothing\""));
    fb_free(json);
    OK(fb_admin_destroy_pipeline(admin, "nothing"));
    FAILS(FB_NOT_FOUND, "nothing", "", fb_admin_destroy_pipeline(admin, "nothing"));
    pipeline.code = "/nonexistent/file.py:Class";
    FAILS(FB_IO, "/nonexistent/file.py", "", fb_admin_create_pipeline(admin, &pipeline));

    /* All of them answer. */
    FAILS(FB_CONFLICT, "", "", fb_admin_heal(admin, 0, 8, answering, &answering_count, silent, &silent_count));

    /* The text of the connection file is no path, and holds the secret. */
    char *text;
    fb_admin *by_text;
    OK(fb_group_text(NULL, &text));
    options.group = text;
    OK(fb_admin_open(&options, &by_text));
    FAILS(FB_UNSUPPORTED, "connection file itself", "secret", fb_admin_add_servers(by_text, 1, NULL));
    OK(fb_admin_close(by_text));
    fb_free(text);

    CHECK(setenv("FOREBAY_COMMAND", "/nonexistent/forebay", 1) == 0);
    FAILS(FB_IO, "/nonexistent/forebay", "FOREBAY_COMMAND", fb_admin_add_servers(admin, 1, NULL));
    OK(fb_admin_shutdown(admin));
    OK(fb_admin_close(admin));
    return 0;
}
