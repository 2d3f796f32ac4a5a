// Forebay for C++17: what forebay.h offers, with objects that clean up and errors that are thrown.
//
// SPDX-License-Identifier: Apache-2.0
//
// Header only; link with -lforebay.  In a simulation:
//
//     forebay::Producer sim(options);                                   // forebay::ProducerOptions
//     sim.array<double>("U", {nz, ny, nx});
//     for (...) {
//         auto step = sim.step(number, time);                           // forebay::OpenStep
//         step.put("U", data, {{offset}, {shape}});                     // forebay::Box
//         step.end();
//     }
//     sim.close();
//
// In a reader:
//
//     forebay::Consumer viewer(options);                                // forebay::ConsumerOptions
//     while (auto step = viewer.next()) {                               // forebay::Step
//         forebay::Array<double> plane = step->get<double>("U", {{offset}, {shape}});
//     }
//
// A call that fails throws forebay::Error: kind() is one of FB_..., what() says what failed, on what, and
// what to do.  Arrays are row-major.  Handles can be moved, not copied.  What is said of threads and of
// fork() in forebay.h holds here too.
#ifndef FOREBAY_HPP
#define FOREBAY_HPP

#include <algorithm>
#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "forebay.h"

namespace forebay {

// ---- errors -----------------------------------------------------------------------------------

class Error : public std::runtime_error {
public:
    Error(int kind, const std::string &text, std::optional<std::uint32_t> server = {})
        : std::runtime_error(text), kind_(kind), server_(server) {}
    // One of fb_result, but FB_OK.
    int kind() const noexcept { return kind_; }
    // Whether the same call may succeed later although you have changed nothing.
    bool is_retryable() const noexcept { return fb_result_is_retryable(kind_) != 0; }
    const char *name() const noexcept { return fb_result_name(kind_); }
    // The number of the server that it is about: one that could not be reached, did not answer in time or is not there, or that
    // held what is lost.  None if it is about no server.
    std::optional<std::uint32_t> server() const noexcept { return server_; }

private:
    int kind_;
    std::optional<std::uint32_t> server_;
};

// Throws if a call of the C interface failed.
inline void check(int result) {
    if (result == FB_OK) return;
    const std::int64_t server = fb_error_server();
    throw Error(result, fb_error(), server < 0 ? std::nullopt : std::optional(static_cast<std::uint32_t>(server)));
}

// ---- element types ----------------------------------------------------------------------------

// The dtype of a C++ type.  Specialise it for a type of your own that has the same bits.
template <class T, class = void> struct dtype_of;
template <> struct dtype_of<bool> : std::integral_constant<std::int32_t, FB_BOOL> {};
template <> struct dtype_of<float> : std::integral_constant<std::int32_t, FB_F32> {};
template <> struct dtype_of<double> : std::integral_constant<std::int32_t, FB_F64> {};
template <> struct dtype_of<std::complex<float>> : std::integral_constant<std::int32_t, FB_C64> {};
template <> struct dtype_of<std::complex<double>> : std::integral_constant<std::int32_t, FB_C128> {};
// Integers by their size, since `long` and `long long` may both have 64 bits.
template <class T>
struct dtype_of<T, std::enable_if_t<std::is_integral_v<T>>>
    : std::integral_constant<std::int32_t, (sizeof(T) == 1   ? (std::is_signed_v<T> ? FB_I8 : FB_U8)
                                            : sizeof(T) == 2 ? (std::is_signed_v<T> ? FB_I16 : FB_U16)
                                            : sizeof(T) == 4 ? (std::is_signed_v<T> ? FB_I32 : FB_U32)
                                                             : (std::is_signed_v<T> ? FB_I64 : FB_U64))> {};

// The time of a step that has none.
inline constexpr double no_time = std::numeric_limits<double>::quiet_NaN();

// One number for each dimension, slowest first.
using Extents = std::vector<std::uint64_t>;
using Strides = std::vector<std::int64_t>;

// ---- descriptions -----------------------------------------------------------------------------

// Where a run is: after a restart from a checkpoint the last step that is still true, or where a reader goes on.
struct Cursor {
    std::uint64_t run = 0, step = 0;
};

// generated from interface/forebay.toml: options producer
// How to open a producer.
struct ProducerOptions {
    // The name under which readers find the simulation's output.
    std::string stream;
    // The group: a connection file's path, a group's name, or the file's text; by default FOREBAY_GROUP says.
    std::string group = {};
    // This rank, counted from 0.
    std::uint32_t rank = 0;
    // How many ranks there are; all of them must open the stream.
    std::uint32_t size = 1;
    // What becomes of closed steps when readers or memory cannot keep up: FB_POLICY_DROP_OLDEST (they are counted,
    // readers see a gap), FB_POLICY_BLOCK (puts wait for room) or FB_POLICY_LATEST.
    std::int32_t policy = FB_POLICY_DROP_OLDEST;
    // How many closed steps are kept although nobody reads them.
    std::uint32_t keep = 0;
    // Seconds that any wait may take: more than 0; infinity waits for ever.
    double timeout = 30;
    // How blocks travel: "auto" (shared memory where the server is on this host, else TCP), "shm" or "tcp".
    std::string transport = "auto";
    // What to do when the home server is gone, and no other one takes this rank within two seconds: FB_ON_LOSS_SKIP
    // (the simulation goes on unstaged: fb_producer_lost tells). With FB_ON_LOSS_FAIL a call waits for another one
    // until `timeout`, and then fails with FB_UNREACHABLE; so it does where something of the open step is lost.
    std::int32_t on_loss = FB_ON_LOSS_SKIP;
    // Which server holds a block: the rank's home, which is on its host if any is (FB_PLACEMENT_NEAREST), a server by
    // the block's id, so that they are spread evenly (FB_PLACEMENT_BY_BLOCK), or the one that a function of a
    // fb_to_place names. A block that the home does not hold costs a second question. Blocks of up to 1 KiB travel
    // with the step and are not placed.
    std::int32_t placement = FB_PLACEMENT_NEAREST;
    fb_place_function place = nullptr;
    void *place_context = nullptr;
    // After a restart from a checkpoint: the run, and its last step that is still true.
    std::optional<Cursor> continues = {};
    // Bytes of closed steps that may wait for readers before the policy drops some (default 1 GiB).
    std::uint64_t queue_bytes = std::uint64_t(1) << 30;
    // How many servers hold each block, 1 to 8: all but one of them may die. A copy on another host is preferred; on
    // one host it costs almost nothing, since the servers share the memory.
    std::uint32_t replicas = 1;
    // With copies, what is safe when: what was put once the step has ended or fb_flush has returned
    // (FB_DURABILITY_LOCAL), or each block once its put has returned (FB_DURABILITY_REPLICATED).
    std::int32_t durability = FB_DURABILITY_LOCAL;
    // How many readers with different names are to be attached before the first step of the run begins; FB_TIMEOUT at
    // the deadline names those that have come. Two codes that read each other both need it from their first step.
    std::uint32_t wait_for_readers = 0;
    // What names the job that the ranks belong to, the same for all of them: ranks of two jobs never make one run. By
    // default as the launcher says (PMIx, Slurm, Open MPI, MPICH on one host); where it says nothing, ranks are told
    // apart by their numbers alone. A program that uses MPI opens its ranks by its communicator instead
    // (fb_producer_open_mpi).
    std::string job = {};
    // What this rank is called in errors, by `status` and in logs; by default its host and process say which it is.
    std::string name = {};
    // The number of the first step, or of one before it: with `stride` it says which numbers steps have. Readers'
    // periods count the steps from there on. A step with another number is refused.
    std::uint64_t first = 0;
    // The distance between the numbers of two steps: 10 where a simulation hands over each tenth of its iterations.
    std::uint64_t stride = 1;
};
// end of what is generated

// generated from interface/forebay.toml: field options
// What may be said of a field beside its name, type and shape.
struct FieldOptions {
    // What its values belong to: FB_ASSOCIATION_CELL or FB_ASSOCIATION_VERTEX of the mesh.
    std::int32_t association = FB_ASSOCIATION_CELL;
    // Offered at every so many of the producer's steps, the first of them among these.
    std::uint32_t every = 1;
    // The names of its dimensions, in the order of its shape.
    std::vector<std::string> dims = {};
    // The distance of neighbours, in each dimension.
    std::vector<double> spacing = {};
    // Where the first element lies, in each dimension.
    std::vector<double> origin = {};
    // The units of its values.
    std::string units = {};
    // Whether the domain goes on with its first elements behind its last ones, in each dimension.
    std::vector<std::int32_t> periodic = {};
    // How many elements of a refinement level lie where one of the level below does, in each dimension.
    std::vector<std::uint32_t> refinement = {};
    // Whether it belongs to the run and not to its steps, as the coordinates of a mesh or a mask do: it is declared
    // before the first step, put once in that, and given to every reader with its first step, whatever the reader
    // asked for.
    bool is_static = false;
};
// end of what is generated

// A field of a particle species.
struct Property {
    std::string name;
    std::int32_t dtype;     // dtype_of<T>::value
    std::size_t ndim = 1;   // 2: vectors
    FieldOptions options = {};
};

// Where a block lies, and how its array lies in memory: as in fb_block.
struct Box {
    Extents offset, shape; // of the interior
    Extents ghost_low = {}, ghost_high = {};
    Strides strides = {}; // bytes; empty: dense
    std::uint64_t number = 0;
    std::uint32_t level = 0;
};

// A block of a field that has no global shape.
inline Box unplaced(Extents shape) { return Box{{}, std::move(shape)}; }

// One field that a consumer needs, or all fields of a particle species.
struct Need {
    std::string field;
    std::int32_t dtype = 0;       // 0: any
    std::uint32_t every = 1;      // every so many of the steps at which the producer offers it
    std::uint64_t first = 0;      // the first of them is the first that is offered from this step on
    bool optional = false;        // it may be declared later, or never
    // The part of its global shape that is needed, and that leaves the simulation: where it begins, how many elements it has, and
    // every how many; reading anything else throws NotCovered.  Empty: all of it; an empty stride: 1.
    Extents offset = {}, shape = {}, stride = {};
    std::int32_t stats = FB_STATS_NONE; // FB_STATS_ALONG, or FB_STATS_ALONE: no data leaves the simulation
};

// generated from interface/forebay.toml: options consumer
// How to open a consumer.
struct ConsumerOptions {
    // The name that the producer gave. It need not exist yet.
    std::string stream;
    // The group: a connection file's path, a group's name, or the file's text; by default FOREBAY_GROUP says.
    std::string group = {};
    // What is needed, by default all fields.
    std::vector<Need> fields = {};
    // Seconds that the reader waits for a run to begin, and for a server's answer: more than 0; infinity waits for
    // ever. While ranks of a run live it waits for their next step however long that takes.
    double timeout = 30;
    // How blocks travel: "auto" (shared memory where the server is on this host, else TCP), "shm" or "tcp".
    std::string transport = "auto";
    // every so many of the steps at which the producer offers a field, where no `fields` are given.
    std::uint32_t every = 1;
    // How many steps may be held at once, 1 to 1024. More wait in the stream, under its policy.
    std::uint32_t window = 4;
    // Whether to go on with the next run when the simulation is restarted.
    bool follow = false;
    // With which step to begin: FB_START_NEXT, the next step that begins; FB_START_OLDEST, the oldest that the stream
    // keeps; FB_START_LATEST, the newest that is held; FB_START_HELD, those that are held now and none that comes
    // later, so that nothing is demanded of the simulation; FB_START_RUN, the first step of a run: of the one that is
    // there, if it has begun none yet, else of the next one, whatever ran before; FB_START_RESUME, where the last
    // reader of this `name` has stopped, as the group knows, with the next step that begins if there was none: what
    // it had not finished with when it died is given again; or a cursor: where an earlier reader of the stream
    // stopped, in this process or another, as fb_consumer_cursor tells. Steps that are held no longer are left out,
    // and counted as `missed` with the first one that comes, as far as the group knows. FB_NOT_FOUND if the stream
    // has had no such run.
    std::int32_t start = FB_START_NEXT;
    Cursor cursor = {};
    // Bytes of earlier steps that arrays may keep in the servers' memory. Beyond that the blocks of further steps are
    // copied, so that a reader that collects arrays cannot fill the servers. The arrays of one step may be kept
    // whatever its size (default 1 GiB).
    std::uint64_t pin_bytes = std::uint64_t(1) << 30;
    // Which of the steps that wait for it the reader is given: FB_TAKE_ALL of them, in order; or the FB_TAKE_LATEST,
    // for a live view: then `next` gives the newest closed step and counts those passed over as `missed`. Neither the
    // simulation nor other readers notice, whatever the stream's policy.
    std::int32_t take = FB_TAKE_ALL;
    // What this reader is called: by simulations that wait for their readers (`wait_for_readers`), in errors, by
    // `status` and in logs. The ranks of a parallel reader have one name, which no other parallel reader of the
    // stream has.
    std::string name = {};
    // Of a parallel reader: this rank, counted from 0.
    std::uint32_t rank = 0;
    // How many ranks the reader has. They begin once all have come, have one position in the stream, and are given
    // the same steps in the same order; a step is held until the last rank has released it.
    std::uint32_t size = 1;
    // Of a parallel reader: what the other ranks do when one dies, FB_ON_RANK_LOSS_FAIL (they are told FB_LOST, which
    // names it) or FB_ON_RANK_LOSS_GO_ON (without it: what it had not finished with, nobody reads).
    std::int32_t on_loss = FB_ON_RANK_LOSS_FAIL;
    // Of a parallel reader: which blocks are this rank's, as fb_step_mine tells. "all"; "ranks", those of whole ranks
    // of the simulation, so that fields which belong together stay so; "round-robin"; "balanced", by bytes; "slab", a
    // slab of each field that has a global shape, cut along its first dimension that is long enough; "host+ranks",
    // "host+round-robin" or "host+balanced", where each rank is given first what lies on its own host.
    std::string assign = "all";
    // Whether the steps are shared out among all readers of this `name`: FB_SHARE_ON_DEMAND, each step goes to the
    // reader that has asked for one first; FB_SHARE_ROUND_ROBIN, to the next in turn. Readers come and go; a step
    // with which one that dies had not finished is given to another one, which is told how often that has happened
    // (`attempt`). A reader has finished with a step when it releases it.
    std::int32_t share = FB_SHARE_NONE;
};
// end of what is generated

// generated from interface/forebay.toml: options space
// How to open a space.
struct SpaceOptions {
    // The group: a connection file's path, a group's name, or the file's text; by default FOREBAY_GROUP says.
    std::string group = {};
    // Seconds that any wait may take: more than 0; infinity waits for ever.
    double timeout = 30;
    // How blocks travel: "auto" (shared memory where the server is on this host, else TCP), "shm" or "tcp".
    std::string transport = "auto";
    // How many servers hold each array that this handle puts, 1 to 8: all but one of them may die. FB_INVALID if the
    // group has fewer.
    std::uint32_t replicas = 1;
    // What this handle is called by `status` and in logs; by default its host and process say which it is.
    std::string name = {};
};
// end of what is generated

// generated from interface/forebay.toml: options admin
// How to look after a group.
struct AdminOptions {
    // The group: a connection file's path, a group's name, or the file's text; by default FOREBAY_GROUP says.
    std::string group = {};
    // Seconds that each call may take. By default 30; 3 for a status; and 120 each for loading a pipeline's code and
    // for starting its workers. Below 0: by default.
    double timeout = -1;
    // How blocks travel: "auto" (shared memory where the server is on this host, else TCP), "shm" or "tcp".
    std::string transport = "auto";
    // What this handle is called by `status` and in logs; by default its host and process say which it is.
    std::string name = {};
};
// end of what is generated

// An attribute as it is read: one value, or a list.  Whole numbers are std::int64_t, or std::uint64_t if one of them is above
// all of those.
using Attribute =
    std::variant<bool, std::int64_t, double, std::string, std::vector<bool>, std::vector<std::int64_t>, std::vector<double>,
                 std::vector<std::string>, std::uint64_t, std::vector<std::uint64_t>, std::complex<double>,
                 std::vector<std::complex<double>>>;

// What part of a field is read.
struct Selection {
    Extents offset, shape;
    Extents every = {}; // every so many elements; empty: 1
};

// A box in space: the lowest and the highest place in each dimension.
struct Bounds {
    std::vector<double> low, high;
};

// A dense row-major array of one's own.
template <class T> struct Array {
    std::unique_ptr<T[]> values;
    Extents shape;

    std::size_t size() const {
        std::size_t n = 1;
        for (std::uint64_t extent : shape) n *= static_cast<std::size_t>(extent);
        return n;
    }
    T *data() { return values.get(); }
    const T *data() const { return values.get(); }
    T *begin() { return data(); }
    T *end() { return data() + size(); }
    const T *begin() const { return data(); }
    const T *end() const { return data() + size(); }
    // The element at an index: one number for each dimension, slowest first.
    template <class... I> const T &operator()(I... index) const { return values[at(index...)]; }
    template <class... I> T &operator()(I... index) { return values[at(index...)]; }

private:
    template <class... I> std::size_t at(I... index) const {
        std::size_t place = 0, d = 0;
        ((place = place * static_cast<std::size_t>(shape[d++]) + static_cast<std::size_t>(index)), ...);
        return place;
    }
};

// What a field is at a step.
struct FieldInfo {
    std::string name;
    std::int32_t dtype = 0; // FB_...
    std::size_t ndim = 0;
    bool placed = false;                // whether it has a global shape
    Extents shape = {};                 // the global shape; empty if it has none
    std::vector<std::string> dims = {}; // slowest first; empty if the producer gave none, as the next two
    std::vector<double> spacing = {}, origin = {};
    std::string units = {};
    std::int32_t association = FB_ASSOCIATION_CELL;
    std::uint32_t every = 1; // offered at the steps whose number is a multiple of this
    std::vector<bool> periodic = {};    // whether the domain goes on with its first elements behind its last ones
    Extents refinement = {};            // how many elements of a level lie where one of the level below does; 0: not said
    bool is_static = false;             // whether it belongs to the run, and not to this step alone
};

// Of a block's interior, or of a whole field.  Infinities are values; NaN are counted, and take no part in the rest: if there are
// only such, `min`, `max` and `variance` are NaN.  `min_bits` and `max_bits` are elements of the field's own type, in their
// first bytes.
struct Stats {
    double min, max, sum, variance; // with `count` as divisor
    std::uint64_t count, nan, min_bits, max_bits;
};

// A block of a step, shown where it lies; valid while the step lives.
template <class T> struct View {
    const T *data; // dense row-major, of shape + ghost_low + ghost_high
    Extents offset, shape, ghost_low, ghost_high;
    Extents step;               // how far apart its elements lie: 1, but where the contract's part has a stride
    std::uint32_t rank, level;
    std::uint64_t number;
    std::uint32_t server;       // the number of the one that holds it
    std::optional<Stats> stats; // if the contract asks for them: Need::stats
    // The smallest and the largest element of each tile of its interior, one after the other, if it has more than one tile:
    // fb_view says what one is.
    const T *tile_bounds;
    std::uint64_t tiles;
};

// ---- producer ---------------------------------------------------------------------------------

// Where an element lies.
struct Place {
    Extents index;            // in the global array; in its block if `block` is given
    std::uint32_t level = 0;  // its refinement level
    // Of a block that has no place in a global array: who put it, and its number.
    std::optional<std::pair<std::uint32_t, std::uint64_t>> block = {};
};

// What an expression gives, or one of the values of an event.
struct Value {
    std::int32_t kind = FB_VALUE_UNKNOWN;
    double number = 0;                         // a condition as 0 or 1
    std::optional<std::int64_t> integer = {};  // of a number that is an integer
    std::uint64_t nan = 0;                     // how many of the elements were no numbers
    std::optional<Place> place = {};           // where an extreme lies

