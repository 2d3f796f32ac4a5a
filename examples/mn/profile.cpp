// SPDX-License-Identifier: Apache-2.0
// A parallel reader of the stars, on any number of ranks:
//
//     mpiexec -n 2 profile [visits] [steps of each]
//
// It attaches to the simulation, takes some steps, detaches, and comes again. Each rank is given the stars of whole ranks of the
// simulation, each exactly once, and together they count how many lie at which distance from the middle. The first rank prints
// a line of JSON for each visit, and one for each step of the last.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "forebay.hpp"

namespace {

constexpr int bins = 8;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

// What one rank, and then all together, found in a step.
struct Found {
    std::array<double, bins> stars{}; // by their distance from the middle of the box
    double own = 0, ghosts = 0, outside = 0, ranks = 0, bytes = 0;
};

// What a rank of the simulation has: its stars, and behind them its ghosts. Nothing is copied where a server is on this host.
struct State {
    forebay::View<float> x, v;
    forebay::View<std::int64_t> id;
    forebay::Bounds bounds;
};

// The states that are this rank's.
std::vector<State> take(const forebay::Step &step) {
    const auto places = step.mine<float>("stars/x");
    const auto velocities = step.mine<float>("stars/v");
    const auto ids = step.mine<std::int64_t>("stars/id");
    std::vector<State> states;
    for (std::size_t i = 0; i < places.size(); i++)
        states.push_back({places[i], velocities[i], ids[i], step.rank_bounds(places[i].rank, 3)});
    return states;
}

void count(const State &state, Found &found) {
    const std::uint64_t own = state.x.shape[0], ghosts = state.x.ghost_high[0];
    for (std::uint64_t i = 0; i < own; i++) {
        const float *at = state.x.data + 3 * i;
        double r2 = 0;
        for (int d = 0; d < 3; d++) {
            r2 += (at[d] - 0.5) * (at[d] - 0.5);
            found.outside += at[d] < state.bounds.low[d] || at[d] >= state.bounds.high[d];
        }
        found.stars[std::min(bins - 1, static_cast<int>(std::sqrt(r2) / 0.9 * bins))] += 1;
    }
    found.own += static_cast<double>(own);
    found.ghosts += static_cast<double>(ghosts);
    found.ranks += 1;
    found.bytes += static_cast<double>((own + ghosts) * (2 * 3 * sizeof(float) + sizeof(std::int64_t)));
}

Found of_all(Found mine) {
    std::array<double, bins + 5> sums{};
    std::copy(mine.stars.begin(), mine.stars.end(), sums.begin());
    const double rest[5] = {mine.own, mine.ghosts, mine.outside, mine.ranks, mine.bytes};
    std::copy(rest, rest + 5, sums.begin() + bins);
    MPI_Allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(sums.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    Found all;
    std::copy(sums.begin(), sums.begin() + bins, all.stars.begin());
    all.own = sums[bins], all.ghosts = sums[bins + 1], all.outside = sums[bins + 2];
    all.ranks = sums[bins + 3], all.bytes = sums[bins + 4];
    return all;
}

std::string list(const std::array<double, bins> &numbers) {
    std::string text;
    for (double number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(static_cast<long>(number));
    return "[" + text + "]";
}

// The next step; nothing when the simulation has ended, also if it had before this reader came.
std::optional<forebay::Step> next_of(forebay::Consumer &reader) {
    try {
        return reader.next();
    } catch (const forebay::Error &error) {
        if (error.kind() != FB_NOT_FOUND) throw;
        return std::nullopt;
    }
}

// Returns whether the simulation goes on.
bool visit(int rank, int size, long steps, bool prints_steps) {
    forebay::ConsumerOptions options{"stars"};
    options.name = "profile";
    options.rank = static_cast<std::uint32_t>(rank);
    options.size = static_cast<std::uint32_t>(size);
    options.assign = "ranks";
    const auto came = Clock::now();
    forebay::Consumer reader{options};
    const double attached = seconds_since(came);
    double taking = 0, computing = 0, bytes = 0;
    long taken = 0;
    std::optional<forebay::Step> step;
    while (taken < steps && (step = next_of(reader))) {
        MPI_Barrier(MPI_COMM_WORLD);
        const auto began = Clock::now();
        const std::vector<State> states = take(*step);
        double seconds = seconds_since(began);
        MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        Found found;
        for (const State &state : states) count(state, found);
        const Found all = of_all(found);
        taking += seconds, computing += seconds_since(began) - seconds, bytes += all.bytes, taken++;
        if (rank == 0 && prints_steps)
            std::printf("{\"step\": %llu, \"stars\": %.0f, \"ghosts\": %.0f, \"ranks\": %.0f, \"outside\": %.0f, \"profile\": %s}\n",
                        static_cast<unsigned long long>(step->number()), all.own, all.ghosts, all.ranks, all.outside,
                        list(all.stars).c_str());
        step.reset();
    }
    if (rank == 0)
        std::printf("{\"visit\": %ld, \"attached_s\": %.4f, \"bytes\": %.0f, \"taking_s\": %.6f, \"computing_s\": %.6f}\n",
                    taken, attached, bytes, taking, computing);
    std::fflush(stdout);
    reader.close();
    return taken == steps;
}

} // namespace

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank = 0, size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const long visits = argc > 1 ? std::atol(argv[1]) : 2, steps = argc > 2 ? std::atol(argv[2]) : 10;
    try {
        for (long turn = 0; turn < visits && visit(rank, size, steps, turn + 1 == visits); turn++) {
        }
    } catch (const std::exception &error) {
        std::fprintf(stderr, "profile: rank %d: %s\n", rank, error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return 0;
}
