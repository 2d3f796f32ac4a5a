// Tutorial 2, in C++: a reader that follows a simulation.
//
//     c++ -std=c++17 02_reader.cpp $(forebay config --cflags --libs) -o reader
//
// It may be started before the simulation, or after it: that one waits for it.  It knows nothing of the
// simulation's ranks and blocks: it asks for the region that it wants.
#include <cstdio>
#include <numeric>

#include <forebay.hpp>

int main() try {
    // 1. Attach to the stream, which need not exist yet, and say what is needed.
    forebay::ConsumerOptions options{"tutorial"};
    options.fields = {{"U"}};
    options.name = "viewer";
    options.start = FB_START_RUN; // all of a run, from its first step on
    forebay::Consumer viewer(options);
    std::printf("waiting for steps\n");
    std::fflush(stdout);

    // 2. Step after step, until the simulation ends; if it crashes, next() throws.  Each is released at the end of its turn.
    while (auto step = viewer.next()) {
        // 3. All of the field: assembled from its blocks, whichever server holds them.
        const forebay::Array<double> u = step->get<double>("U");
        const double sum = std::accumulate(u.begin(), u.end(), 0.0);

        // 4. A part of it: x from 2 to 4 of the row z = 1, y = 3.
        const auto row = step->get<double>("U", {{1, 3, 2}, {1, 1, 3}});

        std::printf("step %llu, time %4.1f\n", static_cast<unsigned long long>(step->number()), step->time());
        std::printf("  sum   %10.1f\n", sum);
        std::printf("  value %10.1f\n", u(2, 4, 1));
        std::printf("  row   %10.1f%10.1f%10.1f\n", row(0, 0, 0), row(0, 0, 1), row(0, 0, 2));
    }

    // 5. Detach.
    viewer.close();
    return 0;
} catch (const forebay::Error &error) {
    std::fprintf(stderr, "%s: %s\n", error.name(), error.what());
    return 1;
}