    // Whether a condition holds; throws FB_TYPE_MISMATCH for what is none.
    bool holds() const {
        if (kind != FB_VALUE_CONDITION) throw Error(FB_TYPE_MISMATCH, "the expression gives no condition");
        return number != 0;
    }
};

namespace detail {

inline const char *or_null(const std::string &text) { return text.empty() ? nullptr : text.c_str(); }
template <class T> const T *or_null(const std::vector<T> &numbers) { return numbers.empty() ? nullptr : numbers.data(); }

inline void same_length(const char *what, std::size_t length, std::size_t ndim) {
    if (length != 0 && length != ndim)
        throw Error(FB_OUT_OF_BOUNDS, std::string(what) + " has " + std::to_string(length) + " numbers for " +
                                          std::to_string(ndim) + " dimensions");
}

inline fb_block block(const std::string &field, std::int32_t dtype, const void *data, const Box &box) {
    const std::size_t ndim = box.shape.size();
    same_length("offset", box.offset.size(), ndim);
    same_length("ghost_low", box.ghost_low.size(), ndim);
    same_length("ghost_high", box.ghost_high.size(), ndim);
    same_length("strides", box.strides.size(), ndim);
    fb_block block = FB_BLOCK_INIT;
    block.field = field.c_str();
    block.number = box.number;
    block.data = data;
    block.dtype = dtype;
    block.ndim = static_cast<std::uint32_t>(ndim);
    block.level = box.level;
    block.offset = or_null(box.offset);
    block.shape = or_null(box.shape);
    block.ghost_low = or_null(box.ghost_low);
    block.ghost_high = or_null(box.ghost_high);
    block.strides = or_null(box.strides);
    return block;
}

// `field` keeps what the struct points at, but for what `options` and `shape` hold.
struct FieldStruct {
    FieldStruct(const std::string &name, std::int32_t dtype, std::size_t ndim, const Extents *shape, const FieldOptions &options) {
        field.name = name.c_str();
        field.dtype = dtype;
        field.ndim = static_cast<std::uint32_t>(ndim);
        field.shape = shape ? or_null(*shape) : nullptr;
        // generated from interface/forebay.toml: given field
        field.association = options.association;
        field.every = options.every;
        same_length("dims", options.dims.size(), ndim);
        for (const std::string &label : options.dims) dims.push_back(label.c_str());
        field.dims = or_null(dims);
        same_length("spacing", options.spacing.size(), ndim);
        field.spacing = or_null(options.spacing);
        same_length("origin", options.origin.size(), ndim);
        field.origin = or_null(options.origin);
        field.units = or_null(options.units);
        same_length("periodic", options.periodic.size(), ndim);
        field.periodic = or_null(options.periodic);
        same_length("refinement", options.refinement.size(), ndim);
        field.refinement = or_null(options.refinement);
        field.is_static = options.is_static ? 1 : 0;
        // end of what is generated
    }

