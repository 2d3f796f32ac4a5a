// forebay.hpp: objects that clean up, errors that are thrown, types that become dtypes.
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "forebay.hpp"

using forebay::Box;
using forebay::Extents;

#define CHECK(condition) \
    ((condition) ? (void)0 : throw std::runtime_error("line " + std::to_string(__LINE__) + ": " #condition))

// The action throws an error of this kind whose text has this part.
template <class Action> static void fails(int line, int kind, const std::string &part, Action action) {
    try {
        action();
    } catch (const forebay::Error &error) {
        if (error.kind() == kind && std::string(error.what()).find(part) != std::string::npos) return;
        throw std::runtime_error("line " + std::to_string(line) + ": " + error.name() + ": " + error.what());
    }
    throw std::runtime_error("line " + std::to_string(line) + ": no error");
}
#define FAILS(kind, part, ...) fails(__LINE__, kind, part, [&] { __VA_ARGS__; })

static forebay::Consumer consumer(const std::string &stream) { return forebay::Consumer(forebay::ConsumerOptions{stream}); }
static forebay::Producer producer(const std::string &stream) { return forebay::Producer(forebay::ProducerOptions{stream}); }

template <class T> static constexpr std::int32_t dtype = forebay::dtype_of<T>::value;
static_assert(dtype<bool> == FB_BOOL && dtype<signed char> == FB_I8 && dtype<unsigned char> == FB_U8);
static_assert(dtype<short> == FB_I16 && dtype<unsigned short> == FB_U16 && dtype<int> == FB_I32 && dtype<unsigned> == FB_U32);
static_assert(dtype<long long> == FB_I64 && dtype<unsigned long long> == FB_U64 && dtype<std::int64_t> == FB_I64);
static_assert(dtype<float> == FB_F32 && dtype<double> == FB_F64);
static_assert(dtype<std::complex<float>> == FB_C64 && dtype<std::complex<double>> == FB_C128);
static_assert(!std::is_copy_constructible_v<forebay::Producer> && std::is_move_constructible_v<forebay::Producer>);
static_assert(std::is_move_assignable_v<forebay::Consumer> && !std::is_copy_constructible_v<forebay::Step>);

static void types(const std::string &stream) {
    auto viewer = consumer(stream);
    auto sim = producer(stream);
    sim.array<std::complex<float>>("C", {2, 3});
    sim.array<std::uint16_t>("H", {3, 2, 4});
    sim.array<long long>("L", {});
    CHECK(sim.run() == 1 && sim.transport() == "shm");
    std::vector<std::complex<float>> c = {{1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}, {11, 12}};
    std::vector<std::uint16_t> h(3 * 2 * 4);
    for (std::size_t i = 0; i < h.size(); i++) h[i] = static_cast<std::uint16_t>(i * 1000);
    const long long scalar = -5;
    {
        auto step = sim.step(3, 0.75);
        CHECK(step.demanded("H"));
        CHECK(step.put("C", c.data(), {{0, 0}, {2, 3}}) == FB_OUTCOME_STAGED);
        step.put("H", h.data(), {{0, 0, 0}, {3, 2, 4}});
        step.put("L", &scalar, {{}, {}});
    } // ends the step
    auto step = viewer.next();
    CHECK(step && step->number() == 3 && step->time() == 0.75 && step->run() == 1 && step->missed() == 0);
    CHECK(!step->torn() && !step->rewound());
    CHECK((step->fields() == std::vector<std::string>{"C", "H", "L"}));
    CHECK((step->shape("H") == Extents{3, 2, 4}) && step->shape("L").empty());
    const auto all = step->get<std::complex<float>>("C");
    CHECK(all.size() == 6 && all(1, 2) == c[5] && all(0, 1) == c[1]);
    const auto some = step->get<std::uint16_t>("H", {{0, 1, 1}, {2, 1, 2}, {2, 1, 2}});
    for (int z = 0; z < 2; z++)
        for (int x = 0; x < 2; x++) CHECK(some(z, 0, x) == h[static_cast<std::size_t>((2 * z * 2 + 1) * 4 + 1 + 2 * x)]);
    CHECK(step->get<long long>("L")() == -5);
    FAILS(FB_TYPE_MISMATCH, "'H'", step->get<std::int16_t>("H"));
    FAILS(FB_TYPE_MISMATCH, "'H'", step->blocks<float>("H"));
    FAILS(FB_NOT_FOUND, "'W'", step->get<float>("W"));
    sim.close();
    step.reset();
    CHECK(!viewer.next());
    CHECK(!viewer.next());
    viewer.close();
}

static void boxes(const std::string &stream) {
    forebay::ConsumerOptions reads{stream};
    reads.fields = {forebay::Need{"T"}, forebay::Need{"P"}};
    reads.fields[0].stats = FB_STATS_ALONG;
    forebay::Consumer viewer{reads};
    forebay::ConsumerOptions shares{stream};
    shares.name = "w";
    shares.share = FB_SHARE_ON_DEMAND;
    forebay::Consumer sharer{shares};
    auto sim = producer(stream);
    forebay::FieldOptions about;
    about.dims = {"y", "x"};
    about.spacing = {0.5, 0.25};
    about.origin = {1, 2};
    about.units = "K";
    about.association = FB_ASSOCIATION_VERTEX;
    about.periodic = {1, 0};
    about.refinement = {2, 4};
    sim.array<float>("T", {4, 7}, about);
    sim.unplaced_array<std::int8_t>("P", 1);
    forebay::FieldOptions of_run;
    of_run.is_static = true;
    sim.array<double>("mesh", {2}, of_run);
    // With unequal ghosts, and an interior by strides.
    std::vector<float> padded(3 * 9), wide(4 * 10);
    for (int y = 0; y < 2; y++)
        for (int x = 0; x < 7; x++) {
            padded[static_cast<std::size_t>((y + 1) * 9 + x)] = static_cast<float>(10 * y + x);
            wide[static_cast<std::size_t>(y * 10 + 3 + x)] = static_cast<float>(10 * (y + 2) + x);
        }
    const std::int8_t points[3] = {1, -2, 3};
    auto step = sim.step(0, 0);
    Box box{{0, 0}, {2, 7}, {1, 0}, {0, 2}};
    step.put("T", padded.data(), box);
    box = Box{{2, 0}, {2, 7}, {}, {}, {40, 4}, 1};
    step.put("T", wide.data() + 3, box);
    step.put("P", points, forebay::unplaced({3}));
    const double mesh[2] = {0.5, 1.5};
    step.put("mesh", mesh, Box{{0}, {2}});
    FAILS(FB_OUT_OF_BOUNDS, "ghost_low has 1 numbers", step.put("T", padded.data(), Box{{0, 0}, {2, 7}, {1}}));
    FAILS(FB_TYPE_MISMATCH, "'T'", step.put("T", points, Box{{0, 0}, {1, 3}, {}, {}, {}, 7}));
    step.end();
    step.end(); // once is enough
    const auto read = viewer.next();
    // An exception gives back what it had not finished with.
    try {
        const auto failing = sharer.next();
        CHECK(failing->attempt() == 0);
        throw std::runtime_error("no room on the disk");
    } catch (const std::runtime_error &) {
    }
    auto again = sharer.next();
    CHECK(again->attempt() == 1);
    again->give_back();
    { const auto dropped = sharer.next_async(); }
    CHECK(sharer.next()->attempt() == 3);
    const auto info = read->field("T");
    CHECK(info.periodic[0] && !info.periodic[1] && (info.refinement == Extents{2, 4}));
    CHECK(!info.is_static && read->field("mesh").is_static && read->get<double>("mesh")(1) == 1.5);
    const auto all = read->get<float>("T");
    for (int y = 0; y < 4; y++)
        for (int x = 0; x < 7; x++) CHECK(all(y, x) == static_cast<float>(10 * y + x));
    std::vector<float> column_major(4 * 7);
    read->get("T", {{0, 0}, {4, 7}}, column_major.data(), {4, 16});
    CHECK(column_major[6 * 4 + 3] == 36 && column_major[1] == 10);
    const auto blocks = read->blocks<float>("T");
    CHECK(blocks.size() == 2);
    std::map<std::uint64_t, forebay::View<float>> by_number;
    for (const auto &block : blocks) by_number.emplace(block.number, block);
    CHECK((by_number.at(0).ghost_low == Extents{1, 0}) && (by_number.at(0).ghost_high == Extents{0, 2}));
    CHECK(by_number.at(0).data[9 + 5] == 5 && by_number.at(1).data[7 + 5] == 35);
    CHECK((by_number.at(1).offset == Extents{2, 0}) && (by_number.at(1).shape == Extents{2, 7}));
    // Of the interior alone: 0 to 6 and 10 to 16.
    CHECK(by_number.at(0).stats && by_number.at(0).stats->min == 0 && by_number.at(0).stats->max == 16);
    CHECK(by_number.at(0).stats->sum == 112 && by_number.at(0).stats->count == 14 && by_number.at(0).stats->nan == 0);
    const auto whole = read->stats("T");
    CHECK(whole.min == 0 && whole.max == 36 && whole.count == 28 && whole.sum == 28 * 18);
    FAILS(FB_NOT_COVERED, "asked for in the contract", read->stats("P"));
    const auto unplaced = read->blocks<std::int8_t>("P");
    CHECK(!unplaced[0].stats);
    CHECK(unplaced.size() == 1 && unplaced[0].offset.empty() && unplaced[0].data[1] == -2);
    FAILS(FB_OUT_OF_BOUNDS, "'P'", read->get<std::int8_t>("P"));
}

static void attributes(const std::string &stream) {
    using forebay::Attribute;
    auto viewer = consumer(stream);
    auto sim = producer(stream);
    sim.array<int>("N", {2});
    sim.array<int>("M", {2});
    sim.attr("yes", true);
    sim.attr("count", std::uint16_t{9});
    sim.attr("dt", 0.5f);
    sim.attr("name", "a text");
    sim.attr("view", std::string_view("a longer text").substr(2, 6));
    sim.attr("more", std::string("text"), "N");
    sim.attr("flags", std::vector<bool>{true, false}, "N");
    sim.attr("sizes", std::vector<int>{1, -2, 3}, "N");
    sim.attr("range", std::vector<double>{}, "N");
    sim.attr("names", std::vector<std::string>{"a", "b"}, "N");
    sim.attr("views", std::vector<std::string_view>{std::string_view("abc").substr(0, 2), "d"}, "N");
    sim.attr("large", ~std::uint64_t{0}, "M");
    sim.attr("complex", std::complex<float>(0.5f, -2), "M");
    sim.attr("several", std::vector<std::complex<double>>{{1, 2}, {3, 4}}, "M");
    sim.attr("few", std::vector<std::uint64_t>{1, 2}, "M");
    FAILS(FB_CONFLICT, "'dt'", sim.attr("dt", 0.25));
    const int values[2] = {1, 2};
    auto step = sim.step(0);
    step.put("N", values, {{0}, {2}});
    step.attr("iterations", 7);
    step.attr("dt", 0.125);
    FAILS(FB_CONFLICT, "of a step", step.attr("dt", 0.5));
    step.end();
    const auto found = viewer.next();
    CHECK(std::isnan(found->time()));
    CHECK(found->attrs().at("iterations") == Attribute(std::int64_t{7}));
    const auto of_other = found->attrs("M");
    CHECK(of_other.at("large") == Attribute(~std::uint64_t{0}));
    CHECK(of_other.at("complex") == Attribute(std::complex<double>(0.5, -2)));
    CHECK(of_other.at("several") == Attribute(std::vector<std::complex<double>>{{1, 2}, {3, 4}}));
    CHECK(of_other.at("few") == Attribute(std::vector<std::int64_t>{1, 2}));
    const auto of_stream = found->attrs(), of_field = found->attrs("N");
    CHECK(of_stream.size() == 6 && of_field.size() == 6);
    CHECK(of_stream.at("view") == Attribute(std::string("longer")));
    CHECK(of_field.at("views") == Attribute(std::vector<std::string>{"ab", "d"}));
    CHECK(of_stream.at("yes") == Attribute(true) && of_stream.at("count") == Attribute(std::int64_t{9}));
    CHECK(of_stream.at("dt") == Attribute(0.125) && of_stream.at("name") == Attribute(std::string("a text")));
    CHECK(of_field.at("more") == Attribute(std::string("text")));
    CHECK(of_field.at("flags") == Attribute(std::vector<bool>{true, false}));
    CHECK(of_field.at("sizes") == Attribute(std::vector<std::int64_t>{1, -2, 3}));
    CHECK(of_field.at("range") == Attribute(std::vector<double>{}));
    CHECK(of_field.at("names") == Attribute(std::vector<std::string>{"a", "b"}));
    CHECK(found->attrs("O").empty());
}

static void particles(const std::string &stream) {
    auto viewer = consumer(stream);
    auto sim = producer(stream);
    forebay::FieldOptions in_metres;
    in_metres.dims = {"particle", "axis"};
    in_metres.units = "m";
    sim.particles("ions", {{"x", dtype<double>, 2, in_metres}, {"charge", dtype<float>}});
    sim.buffer("log");
    const std::vector<double> x(5 * 3, 1.5);
    const std::vector<float> charge(6, 2);
    const std::string text = "said";
    auto step = sim.step(0, 0);
    step.put("ions/x", x.data(), forebay::unplaced({5, 3}));
    FAILS(FB_CONFLICT, "'ions'", step.put("ions/charge", charge.data(), forebay::unplaced({6})));
    step.put("ions/charge", charge.data(), forebay::unplaced({5}));
    step.put("log", reinterpret_cast<const unsigned char *>(text.data()), forebay::unplaced({text.size()}));
    step.end();
    const auto found = viewer.next();
    const auto positions = found->blocks<double>("ions/x");
    CHECK(positions.size() == 1 && (positions[0].shape == Extents{5, 3}) && positions[0].data[14] == 1.5);
    CHECK(found->blocks<float>("ions/charge").at(0).shape == Extents{5});
    const auto log = found->blocks<unsigned char>("log").at(0);
    CHECK(std::string(log.data, log.data + log.shape[0]) == text);
}

static void in_place(const std::string &stream) {
    auto viewer = consumer(stream);
    auto sim = producer(stream);
    sim.array<double>("U", {3, 500});
    sim.array<float>("V", {2, 400});
    auto step = sim.step(0, 0);
    const std::vector<float> row(400, 7);
    for (std::uint64_t y = 0; y < 2; y++) {
        Box box{{y, 0}, {1, 400}};
        box.number = y;
        CHECK(step.put_async("V", row.data(), box) == FB_OUTCOME_STAGED);
    }
    CHECK(step.wait() == 0);
    {
        auto given_back = step.alloc<double>("U", {{0, 0}, {3, 500}});
        CHECK(given_back);
    }
    auto memory = step.alloc<double>("U", {{0, 0}, {3, 500}});
    auto moved = std::move(memory);
    for (int i = 0; i < 1500; i++) moved.data()[i] = i;
    moved.commit();
    step.end();
    sim.flush();
    const auto found = viewer.next();
    const auto all = found->get<double>("U");
    for (int i = 0; i < 1500; i++) CHECK(all.data()[i] == i);
    for (const float value : found->get<float>("V")) CHECK(value == 7);
}

static void fields(const std::string &stream) {
    auto viewer = consumer(stream);
    auto sim = producer(stream);
    forebay::FieldOptions about;
    about.dims = {"y", "x"};
    about.spacing = {0.5, 2};
    about.units = "K";
    about.association = FB_ASSOCIATION_VERTEX;
    sim.array<float>("T", {2, 3}, about);
    sim.unplaced_array<double>("P", 1);
    // In two calls instead of an object.
    const float values[6] = {1, 2, 3, 4, 5, 6};
    const double spacing = 0.5;
    sim.begin(7, 0.5);
    CHECK(sim.demanded("T"));
    CHECK(sim.put("T", values, {{0, 0}, {2, 3}}) == FB_OUTCOME_STAGED);
    sim.put("P", &spacing, forebay::unplaced({1}));
    sim.end();
    FAILS(FB_STEP_ORDER, "outside a step", sim.end());
    CHECK(!sim.lost() && sim.skipped() == 0);
    CHECK(!viewer.cursor() || viewer.cursor()->step <= 7);
    {
        const auto step = viewer.next();
        const forebay::FieldInfo found = step->field("T");
        CHECK(found.name == "T" && found.dtype == FB_F32 && found.ndim == 2 && found.units == "K" && found.every == 1);
        CHECK(found.placed && found.shape == (Extents{2, 3}) && found.association == FB_ASSOCIATION_VERTEX);
        CHECK((found.dims == std::vector<std::string>{"y", "x"}) && (found.spacing == std::vector<double>{0.5, 2}));
        CHECK(found.origin.empty() && !step->field("P").placed && step->field("P").ndim == 1);
        FAILS(FB_OUT_OF_BOUNDS, "'P'", step->shape("P"));
        CHECK(step->blocks<float>("T").front().server < 2);
    }
    const auto cursor = viewer.cursor();
    CHECK(cursor && cursor->run == sim.run() && cursor->step == 8);
    forebay::ConsumerOptions again{stream};
    again.start = FB_START_CURSOR;
    again.cursor = *cursor;
    again.pin_bytes = 0;
    forebay::Consumer next(again);
    sim.step(8, 0).end();
    CHECK(next.next()->number() == 8);
    CHECK(forebay::Error(FB_TIMEOUT, "").is_retryable() && !forebay::Error(FB_INVALID, "").is_retryable());
}

static void holes(const std::string &stream) {
    auto viewer = consumer(stream);
    auto sim = producer(stream);
    sim.array<int>("N", {2, 4});
    const int values[2] = {7, 8};
    auto step = sim.step(0);
    step.put("N", values, {{1, 1}, {1, 2}});
    step.end();
    const auto found = viewer.next();
    FAILS(FB_NOT_COVERED, "'N'", found->get<int>("N"));
    const auto filled = found->get<int>("N", {{1, 0}, {1, 4}}, -1);
    CHECK(filled(0, 0) == -1 && filled(0, 1) == 7 && filled(0, 2) == 8 && filled(0, 3) == -1);
    const auto there = found->covered("N", {{0, 0}, {2, 2}, {1, 2}});
    CHECK(!there(0, 0) && !there(0, 1) && !there(1, 0) && there(1, 1));
    CHECK(found->covered("N", {{1, 1}, {1, 1}})(0, 0));
}

static void space(const std::string &stream) {
    forebay::Space space;
    const std::vector<int> values = {1, 2, 3, 4, 5, 6};
    space.put(stream, {3, 4}, 9, values.data(), {{1, 1}, {2, 3}});
    const auto part = space.get<int>(stream, 9, {{1, 1}, {2, 2}, {1, 2}});
    CHECK(part(0, 0) == 1 && part(0, 1) == 3 && part(1, 0) == 4 && part(1, 1) == 6);
    FAILS(FB_NOT_COVERED, stream, space.get<int>(stream, 9, {{0, 0}, {3, 4}}, 0.05));
    const int other[2] = {7, 8};
    space.replace(stream, {2}, 9, other);
    CHECK(space.get<int>(stream, 9, {{0}, {2}}, 0)(1) == 8);
    FAILS(FB_CONFLICT, "`replace`", space.put(stream, {2}, 9, other, {{0}, {2}}));
    const std::string listed = space.list();
    CHECK(listed.find("\"name\":\"" + stream + "\"") != std::string::npos);
    space.remove(stream, 9);
    CHECK(space.list().find("\"name\":\"" + stream + "\"") == std::string::npos);
    CHECK(forebay::Admin().status().find("\"servers\"") != std::string::npos);
}

// A rank whose life an exception ends has crashed; one that goes out of scope has closed.
static void ends(const std::string &stream) {
    for (const bool throws : {false, true}) {
        const std::string name = stream + (throws ? " by throwing" : "");
        auto viewer = consumer(name);
        try {
            auto sim = producer(name);
            sim.array<double>("U", {3});
            const double values[3] = {1, 2, 3};
            auto step = sim.step(0, 0);
            step.put("U", values, {{0}, {3}});
            step.end();
            if (throws) throw std::runtime_error("the simulation's own");
        } catch (const std::runtime_error &error) {
            CHECK(throws && error.what() == std::string("the simulation's own"));
        }
        CHECK(viewer.next()->number() == 0);
        if (throws) FAILS(FB_CRASHED, "ended without closing it", viewer.next());
        else CHECK(!viewer.next());
    }
    auto sim = producer(stream + " given up");
    sim.abandon();
    FAILS(FB_CRASHED, "before its first step", consumer(stream + " given up").next());
}

static void contracts(const std::string &stream) {
    forebay::ConsumerOptions options{stream};
    forebay::Need need{"U"};
    need.offset = {1, 0};
    need.shape = {1, 2};
    need.stride = {1, 2};
    options.fields = {need, forebay::Need{"never"}};
    options.fields[1].optional = true;
    forebay::Consumer reader{options};
    auto sim = producer(stream);
    sim.array<double>("U", {2, 3});
    const double values[] = {1, 2, 3, 4, 5, 6};
    auto step = sim.step(0);
    CHECK(step.put("U", values, {{0, 0}, {2, 3}}) == FB_OUTCOME_STAGED);
    step.end();
    const auto found = reader.next();
    const auto views = found->blocks<double>("U");
    CHECK(views.size() == 1 && views[0].data[0] == 4 && views[0].data[1] == 6);
    CHECK((views[0].offset == forebay::Extents{1, 0} && views[0].step == forebay::Extents{1, 2}));
    // Another contract, from the next step on.
    const auto from = reader.need();
    CHECK(from && from->run == sim.run() && from->step == 1);
    auto next = sim.step(1);
    CHECK(next.put("U", values, {{0, 0}, {2, 3}}) == FB_OUTCOME_STAGED);
    next.end();
    CHECK(reader.next()->blocks<double>("U")[0].shape == (forebay::Extents{2, 3}));
    FAILS(FB_NOT_FOUND, "'W'", reader.need({forebay::Need{"W"}}));
    forebay::Admin admin;
    CHECK(admin.contracts(stream).find("\"readers\":[{") != std::string::npos);
    FAILS(FB_NOT_FOUND, "no stream", admin.contracts(stream + " that never is"));
    options.fields[0].stride = {1};
    FAILS(FB_OUT_OF_BOUNDS, "stride has 1", forebay::Consumer{options});
}

// A reader of two ranks: each has its slab, as blocks and as a region.
static void cohorts(const std::string &stream) {
    constexpr int size = 2;
    std::vector<forebay::Consumer> ranks;
    {
        std::vector<std::thread> threads;
        std::mutex mutex;
        for (int rank = 0; rank < size; rank++)
            threads.emplace_back([&, rank] {
                forebay::ConsumerOptions options{stream};
                options.name = "pair of " + stream;
                options.rank = static_cast<std::uint32_t>(rank);
                options.size = size;
                options.assign = "slab";
                forebay::Consumer reader{options};
                const std::lock_guard<std::mutex> lock{mutex};
                ranks.push_back(std::move(reader));
            });
        for (auto &thread : threads) thread.join();
    }
    auto sim = producer(stream);
    sim.array<double>("U", {3, 2});
    const double values[] = {1, 2, 3, 4, 5, 6};
    auto step = sim.step(0);
    CHECK(step.put("U", values, {{0, 0}, {3, 2}}) == FB_OUTCOME_STAGED);
    step.end();
    double sum = 0;
    for (auto &reader : ranks) {
        const auto found = reader.next();
        const auto slab = found->mine_region("U");
        const auto mine = found->mine<double>("U");
        CHECK(mine.size() == 1 && mine[0].offset == slab.offset && mine[0].shape == slab.shape);
        CHECK(slab.offset[0] == (slab.shape[0] == 2 ? 0u : 2u) && slab.shape[1] == 2);
        const auto copy = found->get<double>("U", slab);
        for (std::size_t i = 0; i < slab.shape[0] * slab.shape[1]; i++) {
            CHECK(copy.data()[i] == mine[0].data[i]);
            sum += copy.data()[i];
        }
    }
    CHECK(sum == 21);
    forebay::ConsumerOptions options{stream};
    options.size = 2;
    FAILS(FB_INVALID, "has no name", forebay::Consumer{options});
    options.assign = "nearest";
    FAILS(FB_INVALID, "'nearest' is not known", forebay::Consumer{options});
}

static void looking(const std::string &stream) {
    forebay::Stream looked{stream};
    CHECK(looked.steps() == "[]");
    FAILS(FB_NOT_FOUND, "no step of stream", looked.latest());
    forebay::ProducerOptions options{stream};
    options.keep = 2;
    forebay::Producer sim{options};
    sim.array<double>("U", {2});
    for (std::uint64_t number = 0; number < 3; number++) {
        const double values[] = {static_cast<double>(number), 1};
        auto step = sim.step(number);
        step.put("U", values, {{0}, {2}});
        step.end();
        sim.flush();
    }
    CHECK(looked.steps().find("\"number\":2") != std::string::npos);
    const auto latest = looked.latest();
    CHECK(latest.number() == 2 && latest.get<double>("U").data()[0] == 2);
    CHECK(looked.at(1).number() == 1 && looked.at(2, 1).run() == 1);
    FAILS(FB_DROPPED, "step 0 of run 1", looked.at(0));
    looked.close();
    CHECK(latest.get<double>("U").data()[1] == 1);
}

static void watching(const std::string &stream) {
    forebay::SubscriptionOptions options;
    options.stream = stream;
    options.keep_around = {1, 0};
    auto hot = forebay::subscribe("m = max(U); m > 1", options);
    forebay::ProducerOptions producing{stream};
    producing.keep = 4;
    forebay::Producer sim{producing};
    sim.array<double>("U", {2});
    const auto from = hot.wait_active();
    CHECK(from && from->run == 1 && from->step == 0);
    for (std::uint64_t number = 0; number < 3; number++) {
        const double values[] = {std::nan(""), static_cast<double>(number)};
        auto step = sim.step(number, 0.5);
        step.put("U", values, {{0}, {2}});
        step.end();
        sim.flush();
    }
    auto event = hot.next(20);
    CHECK(event && event->turn() == FB_TURN_ROSE && event->step() == 2 && event->first() == 2 && event->number() == 1);
    CHECK(event->run() == 1 && event->time() == 0.5 && event->episode() == 1 && event->missing() == 0 && event->missed() == 0);
    const forebay::Value &m = event->values().at("m");
    CHECK(m.kind == FB_VALUE_NUMBER && m.number == 2 && m.nan == 1 && !m.integer);
    CHECK(m.place && m.place->index == Extents{1} && !m.place->block && event->why().empty());
    CHECK(event->has_data());
    const auto step = event->take_data();
    CHECK(!event->has_data());
    FAILS(FB_CLOSED, "was taken out", event->take_data());
    event.reset();
    CHECK(step.get<double>("U").data()[1] == 2 && step.evaluate("count(U > 1)").integer == 1);
    CHECK(step.evaluate("any(U > 1)").holds() && !step.evaluate("all(U > 5)").holds());
    FAILS(FB_TYPE_MISMATCH, "no condition", step.evaluate("max(U)").holds());
    CHECK(step.evaluate("argmax(U)").place->index == Extents{1});
    FAILS(FB_NOT_FOUND, "Did you mean 'max'?", step.evaluate("maxx(U)"));
    CHECK(hot.cursor() == 1 && hot.name().size() > 0);
    FAILS(FB_TIMEOUT, "has come in time", hot.next(0.05));
    forebay::Admin admin;
    CHECK(admin.subscriptions().find(hot.name()) != std::string::npos);
    hot.pause();
    hot.resume();
    admin.change_subscription(hot.name(), FB_CHANGE_REMOVE);
    CHECK(!hot.next(20));
    hot.close();
    forebay::Space space;
    const float parts[] = {1, 5, 2};
    space.put(stream, {3}, 7, parts, {{0}, {3}});
    CHECK(space.evaluate("argmax(`" + stream + "`)", 7, 20).place->index == Extents{1});
    space.remove(stream, 7);
}

static void places(const std::string &stream) {
    auto reader = consumer(stream);
    auto sim = producer(stream);
    forebay::FieldOptions about;
    about.spacing = {0.5, 2};
    sim.array<double>("U", {2, 3}, about);
    sim.particles("ions", {{"x", dtype<double>, 2}});
    sim.rank_bounds(2);
    const double values[] = {0, 1, 2, 3, 4, 5};
    auto open = sim.step(0);
    open.put("U", values, {{0, 0}, {2, 3}});
    open.put("ions/x", values, {{}, {3, 2}});
    open.put_rank_bounds({{0, 0}, {1, 2}}, {{-1, 0}, {2, 2}});
    open.end();
    const auto step = reader.next();
    const auto box = step->bounds("U", step->blocks<double>("U")[0]);
    CHECK(box.low[0] == -0.25 && box.high[1] == 5);
    CHECK(step->rank_bounds(0, 2).high[1] == 2 && step->rank_bounds(0, 2, true).low[0] == -1);
    CHECK(step->row_count("ions/x") == 3);
    const auto rows = step->rows<double>("ions/x", 1, 2, 2);
    CHECK(rows(0, 0) == 2 && rows(1, 1) == 5);
    FAILS(FB_OUT_OF_BOUNDS, "ions/x", step->rows<double>("ions/x", 2, 2, 2));
}

static void polling(const std::string &stream) {
    auto reader = consumer(stream);
    CHECK(!reader.poll() && !reader.ended());
    auto coming = reader.next_async();
    {
        auto sim = producer(stream);
        sim.array<double>("U", {1});
        for (std::uint64_t number = 0; number < 2; number++) {
            const double value = static_cast<double>(number);
            auto step = sim.step(number);
            step.put("U", &value, {{0}, {1}});
            step.end();
        }
        const auto first = coming.get();
        CHECK(first && first->number() == 0);
        std::optional<forebay::Step> second;
        while (!(second = reader.poll())) CHECK(!reader.ended());
        CHECK(second->get<double>("U").data()[0] == 1);
        sim.close();
    }
    while (!reader.ended()) CHECK(!reader.poll());
    CHECK(!reader.next_async().get());
}

static void errors(const std::string &stream) {
    forebay::ProducerOptions options{stream};
    options.rank = 2;
    FAILS(FB_INVALID, "rank 2 of 1", forebay::Producer{options});
    options.rank = 0;
    options.group = "/nonexistent/group.json";
    FAILS(FB_CONNECTION_FILE, "/nonexistent/group.json", forebay::Producer{options});
    auto sim = producer(stream);
    FAILS(FB_OUT_OF_BOUNDS, "dims has 1", {
        forebay::FieldOptions about;
        about.dims = {"x"};
        sim.array<double>("U", {2, 3}, about);
    });
    sim.array<double>("U", {2, 3});
    // A step whose life an exception ends is not ended: it would be told as whole.
    FAILS(FB_NOT_FOUND, "'W'", {
        const double value = 0;
        auto step = sim.step(0, 0);
        step.put("W", &value, {{0}, {1}});
    });
    FAILS(FB_STEP_ORDER, "step 0", sim.step(1, 0));
    forebay::check(fb_producer_end(sim.get()));
    sim.step(1, 0).end();
    // A reader without a writer, and one that is moved about.
    std::vector<forebay::Consumer> readers;
    readers.push_back(consumer(stream + " that never is"));
    FAILS(FB_TIMEOUT, "that never is", readers.back().next(0.01));
    auto other = producer(stream + " moved");
    sim = std::move(other);
    sim.close();
}

int main(int argc, char **argv) {
    static const std::map<std::string, void (*)(const std::string &)> cases = {
        {"types", types}, {"boxes", boxes}, {"attributes", attributes}, {"holes", holes}, {"in_place", in_place}, {"particles", particles},
        {"fields", fields}, {"contracts", contracts}, {"cohorts", cohorts}, {"looking", looking}, {"watching", watching}, {"polling", polling}, {"places", places}, {"space", space}, {"ends", ends}, {"errors", errors}};
    try {
        cases.at(argc == 2 ? argv[1] : "")(argv[1]);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
