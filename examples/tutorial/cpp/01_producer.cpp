// Tutorial 1, in C++: a simulation that hands over its field step by step.
//
//     c++ -std=c++17 01_producer.cpp $(forebay config --cflags --libs) -o producer
//     forebay up -n 2          starts two servers
//     ./producer &             in either order: it waits
//     ./reader                 for its reader, see 02_reader.cpp
//
// The field U has 4 x 5 x 6 points.  A real simulation has many ranks and each puts its part; here one rank
// puts two halves, which is the same to Forebay.
#include <cstdint>
#include <cstdio>
#include <vector>

#include <forebay.hpp>

constexpr std::uint64_t nz = 4, ny = 5, nx = 6, steps = 5;

int main() try {
    // 1. Join the stream.  The group is found through FOREBAY_GROUP, or options.group.
    forebay::ProducerOptions options{"tutorial"};
    options.rank = 0;  // with MPI: this rank,
    options.size = 1; // and how many there are
    // The first step begins when one reader that has a name is attached, so that it sees them all.  Without this
    // nobody is waited for, and nothing moves while nobody looks.
    options.wait_for_readers = 1;
    forebay::Producer sim(options);

    // 2. Say what there is: the field's name, type and global shape, slowest dimension first.
    forebay::FieldOptions about;
    about.dims = {"z", "y", "x"};
    about.units = "m/s";
    sim.array<double>("U", {nz, ny, nx}, about);

    std::vector<double> u(nz * ny * nx);
    for (std::uint64_t number = 0; number < steps; number++) {
        // 3. Compute.
        for (std::uint64_t z = 0; z < nz; z++)
            for (std::uint64_t y = 0; y < ny; y++)
                for (std::uint64_t x = 0; x < nx; x++)
                    u[(z * ny + y) * nx + x] = static_cast<double>(1000 * number + 100 * z + 10 * y + x);

        // 4. Hand over.  A block is a box of the global array; the array is yours again on return.
        forebay::OpenStep step = sim.step(number, 0.5 * static_cast<double>(number));
        for (std::uint64_t half = 0; half < 2; half++) {
            const std::uint64_t first = half * nz / 2;
            forebay::Box box{{first, 0, 0}, {nz / 2, ny, nx}};
            box.number = half; // tells apart the blocks of one rank
            step.put("U", &u[first * ny * nx], box);
        }
        step.end();
    }

    // 5. Leave: readers are told that the simulation has finished.
    sim.close();
    std::printf("%d steps\n", static_cast<int>(steps));
    return 0;
} catch (const forebay::Error &error) {
    std::fprintf(stderr, "%s: %s\n", error.name(), error.what());
    return 1;
}