    std::vector<const char *> dims;
    fb_field field = FB_FIELD_INIT;
};

inline fb_selection selection(const std::string &field, std::int32_t dtype, const Selection &selection, void *data, const Strides &strides) {
    const std::size_t ndim = selection.shape.size();
    same_length("offset", selection.offset.size(), ndim);
    same_length("every", selection.every.size(), ndim);
    same_length("strides", strides.size(), ndim);
    fb_selection given = FB_SELECTION_INIT;
    given.field = field.c_str();
    given.dtype = dtype;
    given.ndim = static_cast<std::uint32_t>(ndim);
    given.offset = or_null(selection.offset);
    given.shape = or_null(selection.shape);
    given.every = or_null(selection.every);
    given.data = data;
    given.strides = or_null(strides);
    return given;
}

// generated from interface/forebay.toml: given producer
// As C takes them; what they point at stays with the other ones.
inline fb_producer_options given(const ProducerOptions &options) {
    fb_producer_options given = FB_PRODUCER_OPTIONS_INIT;
    given.group = or_null(options.group);
    given.stream = options.stream.c_str();
    given.rank = options.rank;
    given.size = options.size;
    given.policy = options.policy;
    given.keep = options.keep;
    given.timeout = options.timeout;
    given.transport = options.transport.c_str();
    given.on_loss = options.on_loss;
    given.placement = options.placement;
    given.place = options.place;
    given.place_context = options.place_context;
    if (options.continues) {
        given.continues_run = options.continues->run;
        given.continues_step = options.continues->step;
    }
    given.queue_bytes = options.queue_bytes;
    given.replicas = options.replicas;
    given.durability = options.durability;
    given.wait_for_readers = options.wait_for_readers;
    given.job = or_null(options.job);
    given.name = or_null(options.name);
    given.first = options.first;
    given.stride = options.stride;
    return given;
}
// end of what is generated

// As C takes them; what they point at stays with the other ones.
inline std::vector<fb_need> given(const std::vector<Need> &fields) {
    std::vector<fb_need> needs;
    for (const Need &need : fields) {
        fb_need given = FB_NEED_INIT;
        given.field = need.field.c_str();
        given.dtype = need.dtype;
        given.every = need.every;
        given.first = need.first;
        given.optional = need.optional;
        const std::size_t ndim = need.shape.size();
        same_length("offset", need.offset.size(), ndim);
        same_length("stride", need.stride.size(), ndim);
        given.ndim = static_cast<std::uint32_t>(ndim);
        given.offset = or_null(need.offset);
        given.shape = or_null(need.shape);
        given.stride = or_null(need.stride);
        given.stats = need.stats;
        needs.push_back(given);
    }
    return needs;
}

// generated from interface/forebay.toml: given consumer
// As C takes them; what they point at stays with both.
inline fb_consumer_options given(const ConsumerOptions &options, const std::vector<fb_need> &fields) {
    fb_consumer_options given = FB_CONSUMER_OPTIONS_INIT;
    given.group = or_null(options.group);
    given.stream = options.stream.c_str();
    given.fields_count = static_cast<std::uint32_t>(fields.size());
    given.fields = or_null(fields);
    given.timeout = options.timeout;
    given.transport = options.transport.c_str();
    given.every = options.every;
    given.window = options.window;
    given.follow = options.follow ? 1 : 0;
    given.start = options.start;
    given.start_run = options.cursor.run;
    given.start_step = options.cursor.step;
    given.pin_bytes = options.pin_bytes;
    given.take = options.take;
    given.name = or_null(options.name);
    given.rank = options.rank;
    given.size = options.size;
    given.on_loss = options.on_loss;
    given.assign = options.assign.c_str();
    given.share = options.share;
    return given;
}
// end of what is generated

// generated from interface/forebay.toml: given space
// As C takes them; what they point at stays with the other ones.
inline fb_space_options given(const SpaceOptions &options) {
    fb_space_options given = FB_SPACE_OPTIONS_INIT;
    given.group = or_null(options.group);
    given.timeout = options.timeout;
    given.transport = options.transport.c_str();
    given.replicas = options.replicas;
    given.name = or_null(options.name);
    return given;
}
// end of what is generated

// generated from interface/forebay.toml: given admin
// As C takes them; what they point at stays with the other ones.
inline fb_admin_options given(const AdminOptions &options) {
    fb_admin_options given = FB_ADMIN_OPTIONS_INIT;
    given.group = or_null(options.group);
    given.timeout = options.timeout;
    given.transport = options.transport.c_str();
    given.name = or_null(options.name);
    return given;
}
// end of what is generated

template <class T> Array<T> new_array(const Extents &shape) {
    Array<T> array{nullptr, shape};
    array.values.reset(new T[array.size()]);
    return array;
}

template <class T>
inline constexpr bool is_complex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

// Hands `values` to `set` as the C interface takes them.
template <class T, class Set> void with_values(const T *values, std::size_t count, Set set) {
    if constexpr (std::is_same_v<T, bool>) {
        const std::vector<std::uint8_t> given(values, values + count);
        set(FB_BOOL, given.data());
    } else if constexpr (std::is_integral_v<T>) {
        using Given = std::conditional_t<std::is_unsigned_v<T>, std::uint64_t, std::int64_t>;
        const std::vector<Given> given(values, values + count);
        set(std::is_unsigned_v<T> ? FB_U64 : FB_I64, given.data());
    } else if constexpr (is_complex<T>) {
        const std::vector<std::complex<double>> given(values, values + count);
        set(FB_C128, given.data());
    } else if constexpr (std::is_floating_point_v<T>) {
        const std::vector<double> given(values, values + count);
        set(FB_F64, given.data());
    } else {
        const std::vector<std::string> texts(values, values + count); // each ends with NUL
        std::vector<const char *> given;
        for (const std::string &text : texts) given.push_back(text.c_str());
        set(FB_TEXT, given.data());
    }
}

inline Attribute attribute(const fb_attribute &told) {
    const auto as = [&](auto one) -> Attribute {
        using T = decltype(one);
        using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t,
                                          std::conditional_t<std::is_same_v<T, std::string>, const char *, T>>;
        const auto *first = static_cast<const Stored *>(told.values);
        if (told.list) return std::vector<T>(first, first + told.count);
        return T(*first);
    };
    switch (told.dtype) {
    case FB_BOOL: return as(bool());
    case FB_I64: return as(std::int64_t());
    case FB_U64: return as(std::uint64_t());
    case FB_F64: return as(double());
    case FB_C128: return as(std::complex<double>());
    default: return as(std::string());
    }
}

inline Value value(const fb_value &told) {
    Value value;
    value.kind = told.kind;
    value.number = told.number;
    if (told.is_integer) value.integer = told.integer;
    value.nan = told.nan;
    if (told.has_place) {
        value.place = Place{Extents(told.index, told.index + told.ndim), told.level};
        if (told.in_block) value.place->block = {told.rank, told.block};
    }
    return value;
}

struct CloseSpace {
    void operator()(fb_space *space) const noexcept { fb_space_close(space); }
};
struct CloseStream {
    void operator()(fb_stream *stream) const noexcept { fb_stream_close(stream); }
};
struct CloseSubscription {
    void operator()(fb_subscription *subscription) const noexcept { fb_subscription_close(subscription); }
};
struct ReleaseEvent {
    void operator()(fb_event *event) const noexcept { fb_event_release(event); }
};
struct CloseAdmin {
    void operator()(fb_admin *admin) const noexcept { fb_admin_close(admin); }
};
// Whether an exception ends the life of what was made before it: then a rank has crashed.
class Unwinding {
public:
    explicit operator bool() const noexcept { return std::uncaught_exceptions() > thrown_; }

private:
    int thrown_ = std::uncaught_exceptions();
};
struct ClosePipeline {
    Unwinding unwinding;
    void operator()(fb_pipeline *pipeline) const noexcept {
        unwinding ? fb_pipeline_abandon(pipeline) : fb_pipeline_close(pipeline);
    }
};
struct FreeRequest {
    void operator()(fb_request *request) const noexcept { fb_request_free(request); }
};
struct FreeText {
    void operator()(char *text) const noexcept { fb_free(text); }
};
struct CloseProducer {
    Unwinding unwinding;
    void operator()(fb_producer *producer) const noexcept {
        unwinding ? fb_producer_abandon(producer) : fb_producer_close(producer);
    }
};
struct CloseConsumer {
    Unwinding unwinding;
    void operator()(fb_consumer *consumer) const noexcept {
        unwinding ? fb_consumer_abandon(consumer) : fb_consumer_close(consumer);
    }
};
struct ReleaseStep {
    Unwinding unwinding;
    void operator()(fb_step *step) const noexcept { unwinding ? fb_step_give_back(step) : fb_step_release(step); }
};

} // namespace detail

// Memory of a staged block, to compute into.  Given back, unpublished, unless it is committed.
template <class T> class Allocation {
public:
    Allocation(fb_producer *producer, void *data) : producer_(producer), data_(data) {}
    Allocation(Allocation &&other) noexcept : producer_(other.producer_), data_(std::exchange(other.data_, nullptr)) {}
    Allocation &operator=(Allocation &&) = delete;
    ~Allocation() { fb_abort(producer_, data_); }

    // Null if nothing wants the field: then there is nothing to compute.
    T *data() const noexcept { return static_cast<T *>(data_); }
    explicit operator bool() const noexcept { return data_ != nullptr; }
    // Publishes it; the memory must not be touched afterwards.
    void commit() { check(fb_commit(producer_, std::exchange(data_, nullptr))); }

private:
    fb_producer *producer_;
    void *data_;
};

namespace detail {

// What can be done in a step that is open; `Self::get_producer()` is the rank.
template <class Self> class Puts {
public:
    // Says which part of space this rank has at the step that is open: where what is its own lies, and this with its ghosts
    // (empty: it has none).
    void put_rank_bounds(const Bounds &own, const Bounds &with_ghosts = {}) {
        const std::size_t ndim = own.low.size();
        detail::same_length("high", own.high.size(), ndim);
        detail::same_length("ghosts' low", with_ghosts.low.size(), ndim);
        detail::same_length("ghosts' high", with_ghosts.high.size(), ndim);
        check(fb_put_rank_bounds(rank(), static_cast<std::uint32_t>(ndim), own.low.data(), detail::or_null(own.high),
                                 detail::or_null(with_ghosts.low), detail::or_null(with_ghosts.high)));
    }
    // Whether something wants the field at the step that is open.  Never waits.
    bool demanded(const std::string &field) const {
        int demanded = 0;
        check(fb_demanded(rank(), field.c_str(), &demanded));
        return demanded != 0;
    }
    // Stages a block by one copy; the array is yours again on return.  Returns FB_OUTCOME_...
    template <class T> std::int32_t put(const std::string &field, const T *data, const Box &box) {
        std::int32_t outcome = FB_OUTCOME_STAGED;
        fb_block block = detail::block(field, dtype_of<T>::value, data, box);
        block.outcome = &outcome;
        check(fb_put(rank(), &block));
        return outcome;
    }
    // The same without waiting for the server's answer: the array is yours again on return, and wait(), flush()
    // or end() tell what failed.
    template <class T> std::int32_t put_async(const std::string &field, const T *data, const Box &box) {
        std::int32_t outcome = FB_OUTCOME_STAGED;
        fb_block block = detail::block(field, dtype_of<T>::value, data, box);
        block.outcome = &outcome;
        check(fb_put_async(rank(), &block));
        return outcome;
    }
    // Waits until the server holds what put_async() put.  Returns how many of those were dropped for lack of room.
    std::uint64_t wait() {
        std::uint64_t dropped = 0;
        check(fb_wait(rank(), &dropped));
        return dropped;
    }
    // Gives memory to compute into, without a copy.
    template <class T> Allocation<T> alloc(const std::string &field, const Box &box) {
        void *data = nullptr;
        const fb_block block = detail::block(field, dtype_of<T>::value, nullptr, box);
        check(fb_alloc(rank(), &block, &data));
        return Allocation<T>(rank(), data);
    }

private:
    fb_producer *rank() const { return static_cast<const Self *>(this)->get_producer(); }
};

// Makes an attribute of a value, and sends it.
template <class T, class Send>
void say_values(const std::string &key, const T *values, std::size_t count, bool list, const std::string &field, const Send &send) {
    with_values(values, count, [&](std::int32_t dtype, const void *given) {
        fb_attribute attribute = FB_ATTRIBUTE_INIT;
        attribute.field = or_null(field);
        attribute.key = key.c_str();
        attribute.dtype = dtype;
        attribute.list = list ? 1 : 0;
        attribute.count = count;
        attribute.values = given;
        send(attribute);
    });
}
template <class T, class Send>
void say(const std::string &key, const T &value, const std::string &field, const Send &send) {
    if constexpr (std::is_convertible_v<const T &, std::string_view>) {
        const std::string text(static_cast<std::string_view>(value));
        say_values(key, &text, 1, false, field, send);
    } else if constexpr (std::is_convertible_v<const T &, std::string>) {
        const std::string text = value;
        say_values(key, &text, 1, false, field, send);
    } else if constexpr (std::is_arithmetic_v<T> || is_complex<T>) {
        say_values(key, &value, 1, false, field, send);
    } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
        const auto copied = std::make_unique<bool[]>(value.size());
        for (std::size_t i = 0; i < value.size(); i++) copied[i] = value[i];
        say_values(key, copied.get(), value.size(), true, field, send);
    } else {
        say_values(key, value.data(), value.size(), true, field, send);
    }
}

// What a rank says of itself and of its fields; `Self::get_producer()` is the rank.
template <class Self> class Declares {
public:
    // Adds a field to the output contract, or changes its global shape from the next step on.
    template <class T> void array(const std::string &name, const Extents &shape, const FieldOptions &options = {}) {
        declare(name, dtype_of<T>::value, shape.size(), &shape, options);
    }
    // The same for a field whose blocks have no place in a global array.
    template <class T> void unplaced_array(const std::string &name, std::size_t ndim, const FieldOptions &options = {}) {
        declare(name, dtype_of<T>::value, ndim, nullptr, options);
    }

    // Adds a particle species: fields `species/name` that share one count.
    void particles(const std::string &species, const std::vector<Property> &properties) {
        std::vector<detail::FieldStruct> given;
        std::vector<fb_field> fields;
        given.reserve(properties.size()); // what the structs point at stays where it is
        for (const Property &property : properties) {
            given.emplace_back(property.name, property.dtype, property.ndim, nullptr, property.options);
            fields.push_back(given.back().field);
        }
        check(fb_particles(rank(), species.c_str(), fields.data(), static_cast<std::uint32_t>(fields.size()), sizeof(fb_field)));
    }
    // Declares that ranks say which part of space, of so many dimensions, they have: put_rank_bounds.  It is a field like others,
    // called "rank_bounds".
    void rank_bounds(std::uint32_t ndim, std::uint32_t every = 1) { check(fb_rank_bounds(rank(), ndim, every)); }
    // Adds a buffer: bytes, put as an unplaced block of std::uint8_t.
    void buffer(const std::string &name, std::uint32_t every = 1) { check(fb_buffer(rank(), name.c_str(), every)); }

    // Says something of the stream, or of a field, for the rest of the run: a bool, a number, a complex number, a text, or
    // a std::vector of these.
    template <class T> void attr(const std::string &key, const T &value, const std::string &field = {}) {
        detail::say(key, value, field, [this](const fb_attribute &attribute) { check(fb_attr(rank(), &attribute)); });
    }

    // Which transport was chosen: "shm" or "tcp".
    std::string transport() const {
        const char *name = nullptr;
        check(fb_producer_transport(rank(), &name));
        return name;
    }
    // The run that was joined, for a checkpoint to remember.
    std::uint64_t run() const {
        std::uint64_t run = 0;
        check(fb_producer_run(rank(), &run));
        return run;
    }
    // Why staging was given up (see FB_ON_LOSS_SKIP); nothing while all is well.
    std::optional<std::string> lost() const {
        if (fb_producer_lost(rank(), nullptr) == FB_OK) return std::nullopt;
        return std::string(fb_error());
    }
    // How many steps were begun so far while staging was given up, also when all is well again.  Never waits.
    std::uint64_t skipped() const {
        std::uint64_t skipped = 0;
        fb_producer_lost(rank(), &skipped);
        return skipped;
    }

private:
    void declare(const std::string &name, std::int32_t dtype, std::size_t ndim, const Extents *shape, const FieldOptions &options) {
        const detail::FieldStruct given(name, dtype, ndim, shape, options);
        check(fb_array(rank(), &given.field));
    }

    fb_producer *rank() const { return static_cast<const Self *>(this)->get_producer(); }
};

} // namespace detail

