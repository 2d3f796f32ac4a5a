// forebay::Admin: a group of two servers is looked after, and ended.  test_administration.py gives the code of a pipeline as
// the argument.
#include <cstdint>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>

#include "forebay.hpp"

#define CHECK(condition) \
    ((condition) ? (void)0 : throw std::runtime_error("line " + std::to_string(__LINE__) + ": " #condition))

template <class Action> static int kind_of(Action action, std::optional<std::uint32_t> about = {}) {
    try {
        action();
    } catch (const forebay::Error &error) {
        CHECK(error.server() == about);
        return error.kind();
    }
    return FB_OK;
}

int main(int argc, char **argv) try {
    CHECK(argc == 2);
    forebay::AdminOptions options;
    options.timeout = 40;
    forebay::Admin admin(options);
    CHECK((admin.add_servers(2) == std::vector<std::uint32_t>{2, 3}));
    admin.remove_server(3);
    CHECK(kind_of([&] { admin.remove_server(3); }, 3) == FB_NOT_FOUND);
    forebay::PipelineOptions pipeline{"nothing", argv[1]};
    pipeline.stream = "s";
    pipeline.driven = true;
    admin.create_pipeline(pipeline);
    CHECK(admin.status().find("\"nothing\"") != std::string::npos);
    admin.destroy_pipeline("nothing");
    CHECK(kind_of([&] { admin.heal(); }) == FB_CONFLICT);
    CHECK(forebay::group_text().front() == '{' && !forebay::version().empty());
    admin.shutdown();
    admin.close();
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
