// forebay::PipelineHandle: a pipeline that is driven from C++.  test_driving.py creates it under the name that it gives.
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "forebay.hpp"

#define CHECK(condition) \
    ((condition) ? (void)0 : throw std::runtime_error("line " + std::to_string(__LINE__) + ": " #condition))

int main(int, char **argv) try {
    forebay::ProducerOptions options;
    options.timeout = 20;
    forebay::PipelineHandle handle(argv[1], options);
    handle.array<double>("U", {6, 170});
    const forebay::Box box{{0, 0}, {6, 170}};
    std::vector<double> values(6 * 170);
    for (std::uint64_t step = 5; step < 10; step++) {
        for (std::size_t i = 0; i < values.size(); i++) values[i] = static_cast<double>(step + i);
        if (step % 2 == 0) {
            CHECK(handle.activate(step, 0.5) == 2);
            CHECK(handle.active() == std::vector<std::uint64_t>{step} && handle.demanded("U"));
            CHECK(handle.stage("U", values.data(), box) == FB_OUTCOME_STAGED);
            CHECK(handle.execute(step));
        } else {
            auto activated = handle.activate_async(step, 0.5);
            CHECK(handle.stage_async("U", values.data(), box) == FB_OUTCOME_STAGED);
            CHECK(activated.wait() == 2);
            CHECK(handle.execute_async(step).wait() == 1);
        }
        handle.deactivate(step);
    }
    CHECK(!handle.lost() && handle.skipped() == 0 && handle.run() == 1);
    handle.close();
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