// A step that is begun.  It ends with end(), or with the object's life: then errors are not told.  When an
// exception ends its life the step is not ended: the producer can begin no other, and once it closes readers
// are told of the step as torn, if anything was put in it.
class OpenStep : public detail::Puts<OpenStep> {
public:
    explicit OpenStep(fb_producer *producer) : producer_(producer) {}
    OpenStep(OpenStep &&other) noexcept : producer_(std::exchange(other.producer_, nullptr)), thrown_(other.thrown_) {}
    OpenStep &operator=(OpenStep &&) = delete;
    ~OpenStep() {
        if (producer_ && std::uncaught_exceptions() == thrown_) fb_producer_end(producer_);
    }

    void end() {
        if (producer_) check(fb_producer_end(std::exchange(producer_, nullptr)));
    }
    // Says something of this step alone, as Producer::attr does of the stream.
    template <class T> void attr(const std::string &key, const T &value) {
        detail::say(key, value, {}, [this](const fb_attribute &attribute) { check(fb_attr_step(producer_, &attribute)); });
    }
    // For functions of forebay.h.
    fb_producer *get_producer() const noexcept { return producer_; }

private:
    fb_producer *producer_;
    int thrown_ = std::uncaught_exceptions();
};

// One rank of a simulation.
class Producer : public detail::Declares<Producer>, public detail::Puts<Producer> {
public:
    explicit Producer(const ProducerOptions &options) {
        const fb_producer_options given = detail::given(options);
        fb_producer *producer = nullptr;
        check(fb_producer_open(&given, &producer));
        handle_.reset(producer);
    }

    // Begins a step that ends with what is given, or is left torn by an exception.  Waits for one answer of the home
    // server, never for room.
    OpenStep step(std::uint64_t number, double time = no_time) {
        begin(number, time);
        return OpenStep(get());
    }
    // The same in two calls: between them put(), put_async(), wait(), alloc() and demanded() are for that step.
    void begin(std::uint64_t number, double time = no_time) { check(fb_producer_begin(get(), number, time)); }
    void end() { check(fb_producer_end(get())); }
    // Waits until the home server holds all that was put.
    void flush() { check(fb_flush(get())); }
    // Ends the stream for this rank and tells what went wrong.  The destructor does so without telling; where an exception
    // ends this object's life it abandons the stream.
    void close() { check(fb_producer_close(handle_.release())); }
    // Gives up this rank without closing the stream: readers are told FB_CRASHED, as if this process had ended.
    void abandon() { check(fb_producer_abandon(handle_.release())); }
    // For functions of forebay.h.
    fb_producer *get() const noexcept { return handle_.get(); }
    fb_producer *get_producer() const noexcept { return get(); }

private:
    std::unique_ptr<fb_producer, detail::CloseProducer> handle_;
};

// ---- driving a pipeline -----------------------------------------------------------------------

// What a pipeline was asked for.  When its life ends, what was asked for goes on.
class PipelineRequest {
public:
    explicit PipelineRequest(fb_request *request) : handle_(request) {}

    // Waits, `timeout` seconds at most (below 0: as in the options).  After FB_TIMEOUT it can be waited for again, and
    // after anything else it tells the same again.  Returns, of an activation, how many workers there are; of an
    // execution, 1 if they ran.
    std::uint32_t wait(double timeout = -1) {
        std::uint32_t workers = 0;
        int ran = 0;
        check(fb_request_wait(handle_.get(), timeout, &workers, &ran));
        return workers + static_cast<std::uint32_t>(ran);
    }
    // For functions of forebay.h.
    fb_request *get() const noexcept { return handle_.get(); }

private:
    std::unique_ptr<fb_request, detail::FreeRequest> handle_;
};

// One rank that drives a pipeline itself, step by step (docs/driving.md): activate, stage, execute, deactivate.  The
// pipeline must have been created with `driven`.  All ranks make the same calls, and it runs once for all of them.
class PipelineHandle : public detail::Declares<PipelineHandle>, public detail::Puts<PipelineHandle> {
public:
    // The options are those of the rank: `stream` is empty, or the pipeline's; the policy is always FB_POLICY_BLOCK.
    // `server` is the number of the one server whose worker runs alone, and which then holds what is staged; below 0: all
    // workers run.  Waits for a few answers.
    explicit PipelineHandle(const std::string &name, const ProducerOptions &options = {}, std::int64_t server = -1) {
        fb_producer_options given = detail::given(options);
        given.stream = detail::or_null(options.stream);
        fb_pipeline *pipeline = nullptr;
        check(fb_pipeline_open(&given, name.c_str(), server, &pipeline));
        handle_.reset(pipeline);
    }

    // Begins a step; returns how many workers run it, 0 if staging was given up.  Up to 4 steps may be active.
    std::uint32_t activate(std::uint64_t step, double time = no_time) {
        std::uint32_t workers = 0;
        check(fb_pipeline_activate(get(), step, time, &workers));
        return workers;
    }
    // The same without waiting for the pipeline's coordinator.
    PipelineRequest activate_async(std::uint64_t step, double time = no_time) {
        fb_request *request = nullptr;
        check(fb_pipeline_activate_async(get(), step, time, &request));
        return PipelineRequest(request);
    }
    // Stages a block of the step that was activated last, by one copy; the array is yours again on return.  Returns
    // FB_OUTCOME_...
    template <class T> std::int32_t stage(const std::string &field, const T *data, const Box &box) {
        return this->put(field, data, box);
    }
    // The same without waiting for the server's answer: execute() or deactivate() tell what failed.
    template <class T> std::int32_t stage_async(const std::string &field, const T *data, const Box &box) {
        return this->put_async(field, data, box);
    }
    // Ends the step of this rank, and has the pipeline run on it once all ranks have ended it.  Waits until that is over,
    // `timeout` seconds at most (below 0: as in the options).  Returns whether the workers ran.
    bool execute(std::uint64_t step, double timeout = -1) {
        int ran = 0;
        check(fb_pipeline_execute(get(), step, timeout, &ran));
        return ran != 0;
    }
    // The same without waiting for the execution.
    PipelineRequest execute_async(std::uint64_t step) {
        fb_request *request = nullptr;
        check(fb_pipeline_execute_async(get(), step, &request));
        return PipelineRequest(request);
    }
    // Has finished with a step.  Waits for nothing.
    void deactivate(std::uint64_t step) { check(fb_pipeline_deactivate(get(), step)); }
    // The steps that this rank has activated and not deactivated.
    std::vector<std::uint64_t> active() const {
        std::uint64_t steps[4] = {};
        std::uint32_t count = 0;
        check(fb_pipeline_active(get(), steps, &count));
        return std::vector<std::uint64_t>(steps, steps + count);
    }
    // Ends the stream for this rank and tells what went wrong; the destructor does so without telling.
    void close() { check(fb_pipeline_close(handle_.release())); }
    // Gives up this rank without closing the stream, as the destructor does where an exception ends this object's life.
    void abandon() { check(fb_pipeline_abandon(handle_.release())); }
    // For functions of forebay.h.
    fb_pipeline *get() const noexcept { return handle_.get(); }
    fb_producer *get_producer() const {
        fb_producer *producer = nullptr;
        check(fb_pipeline_producer(get(), &producer));
        return producer;
    }

private:
    std::unique_ptr<fb_pipeline, detail::ClosePipeline> handle_;
};

// ---- consumer ---------------------------------------------------------------------------------

// A closed step.  Released at the end of its life.
class Step {
public:
    explicit Step(fb_step *step) : handle_(step) { check(fb_step_info_get(step, &info_)); }

    std::uint64_t number() const noexcept { return info_.number; }
    // Physical time; `no_time`, which is not a number, if the producer gave none.
    double time() const noexcept { return info_.time; }
    std::uint64_t run() const noexcept { return info_.run; }
    std::uint64_t missed() const noexcept { return info_.missed; }
    bool rewound() const noexcept { return info_.rewound != 0; }
    bool torn() const noexcept { return info_.torn != 0; }
    // Where readers share steps: how often it was given before to one that did not finish with it.
    std::uint32_t attempt() const noexcept { return info_.attempt; }

    std::vector<std::string> fields() const {
        std::vector<std::string> names;
        const char *name = nullptr;
        while (fb_step_field_name(get(), names.size(), &name) == FB_OK) names.emplace_back(name);
        return names;
    }
    // What a field is at this step.
    FieldInfo field(const std::string &name) const {
        fb_field_info told = FB_FIELD_INFO_INIT;
        check(fb_step_field(get(), name.c_str(), &told));
        FieldInfo info;
        info.name = told.name;
        info.dtype = told.dtype;
        info.ndim = told.ndim;
        info.association = told.association;
        info.every = told.every;
        info.units = told.units;
        info.placed = told.placed != 0;
        if (told.placed) info.shape = Extents(told.shape, told.shape + told.ndim);
        if (told.has_dims) info.dims.assign(told.dims, told.dims + told.ndim);
        if (told.has_spacing) info.spacing.assign(told.spacing, told.spacing + told.ndim);
        if (told.has_origin) info.origin.assign(told.origin, told.origin + told.ndim);
        for (std::uint32_t d = 0; d < told.ndim; d++) info.periodic.push_back(told.periodic[d] != 0);
        info.refinement.assign(told.refinement, told.refinement + told.ndim);
        info.is_static = told.is_static != 0;
        return info;
    }
    // A field's global shape at this step.
    Extents shape(const std::string &name) const {
        const FieldInfo info = field(name);
        if (!info.placed)
            throw Error(FB_OUT_OF_BOUNDS,
                        "field '" + name + "' has no global shape: its blocks are read one by one, with blocks()");
        return info.shape;
    }

    // The attributes of the stream, or of a field.
    std::map<std::string, Attribute> attrs(const std::string &field = {}) const {
        std::map<std::string, Attribute> found;
        const char *key = nullptr;
        while (fb_attr_key(get(), detail::or_null(field), found.size(), &key) == FB_OK) {
            fb_attribute told = FB_ATTRIBUTE_INIT;
            check(fb_attr_get(get(), detail::or_null(field), key, &told));
            found.emplace(key, detail::attribute(told));
        }
        return found;
    }

    // Copies exactly the selected part to `data`; `strides` in bytes, empty for dense.
    template <class T> void get(const std::string &field, const Selection &selection, T *data, const Strides &strides = {}) const {
        const fb_selection given = detail::selection(field, dtype_of<T>::value, selection, data, strides);
        check(fb_get(get(), &given));
    }
    // The same, into a new array.
    template <class T> Array<T> get(const std::string &field, const Selection &selection) const {
        Array<T> array = detail::new_array<T>(selection.shape);
        get(field, selection, array.data());
        return array;
    }
    // The same of a region that may have holes: `fill` stands where nothing was put.
    template <class T> Array<T> get(const std::string &field, const Selection &selection, T fill) const {
        Array<T> array = detail::new_array<T>(selection.shape);
        std::fill(array.begin(), array.end(), fill);
        fb_selection given = detail::selection(field, dtype_of<T>::value, selection, array.data(), {});
        given.holes = FB_HOLES_LEFT;
        check(fb_get(get(), &given));
        return array;
    }
    // Where a region is filled by what was put.
    Array<bool> covered(const std::string &field, const Selection &selection) const {
        Array<bool> array = detail::new_array<bool>(selection.shape);
        const fb_selection given = detail::selection(field, FB_BOOL, selection, array.data(), {});
        check(fb_covered(get(), &given));
        return array;
    }
    // All of a field.
    template <class T> Array<T> get(const std::string &field) const {
        const Extents whole = shape(field);
        return get<T>(field, Selection{Extents(whole.size()), whole});
    }

    // The statistics of a whole field, if the contract asks for them (Need::stats); throws NotCovered otherwise.  Moves no data.
    Stats stats(const std::string &field) const {
        fb_stats found = FB_STATS_INIT;
        check(fb_step_stats(get(), field.c_str(), &found));
        return {found.min, found.max, found.sum, found.variance, found.count, found.nan, found.min_bits, found.max_bits};
    }

    // What an expression gives at this step (docs/expressions.md): see fb_step_evaluate.
    Value evaluate(const std::string &text) const {
        fb_value found = FB_VALUE_INIT;
        check(fb_step_evaluate(get(), text.c_str(), &found));
        return detail::value(found);
    }

    // How many rows a field without a global shape has: elements of its first dimension in all blocks, without ghosts.
    std::uint64_t row_count(const std::string &field) const {
        std::uint64_t count = 0;
        check(fb_step_row_count(get(), field.c_str(), &count));
        return count;
    }
    // Copies so many rows of it from `first` on, counted over all blocks in the order of ranks and numbers; `components` is how
    // many elements a row has, and 0 for a field of one dimension.
    template <class T> Array<T> rows(const std::string &field, std::uint64_t first, std::uint64_t count, std::uint64_t components = 0) const {
        const Extents shape = components == 0 ? Extents{count} : Extents{count, components};
        Array<T> array = detail::new_array<T>(shape);
        Selection selection{Extents(shape.size()), shape};
        selection.offset[0] = first;
        const fb_selection given = detail::selection(field, dtype_of<T>::value, selection, array.data(), {});
        check(fb_get_rows(get(), &given));
        return array;
    }
    // Where a block lies in space, with or without its ghosts: by the field's spacing, origin and refinement.
    template <class T> Bounds bounds(const std::string &field, const View<T> &view, bool ghosts = false) const {
        const std::size_t ndim = view.shape.size();
        fb_view given = FB_VIEW_INIT;
        given.ndim = static_cast<std::uint32_t>(ndim);
        given.level = view.level;
        std::copy(view.offset.begin(), view.offset.end(), given.offset);
        std::copy(view.shape.begin(), view.shape.end(), given.shape);
        std::copy(view.step.begin(), view.step.end(), given.step);
        std::copy(view.ghost_low.begin(), view.ghost_low.end(), given.ghost_low);
        std::copy(view.ghost_high.begin(), view.ghost_high.end(), given.ghost_high);
        Bounds found{std::vector<double>(ndim), std::vector<double>(ndim)};
        check(fb_view_bounds(get(), field.c_str(), &given, ghosts, found.low.data(), found.high.data()));
        return found;
    }
    // Which part of space, of so many dimensions, a rank of the simulation has (put_rank_bounds); with its ghosts, if wanted.
    Bounds rank_bounds(std::uint32_t rank, std::uint32_t ndim, bool ghosts = false) const {
        Bounds own{std::vector<double>(ndim), std::vector<double>(ndim)}, outer = own;
        check(fb_step_rank_bounds(get(), rank, ndim, own.low.data(), own.high.data(), outer.low.data(), outer.high.data()));
        return ghosts ? outer : own;
    }

    // The blocks of a field, without a copy where the server is on this host.
    template <class T> std::vector<View<T>> blocks(const std::string &field) const {
        return views<T>(field, fb_step_block_count, fb_step_block);
    }
    // Those that are this rank's, of a parallel reader, as `assign` in its options says; of another reader all.
    template <class T> std::vector<View<T>> mine(const std::string &field) const {
        return views<T>(field, fb_step_mine_count, fb_step_mine);
    }
    // The slab of a field that is this rank's, with assign "slab"; throws Invalid otherwise.  Moves no data.
    Selection mine_region(const std::string &field) const {
        const std::size_t ndim = this->field(field).ndim;
        Selection slab{Extents(ndim), Extents(ndim), Extents(ndim)};
        check(fb_step_mine_region(get(), field.c_str(), slab.offset.data(), slab.shape.data(), slab.every.data()));
        return slab;
    }

    // Releases the step, but has not finished with it, as when an exception ends this object's life: where readers share steps one of
    // them is given it once more; of others the next of their name begins there, unless this one releases a later step.
    void give_back() { check(fb_step_give_back(handle_.release())); }
    // For functions of forebay.h.
    fb_step *get() const noexcept { return handle_.get(); }

private:
    template <class T, class Count, class Show>
    std::vector<View<T>> views(const std::string &field, Count count_of, Show show) const {
        std::uint64_t count = 0;
        check(count_of(get(), field.c_str(), &count));
        std::vector<View<T>> views;
        for (std::uint64_t index = 0; index < count; index++) {
            fb_view view = FB_VIEW_INIT;
            check(show(get(), field.c_str(), index, &view));
            if (view.dtype != dtype_of<T>::value)
                throw Error(FB_TYPE_MISMATCH, "field '" + field + "' has another type of elements");
            const auto numbers = [&](const std::uint64_t *first) { return Extents(first, first + view.ndim); };
            std::optional<Stats> stats;
            if (view.has_stats)
                stats = Stats{view.min, view.max, view.sum, view.variance, view.count, view.nan, view.min_bits, view.max_bits};
            views.push_back({static_cast<const T *>(view.data), view.placed ? numbers(view.offset) : Extents{},
                             numbers(view.shape), numbers(view.ghost_low), numbers(view.ghost_high), numbers(view.step),
                             view.rank, view.level,
                             view.number, view.server, stats, static_cast<const T *>(view.tile_bounds), view.tiles});
        }
        return views;
    }

    std::unique_ptr<fb_step, detail::ReleaseStep> handle_;
    fb_step_info info_ = FB_STEP_INFO_INIT;
};

// What `Consumer::next_async` returns: as a std::future.  A step that has come, and that nobody took, is given back when this ends,
// which waits until it has come.
class StepFuture {
public:
    StepFuture() = default;
    explicit StepFuture(std::future<std::optional<Step>> future) : future_(std::move(future)) {}
    StepFuture(StepFuture &&) = default;
    StepFuture &operator=(StepFuture &&other) noexcept {
        if (this != &other) {
            give_back();
            future_ = std::move(other.future_);
        }
        return *this;
    }
    ~StepFuture() { give_back(); }

    // The step; nothing when the simulation has ended.  Waits for it; throws what `next` throws.
    std::optional<Step> get() { return future_.get(); }
    bool valid() const noexcept { return future_.valid(); }
    void wait() const { future_.wait(); }
    template <class Rep, class Period> std::future_status wait_for(const std::chrono::duration<Rep, Period> &time) const {
        return future_.wait_for(time);
    }
    template <class Clock, class Duration> std::future_status wait_until(const std::chrono::time_point<Clock, Duration> &time) const {
        return future_.wait_until(time);
    }

private:
    void give_back() noexcept {
        if (!valid()) return;
        try {
            if (auto step = get()) step->give_back();
        } catch (...) {
            // There is no step.
        }
    }

    std::future<std::optional<Step>> future_;
};

// A reader of a stream.
class Consumer {
public:
    explicit Consumer(const ConsumerOptions &options) {
        const std::vector<fb_need> needs = detail::given(options.fields);
        const fb_consumer_options given = detail::given(options, needs);
        fb_consumer *consumer = nullptr;
        check(fb_consumer_open(&given, &consumer));
        handle_.reset(consumer);
    }

    // Waits for the next step; nothing when the simulation has ended.  `timeout` in seconds; below 0: the
    // one of the options.
    std::optional<Step> next(double timeout = -1) {
        fb_step *step = nullptr;
        const int result = fb_consumer_next(get(), timeout, &step);
        if (result == FB_ENDED) return std::nullopt;
        check(result);
        return std::optional<Step>(std::in_place, step);
    }
    // The next step if it is there; nothing if it is not, and when the simulation has ended, which `ended` tells.  Does not
    // wait, but for the server's answer with FB_TAKE_LATEST.
    std::optional<Step> poll() {
        fb_step *step = nullptr;
        const int result = fb_consumer_poll(get(), &step);
        ended_ = result == FB_ENDED;
        if (ended_) return std::nullopt;
        check(result);
        if (step == nullptr) return std::nullopt;
        return std::optional<Step>(std::in_place, step);
    }
    // Whether the last `poll` found that the simulation has ended.
    bool ended() const noexcept { return ended_; }
    // What `next` gives, waited for by a thread of its own: the reader must live until the future is ready, which it is at the
    // latest after `timeout`, or when the reader's own timeout says so.
    StepFuture next_async(double timeout = -1) {
        return StepFuture(std::async(std::launch::async, [this, timeout] { return next(timeout); }));
    }
    // Where another reader goes on: the run, and the step after the last one that came; nothing if that is not known yet.
    std::optional<Cursor> cursor() const {
        Cursor cursor;
        const int result = fb_consumer_cursor(get(), &cursor.run, &cursor.step);
        if (result == FB_NOT_FOUND) return std::nullopt;
        check(result);
        return cursor;
    }
    // Changes what is needed, while the reader is attached; empty: all fields, every `every` of their steps.  Returns the run and
    // the step from which on that holds, nothing if the reader waits for a run; steps before it come as they were needed before.
    // Waits until the servers have agreed on it.  What the run cannot meet throws, and the contract stays what it was.
    std::optional<Cursor> need(const std::vector<Need> &fields = {}, std::uint32_t every = 1) {
        const std::vector<fb_need> needs = detail::given(fields);
        Cursor from;
        check(fb_consumer_need(get(), detail::or_null(needs), static_cast<std::uint32_t>(needs.size()), every, &from.run, &from.step));
        if (from.run == 0) return std::nullopt;
        return from;
    }
    // When an exception ends this object's life it is given up.
    void close() { check(fb_consumer_close(handle_.release())); }
    // Detaches a reader that has failed, as if its process had ended: other ranks of a parallel reader are told FB_LOST, and readers
    // that share steps are given those which this one has not released.
    void abandon() { check(fb_consumer_abandon(handle_.release())); }
    // For functions of forebay.h.
    fb_consumer *get() const noexcept { return handle_.get(); }

private:
    std::unique_ptr<fb_consumer, detail::CloseConsumer> handle_;
    bool ended_ = false;
};

// ---- space and administration -----------------------------------------------------------------

// Arrays put and got by name, step and region, whoever put them.
class Space {
public:
    explicit Space(const SpaceOptions &options = {}) {
        const fb_space_options given = detail::given(options);
        fb_space *space = nullptr;
        check(fb_space_open(&given, &space));
        handle_.reset(space);
    }

    // Keeps a part of an array of this global shape until it is removed.
    template <class T>
    void put(const std::string &name, const Extents &shape, std::uint64_t step, const T *data, const Box &box, const FieldOptions &options = {}) {
        const detail::FieldStruct given(name, dtype_of<T>::value, shape.size(), &shape, options);
        const fb_block block = detail::block(name, dtype_of<T>::value, data, box);
        check(fb_space_put(get(), &given.field, step, &block));
    }
    // Keeps a whole array in the place of what there is under this name and step, if there is anything, in one operation: who
    // gets it gets the one before or the new one.
    template <class T>
    void replace(const std::string &name, const Extents &shape, std::uint64_t step, const T *data, const FieldOptions &options = {}) {
        const detail::FieldStruct given(name, dtype_of<T>::value, shape.size(), &shape, options);
        const Box whole{Extents(shape.size()), shape};
        const fb_block block = detail::block(name, dtype_of<T>::value, data, whole);
        check(fb_space_replace(get(), &given.field, step, &block));
    }
    // What there is in the space, as JSON: see fb_space_list.
    std::string list() {
        char *json = nullptr;
        check(fb_space_list(get(), &json));
        return std::unique_ptr<char, detail::FreeText>(json).get();
    }
    // Copies exactly the selected part, waiting up to `timeout` seconds (below 0: as in the options) until all of it was
    // put.
    template <class T> Array<T> get(const std::string &name, std::uint64_t step, const Selection &selection, double timeout = -1) {
        Array<T> array = detail::new_array<T>(selection.shape);
        const fb_selection given = detail::selection(name, dtype_of<T>::value, selection, array.data(), {});
        check(fb_space_get(get(), step, timeout, &given));
        return array;
    }
    // What an expression gives of what is put at a step (docs/expressions.md), waiting as `get` does: see fb_space_evaluate.
    Value evaluate(const std::string &text, std::uint64_t step, double timeout = -1) {
        fb_value found = FB_VALUE_INIT;
        check(fb_space_evaluate(get(), step, timeout, text.c_str(), &found));
        return detail::value(found);
    }
    void remove(const std::string &name, std::uint64_t step) { check(fb_space_remove(get(), name.c_str(), step)); }
    // What was put stays.
    void close() { check(fb_space_close(handle_.release())); }
    // For functions of forebay.h.
    fb_space *get() const noexcept { return handle_.get(); }

private:
    std::unique_ptr<fb_space, detail::CloseSpace> handle_;
};

// A stream, looked at without becoming one of its readers: see fb_stream_open.
class Stream {
public:
    explicit Stream(const std::string &name, const AdminOptions &options = {}) {
        const fb_admin_options given = detail::given(options);
        fb_stream *stream = nullptr;
        check(fb_stream_open(&given, name.c_str(), &stream));
        handle_.reset(stream);
    }

    // The closed steps that are held now, the oldest first, as JSON: see fb_stream_steps.
    std::string steps() {
        char *json = nullptr;
        check(fb_stream_steps(get(), &json));
        return std::unique_ptr<char, detail::FreeText>(json).get();
    }
    // The newest closed step that is held; throws NotFound if none is.
    Step latest() {
        fb_step *step = nullptr;
        check(fb_stream_latest(get(), &step));
        return Step(step);
    }
    // The step of this number, of a run (counted from 1) or of the latest one (0).  Throws Dropped if it is held no longer.
    Step at(std::uint64_t number, std::uint64_t run = 0) {
        fb_step *step = nullptr;
        check(fb_stream_at(get(), run, number, &step));
        return Step(step);
    }
    void close() { check(fb_stream_close(handle_.release())); }
    // For functions of forebay.h.
    fb_stream *get() const noexcept { return handle_.get(); }

private:
    std::unique_ptr<fb_stream, detail::CloseStream> handle_;
};

// ---- expressions and subscriptions -------------------------------------------------------------

// How to make a subscription: see fb_subscription_options.
struct SubscriptionOptions {
    std::string name = {};   // unique in its stream; empty: one that nobody else has
    std::string stream = {}; // of fields that the text names without one
    std::uint32_t every = 1; // at every so many of the steps at which its fields are offered
    std::int32_t on = FB_ON_EACH;
    std::uint64_t limit = 0; // it ends after so many events; 0: never
    double expires = 0;      // it ends after so many seconds; 0: never
    std::int32_t missing = FB_MISSING_SKIP;
    bool keep = false; // whether it goes on without anybody who listens
    // Keeps the step of each event, so many steps before it and so many after it.
    std::optional<std::pair<std::uint32_t, std::uint32_t>> keep_around = {};
    std::uint32_t hold = 30; // for how many seconds an event holds its step for those who have not taken it
    std::int32_t begin = FB_BEGIN_RESUME;
    std::uint64_t after = 0;  // with FB_BEGIN_AFTER: as Subscription::cursor tells
    bool space = false; // of what is put into the space: at each put that completes a step
    std::uint32_t window = 4; // how many events may be held at once
    std::string group = {};
    double timeout = 30;
    std::string transport = {}; // how the data of its events travels
};

// What happened: the step, its values, and where its extremes lie.  It holds its step until that is taken, or this goes.
class Event {
public:
    explicit Event(fb_event *event) : handle_(event) {
        check(fb_event_info_get(event, &info_));
        for (std::uint32_t i = 0; i < info_.values_count; i++) {
            fb_value told = FB_VALUE_INIT;
            check(fb_event_value(event, i, &told));
            values_.emplace(told.label, detail::value(told));
        }
    }

    // FB_TURN_ROSE, FB_TURN_HOLDS or FB_TURN_FELL; FB_TURN_UNKNOWN: why() says why it is not known.
    std::int32_t turn() const noexcept { return info_.turn; }
    std::uint64_t number() const noexcept { return info_.number; }
    std::uint64_t run() const noexcept { return info_.run; }
    std::uint64_t step() const noexcept { return info_.step; }
    // Physical time; `no_time`, which is not a number, if the producer gave none.
    double time() const noexcept { return info_.time; }
    std::uint64_t episode() const noexcept { return info_.episode; }
    // The step at which the episode began.
    std::uint64_t first() const noexcept { return info_.first; }
    // How many evaluations of the episode gave nothing known.
    std::uint64_t missing() const noexcept { return info_.missing; }
    // How many events before it were forgotten before this process could be told of them.
    std::uint64_t missed() const noexcept { return info_.missed; }
    std::string why() const { return info_.why == nullptr ? "" : info_.why; }
    // What the bindings are, by their names, and the aggregates, by their texts.
    const std::map<std::string, Value> &values() const noexcept { return values_; }
    // Whether its step is held, and not taken yet.
    bool has_data() const {
        fb_event_info now = FB_EVENT_INFO_INIT;
        check(fb_event_info_get(get(), &now));
        return now.has_step != 0;
    }
    // Takes its step, which lives on without the event.  Throws FB_DROPPED if it is held no longer, FB_CLOSED if it was taken before.
    Step take_data() {
        fb_step *step = nullptr;
        check(fb_event_step(get(), &step));
        return Step(step);
    }
    // For functions of forebay.h.
    fb_event *get() const noexcept { return handle_.get(); }

private:
    std::unique_ptr<fb_event, detail::ReleaseEvent> handle_;
    fb_event_info info_ = FB_EVENT_INFO_INIT;
    std::map<std::string, Value> values_;
};

// An expression that the servers watch from step to step: see fb_subscribe.
class Subscription {
public:
    explicit Subscription(const std::string &text, const SubscriptionOptions &options = {}) {
        fb_subscription_options given = FB_SUBSCRIPTION_OPTIONS_INIT;
        given.group = detail::or_null(options.group);
        given.timeout = options.timeout;
        given.transport = detail::or_null(options.transport);
        given.name = detail::or_null(options.name);
        given.stream = detail::or_null(options.stream);
        given.every = options.every;
        given.on = options.on;
        given.limit = options.limit;
        given.expires = options.expires;
        given.missing = options.missing;
        given.keep = options.keep ? 1 : 0;
        if (options.keep_around) {
            given.keep_around = 1;
            given.keep_before = options.keep_around->first;
            given.keep_after = options.keep_around->second;
        }
        given.hold = options.hold;
        given.begin = options.begin;
        given.after = options.after;
        given.window = options.window;
        given.space = options.space ? 1 : 0;
        fb_subscription *subscription = nullptr;
        check(fb_subscribe(&given, text.c_str(), &subscription));
        handle_.reset(subscription);
    }

    std::string name() const {
        const char *name = nullptr;
        check(fb_subscription_name(get(), &name));
        return name;
    }
    // Waits until the servers have agreed from which step on it watches; none if there is no run yet.
    std::optional<Cursor> wait_active() {
        Cursor from;
        check(fb_subscription_wait_active(get(), &from.run, &from.step));
        return from.run == 0 ? std::nullopt : std::optional(from);
    }
    // The next event; none when the subscription has ended.  `timeout` in seconds; below 0: as long as it takes.  What is not
    // known is told in between, with FB_TURN_UNKNOWN: look at the turn.
    std::optional<Event> next(double timeout = -1) {
        fb_event *event = nullptr;
        const int result = fb_event_next(get(), timeout, &event);
        if (result == FB_ENDED) return std::nullopt;
        check(result);
        return std::optional<Event>(std::in_place, event);
    }
    // The number of the event behind which it goes on: the last one that came.
    std::uint64_t cursor() const {
        std::uint64_t number = 0;
        check(fb_subscription_cursor(get(), &number));
        return number;
    }
    void pause() { check(fb_subscription_change(get(), FB_CHANGE_PAUSE)); }
    void resume() { check(fb_subscription_change(get(), FB_CHANGE_RESUME)); }
    void remove() { check(fb_subscription_change(get(), FB_CHANGE_REMOVE)); }
    void close() { check(fb_subscription_close(handle_.release())); }
    // For functions of forebay.h.
    fb_subscription *get() const noexcept { return handle_.get(); }

private:
    std::unique_ptr<fb_subscription, detail::CloseSubscription> handle_;
};

// Has the servers watch for something, from the next step on, and returns at once: see fb_subscribe.
inline Subscription subscribe(const std::string &text, const SubscriptionOptions &options = {}) {
    return Subscription(text, options);
}

// ---- administration -----------------------------------------------------------------------------

// A pipeline that is to be created: see fb_pipeline_options.
struct PipelineOptions {
    std::string name, code;  // "FILE.py:CLASS"
    std::string stream = {}; // empty: the one that the class names, or the only one that the group has
    std::string config = {}; // JSON; empty: {}
    std::string python = {}; // the Python to run it with; empty: the one beside the command forebay
    bool driven = false;     // run when ranks say so, through a PipelineHandle
    std::string on = {};     // a subscription at whose events it runs; empty: at each closed step
};

// Which servers answer, and which do not.
struct Healed {
    std::vector<std::uint32_t> answering, silent;
};

// Looks after a group.  Servers are named by their numbers.
class Admin {
public:
    explicit Admin(const AdminOptions &options = {}) {
        const fb_admin_options given = detail::given(options);
        fb_admin *admin = nullptr;
        check(fb_admin_open(&given, &admin));
        handle_.reset(admin);
    }

    // What the servers say of themselves, of streams and of pipelines, as JSON (docs/status.md).
    std::string status() {
        char *json = nullptr;
        check(fb_admin_status(get(), &json));
        const std::unique_ptr<char, detail::FreeText> owned(json);
        return json;
    }
    // What a stream's latest run offers, and what of it each reader and pipeline needs, as JSON (docs/status.md).
    std::string contracts(const std::string &stream) {
        char *json = nullptr;
        check(fb_admin_contracts(get(), stream.c_str(), &json));
        const std::unique_ptr<char, detail::FreeText> owned(json);
        return json;
    }
    // Starts more servers on this machine, in the background, and waits until they are members; returns their numbers.
    // Needs the command forebay, as fb_admin_add_servers says.
    std::vector<std::uint32_t> add_servers(std::uint32_t count = 1) {
        std::vector<std::uint32_t> servers(count);
        check(fb_admin_add_servers(get(), count, servers.data()));
        return servers;
    }
    // Has a server leave the group and end; what it holds goes to the others first.  Waits until that is done.
    void remove_server(std::uint32_t server, bool discard = false) {
        check(fb_admin_remove_server(get(), server, discard ? 1 : 0));
    }
    // Has the group go on after it lost half of its servers or more at once; only with `force` are the silent ones given up.
    Healed heal(bool force = false) {
        std::uint32_t answering = 0, silent = 0;
        Healed healed{std::vector<std::uint32_t>(4096), std::vector<std::uint32_t>(4096)};
        check(fb_admin_heal(get(), force ? 1 : 0, 4096, healed.answering.data(), &answering, healed.silent.data(), &silent));
        healed.answering.resize(answering);
        healed.silent.resize(silent);
        return healed;
    }
    // Gives every server a worker that runs the code, and waits until all are ready.
    void create_pipeline(const PipelineOptions &options) {
        fb_pipeline_options given = FB_PIPELINE_OPTIONS_INIT;
        given.name = options.name.c_str();
        given.code = options.code.c_str();
        given.stream = detail::or_null(options.stream);
        given.config = detail::or_null(options.config);
        given.python = detail::or_null(options.python);
        given.driven = options.driven ? 1 : 0;
        given.on = detail::or_null(options.on);
        check(fb_admin_create_pipeline(get(), &given));
    }
    // All subscriptions, as JSON (docs/status.md).
    std::string subscriptions() {
        char *json = nullptr;
        check(fb_admin_subscriptions(get(), &json));
        return std::unique_ptr<char, detail::FreeText>(json).get();
    }
    // Pauses, resumes or removes a subscription: FB_CHANGE_...
    void change_subscription(const std::string &name, int change, const std::string &stream = {}) {
        check(fb_admin_change_subscription(get(), name.c_str(), detail::or_null(stream), change));
    }
    void destroy_pipeline(const std::string &name) { check(fb_admin_destroy_pipeline(get(), name.c_str())); }
    // Ends every server of the group.
    void shutdown() { check(fb_admin_shutdown(get())); }
    void close() { check(fb_admin_close(handle_.release())); }
    // For functions of forebay.h.
    fb_admin *get() const noexcept { return handle_.get(); }

private:
    std::unique_ptr<fb_admin, detail::CloseAdmin> handle_;
};

// The text of a group's connection file, once the group is complete, for one rank to hand to all others as their
// ProducerOptions::group.  It holds the group's secret.
inline std::string group_text(const std::string &group = {}) {
    char *text = nullptr;
    check(fb_group_text(detail::or_null(group), &text));
    const std::unique_ptr<char, detail::FreeText> owned(text);
    return text;
}
inline std::string version() { return fb_version(); }

// A name that no other job has, for ProducerOptions::job: one rank makes it and tells the others.
inline std::string new_job_name() {
    char *name = nullptr;
    check(fb_new_job_name(&name));
    return std::unique_ptr<char, detail::FreeText>(name).get();
}

} // namespace forebay
#endif // FOREBAY_HPP
