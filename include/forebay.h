/* Forebay: stage a simulation's fields in memory, step by step.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * The order of calls in a simulation (one handle for each rank; there is no MPI inside):
 *
 *     fb_producer_open
 *       fb_array                     once for each field, and again when its global shape changes
 *       fb_particles, fb_buffer      likewise, for what has no place in a global array
 *       fb_attr                      what there is to say of the stream and its fields
 *       +-> fb_producer_begin        waits for one answer of the rank's home server, if it must
 *       |     fb_put ...             any number of blocks, from any thread
 *       |     fb_put_async / fb_wait or many at once, over a network
 *       |     fb_alloc / fb_commit   or compute in place, without a copy
 *       +-- fb_producer_end
 *     fb_producer_close
 *
 * or, to say when a pipeline runs that was created to be driven:
 *
 *     fb_pipeline_open
 *       fb_array ...                 on fb_pipeline_producer
 *       +-> fb_pipeline_activate
 *       |     fb_pipeline_stage ...  any number of blocks, from any thread
 *       |   fb_pipeline_execute      waits until all ranks have ended the step, and the pipeline has run
 *       +-- fb_pipeline_deactivate
 *     fb_pipeline_close
 *
 * and in a reader:
 *
 *     fb_consumer_open
 *       +-> fb_consumer_next         FB_ENDED when the simulation has ended; fb_consumer_poll does not wait
 *       |     fb_get ...             any region, assembled across blocks and servers
 *       +-- fb_step_release
 *     fb_consumer_close
 *
 * Looking at a stream from outside, without a reader:
 *     fb_stream_open
 *       fb_stream_steps              which steps are held
 *       +-> fb_stream_latest, fb_stream_at
 *       |     fb_get ...
 *       +-- fb_step_release
 *     fb_stream_close
 *
 * Asking for a value, and watching for what matters (docs/expressions.md):
 *     fb_step_evaluate               what an expression gives at a step
 *     fb_subscribe                   the servers evaluate it at each step
 *       +-> fb_event_next            waits for the next event
 *       |     fb_event_info_get, fb_event_value, fb_event_step
 *       +-- fb_event_release
 *     fb_subscription_close
 *
 * and to look after a group, from anywhere:
 *
 *     fb_admin_open
 *       fb_admin_status, fb_admin_contracts, fb_admin_add_servers, fb_admin_remove_server, ...
 *     fb_admin_close
 *
 * Errors.  Every function returns FB_OK (0) or an error kind (positive); fb_error() then gives the text
 * for the calling thread: what failed, on what, and what to do.  The text is the one of the last failure,
 * so ask for it in a statement of its own: in `told(fb_put(p, &b), fb_error())` the compiler may evaluate
 * fb_error() first.
 *
 * Structs.  Every struct begins with its own size, `struct_size`, so that it can grow: initialise it with the
 * FB_..._INIT macro beside it, and leave members that you do not need as they are.  What a later release adds means
 * nothing when it is zero.
 *
 * Arrays.  All sizes are 64-bit.  Arrays are row-major (C order): the last dimension varies fastest.
 * Pointers marked [ndim] point at one number for each dimension, slowest first.  A shape may hold zeros.
 *
 * Servers are named by their numbers, which `forebay status` shows: 2 for server2.
 *
 * Threads and processes.  Within a step fb_put, fb_put_async, fb_wait, fb_alloc, fb_commit and fb_abort
 * may be called by many threads at once; the other calls on one producer or consumer by one at a time.
 * A step that a consumer holds may be read by many threads.  After fork() the child's handles are dead:
 * calls return FB_FORKED, and only closing them makes sense, which tells no server and keeps memory and
 * connections as they were, until the child ends or executes another program; the parent goes on.  Where a
 * server is on another host, it notices the parent's death only when its children have ended too.  A handle
 * must not be used after it was closed: its memory is gone.  The library starts no thread, installs no
 * signal handler and prints nothing.
 *
 * Strings are UTF-8 and end with NUL.  Arguments are copied: they are yours again when a call returns.
 *
 * Link with -lforebay, or with libforebay.a -lpthread -ldl -lm.
 */
#ifndef FOREBAY_H
#define FOREBAY_H

#include <stddef.h>
#include <stdint.h>

/* The version of this header; fb_version() tells the library's.  A program runs with every library of its FB_ABI that is
 * not older than its header: structs, lists and functions are only added to. */
#define FB_VERSION_MAJOR 0
#define FB_VERSION_MINOR 1
#define FB_VERSION_PATCH 0
#define FB_VERSION_NUM (FB_VERSION_MAJOR * 10000 + FB_VERSION_MINOR * 100 + FB_VERSION_PATCH)
#define FB_ABI 0

#ifdef __cplusplus
extern "C" {
#endif

/* Result codes: an append-only list, the same in every language and on the wire. */
/* generated from interface/forebay.toml: errors */
enum {
    FB_OK = 0,
    FB_INVALID = 1,          /* an argument is wrong in itself */
    FB_NOT_FOUND = 2,        /* no such stream, field, step, pipeline or server */
    FB_TIMEOUT = 3,          /* the deadline passed; the text names what was being waited for */
    FB_LOST = 4,             /* the data was held by a process that died */
    FB_NOT_COVERED = 5,      /* a region is not filled by what was put; the text names the missing part */
    FB_CONFLICT = 6,         /* the same block with other content, blocks that overlap, or ranks that do not agree */
    FB_TYPE_MISMATCH = 7,    /* the dtype differs from the contract's */
    FB_OUT_OF_BOUNDS = 8,    /* the number of dimensions, offset or shape do not fit the field */
    FB_OVER_BUDGET = 9,      /* it can never fit into the byte budget */
    FB_FULL = 10,            /* it did not fit, although the call waited for room: see FB_POLICY_BLOCK, the space,
                              * and servers that leave */
    FB_CLOSED = 11,          /* the handle was closed */
    FB_WRONG_SECRET = 12,    /* the other side does not hold this group's secret */
    FB_WRONG_VERSION = 13,   /* the other side speaks another protocol version */
    FB_UNREACHABLE = 14,     /* the peer cannot be reached, or went away */
    FB_PROTOCOL = 15,        /* a malformed message */
    FB_CONNECTION_FILE = 16, /* the connection file is missing, stale, foreign or readable by others */
    FB_UNSUPPORTED = 17,     /* not built yet, or not in this build */
    FB_STEP_ORDER = 18,      /* a step number was used twice or goes backwards, or a call is out of order */
    FB_FORKED = 19,          /* a handle was used in a forked child */
    FB_ENDED = 20,           /* the stream has ended: no failure, the end of a loop */
    FB_TORN = 21,            /* a rank died in the step, or left it out. Today only the execution of a driven
                              * pipeline fails with it; a reader is told by the step's `torn` */
    FB_DROPPED = 22,         /* the step was dropped: by the stream's policy, or since a part found no room, or it
                              * is held no longer. Who asks for it by its number is told so, and the execution of a
                              * driven pipeline; a reader is told by the next step's `missed` */
    FB_PIPELINE_FAILED = 23, /* a pipeline raised an error; the text holds its traceback */
    FB_INTERNAL = 24,        /* a defect of Forebay's own; please report it */
    FB_IO = 25,              /* the operating system refused something; the text says what */
    FB_CRASHED = 26          /* the run is over, and not all its ranks closed it: raised after all that can be read
                              * was told, by loops, too */
};
/* end of what is generated */

/* generated from interface/forebay.toml: enums */
/* The types of elements. */
enum {
    FB_BOOL = 1,
    FB_I8 = 2,
    FB_U8 = 3,
    FB_I16 = 4,
    FB_U16 = 5,
    FB_I32 = 6,
    FB_U32 = 7,
    FB_I64 = 8,
    FB_U64 = 9,
    FB_F16 = 10,
    FB_BF16 = 11,
    FB_F32 = 12,
    FB_F64 = 13,
    FB_C64 = 14,
    FB_C128 = 15,
    FB_TEXT = 16 /* UTF-8; of attributes only */
};

/* Where an array lies. Other kinds are refused with FB_UNSUPPORTED until they are built. */
enum {
    FB_MEMORY_HOST = 0  /* the host's memory */
};

/* What the values of a field belong to. */
enum {
    FB_ASSOCIATION_CELL = 0,   /* the default: to the mesh's cells */
    FB_ASSOCIATION_VERTEX = 1  /* to its vertices */
};

/* What becomes of a stream's closed steps when its readers or the memory cannot keep up. */
enum {
    FB_POLICY_DROP_OLDEST = 0, /* the default: the oldest closed steps go, counted, and readers see a gap */
    FB_POLICY_BLOCK = 1,       /* a put or an allocation that finds no room waits for it, until its deadline; the
                                * beginning of a step does not */
    FB_POLICY_LATEST = 2,      /* only the latest closed step is kept for each reader */
    FB_POLICY_SPILL = 3        /* refused until it is built */
};

/* What a producer does when its servers are gone. */
enum {
    FB_ON_LOSS_SKIP = 0, /* the default: goes on without staging, and counts: see fb_producer_lost */
    FB_ON_LOSS_FAIL = 1  /* a call waits for another server until its deadline, then fails with FB_UNREACHABLE */
};

/* When a block is safe of which several servers hold copies. */
enum {
    FB_DURABILITY_LOCAL = 0,      /* the default: when fb_flush or the end of the step has returned */
    FB_DURABILITY_REPLICATED = 1  /* when the put has returned */
};

/* Which server holds a block. */
enum {
    FB_PLACEMENT_NEAREST = 0,  /* the default: the rank's home, which is on its host if there is one there */
    FB_PLACEMENT_BY_BLOCK = 1, /* by the block's id: spread evenly over all servers */
    FB_PLACEMENT_FUNCTION = 2  /* as a function of the caller's says */
};

/* With which step a consumer begins. */
enum {
    FB_START_NEXT = 0,   /* the default: the next step that begins */
    FB_START_OLDEST = 1, /* the oldest closed step that is still held (the stream's `keep`) */
    FB_START_CURSOR = 2, /* where an earlier reader stopped */
    FB_START_LATEST = 3, /* the newest closed step that is still held */
    FB_START_RUN = 4,    /* the first step of a run: of the one that has begun none yet, else of the next */
    FB_START_HELD = 5,   /* the closed steps that are held now, and none that comes later: nothing is demanded for
                          * it */
    FB_START_RESUME = 6  /* where the last reader of this `name` has stopped */
};

/* Which of the steps that wait for it a consumer is given. */
enum {
    FB_TAKE_ALL = 0,    /* the default: all of them, in order */
    FB_TAKE_LATEST = 1  /* the newest; those passed over are counted as missed */
};

/* How the steps of a stream are shared out among consumers of one name. */
enum {
    FB_SHARE_NONE = 0,        /* the default: each is given all of them */
    FB_SHARE_ON_DEMAND = 1,   /* each step to the one that has asked first */
    FB_SHARE_ROUND_ROBIN = 2  /* each step to the next in turn */
};

/* What the other ranks of a parallel reader do when one dies. */
enum {
    FB_ON_RANK_LOSS_FAIL = 0,  /* the default: they are told FB_LOST, which names it */
    FB_ON_RANK_LOSS_GO_ON = 1  /* go on without it */
};

/* Which statistics of a field a consumer needs: minimum, maximum, sum, variance and counts. Complex types have
 * none. */
enum {
    FB_STATS_NONE = 0,  /* the default */
    FB_STATS_ALONG = 1, /* those of each block, and of the whole field, along with the data */
    FB_STATS_ALONE = 2  /* those of the whole field: no data leaves the simulation */
};

/* What a read does where nothing was put of the region that it is to copy. */
enum {
    FB_HOLES_REFUSED = 0, /* the default: it fails with FB_NOT_COVERED, before anything is written */
    FB_HOLES_LEFT = 1     /* leaves your elements there as they are: fill the array first */
};

/* What became of a put that did not fail. */
enum {
    FB_OUTCOME_STAGED = 0,     /* a server holds it */
    FB_OUTCOME_UNDEMANDED = 1, /* nothing wants it: it was not copied */
    FB_OUTCOME_DROPPED = 2     /* there was no room, and the policy is to go on: readers see a gap */
};

/* At which evaluations a subscription has events. */
enum {
    FB_ON_EACH = 0, /* the default: at each at which it holds */
    FB_ON_RISE = 1, /* at the first of an episode */
    FB_ON_FALL = 2, /* at the first after one */
    FB_ON_BOTH = 3  /* at both */
};

/* What evaluations of a subscription are that give nothing known. */
enum {
    FB_MISSING_SKIP = 0,  /* the default: they take no part */
    FB_MISSING_RESET = 1  /* they count as if it did not hold */
};

/* With which event of a subscription a subscriber begins. */
enum {
    FB_BEGIN_RESUME = 0, /* the default: after the last one with which a subscriber has finished */
    FB_BEGIN_NEXT = 1,   /* the next one */
    FB_BEGIN_FIRST = 2,  /* the first that is remembered */
    FB_BEGIN_AFTER = 3   /* the one after that of a number */
};

/* What an event tells. */
enum {
    FB_TURN_UNKNOWN = 0, /* whether it holds is not known at this step: told once for each sort of reason */
    FB_TURN_ROSE = 1,    /* it holds, at the first evaluation of an episode */
    FB_TURN_HOLDS = 2,   /* it holds, at a later one */
    FB_TURN_FELL = 3     /* the episode is over */
};

/* What a value is. */
enum {
    FB_VALUE_UNKNOWN = 0,   /* not known */
    FB_VALUE_NUMBER = 1,
    FB_VALUE_CONDITION = 2, /* 0 or 1 */
    FB_VALUE_PLACE = 3      /* where an extreme lies */
};

/* What is done with a subscription. */
enum {
    FB_CHANGE_PAUSE = 0,  /* nothing is evaluated until it is resumed */
    FB_CHANGE_RESUME = 1, /* it goes on with the next step */
    FB_CHANGE_REMOVE = 2  /* it ends, for all who listen */
};
/* end of what is generated */

typedef struct fb_producer fb_producer;
typedef struct fb_pipeline fb_pipeline;
typedef struct fb_request fb_request;
typedef struct fb_consumer fb_consumer;
typedef struct fb_step fb_step; /* one step, as a consumer holds it */
typedef struct fb_stream fb_stream; /* a stream, looked at from outside */

/* generated from interface/forebay.toml: struct to_place */
/* A block that is to be placed, as a function of the caller's sees it. */
typedef struct fb_to_place {
    uint64_t struct_size;
    const char *field;
    uint64_t number;          /* the block's */
    uint32_t rank;
    uint32_t ndim;
    const uint64_t *offset;   /* [ndim] of the interior; NULL for a field without a global shape */
    const uint64_t *shape;    /* [ndim] of the interior */
    const uint32_t *servers;  /* [servers_count] the numbers of the servers that there are, in order */
    uint64_t servers_count;
} fb_to_place;
#define FB_TO_PLACE_INIT { sizeof(fb_to_place), NULL, 0, 0, 0, NULL, NULL, NULL, 0 }
/* end of what is generated */
/* Gives the number of the server that is to hold a block, one of `servers`; below 0: fail.  The home holds what a server
 * was to hold that has gone since.  It is called in the thread that puts, must not call Forebay, and should give the same
 * for the same block. */
typedef int64_t (*fb_place_function)(void *context, const fb_to_place *block);

/* generated from interface/forebay.toml: options producer */
/* How to open a producer. */
typedef struct fb_producer_options {
    uint64_t struct_size;
    const char *group;          /* the group: a connection file's path, a group's name, or the file's text; by
                                 * default FOREBAY_GROUP says */
    const char *stream;         /* the name under which readers find the simulation's output */
    uint32_t rank;              /* this rank, counted from 0 (default 0) */
    uint32_t size;              /* how many ranks there are; all of them must open the stream (default 1) */
    int32_t policy;             /* what becomes of closed steps when readers or memory cannot keep up:
                                 * FB_POLICY_DROP_OLDEST (they are counted, readers see a gap), FB_POLICY_BLOCK
                                 * (puts wait for room) or FB_POLICY_LATEST */
    uint32_t keep;              /* how many closed steps are kept although nobody reads them (default 0) */
    double timeout;             /* seconds that any wait may take: more than 0; infinity waits for ever (default
                                 * 30) */
    const char *transport;      /* how blocks travel: "auto" (shared memory where the server is on this host, else
                                 * TCP), "shm" or "tcp". NULL: "auto" */
    int32_t on_loss;            /* what to do when the home server is gone, and no other one takes this rank within
                                 * two seconds: FB_ON_LOSS_SKIP (the simulation goes on unstaged: fb_producer_lost
                                 * tells). With FB_ON_LOSS_FAIL a call waits for another one until `timeout`, and
                                 * then fails with FB_UNREACHABLE; so it does where something of the open step is
                                 * lost */
    int32_t placement;          /* which server holds a block: the rank's home, which is on its host if any is
                                 * (FB_PLACEMENT_NEAREST), a server by the block's id, so that they are spread
                                 * evenly (FB_PLACEMENT_BY_BLOCK), or the one that a function of a fb_to_place
                                 * names. A block that the home does not hold costs a second question. Blocks of up
                                 * to 1 KiB travel with the step and are not placed */
    fb_place_function place;    /* with FB_PLACEMENT_FUNCTION: called for each block that is placed */
    void *place_context;        /* what `place` is called with */
    uint64_t continues_run;     /* after a restart from a checkpoint: the run that goes on; 0: none does */
    uint64_t continues_step;    /* the last step of that run that is still true */
    uint64_t queue_bytes;       /* bytes of closed steps that may wait for readers before the policy drops some
                                 * (default 1 GiB) */
    uint32_t replicas;          /* how many servers hold each block, 1 to 8: all but one of them may die. A copy on
                                 * another host is preferred; on one host it costs almost nothing, since the
                                 * servers share the memory (default 1) */
    int32_t durability;         /* with copies, what is safe when: what was put once the step has ended or fb_flush
                                 * has returned (FB_DURABILITY_LOCAL), or each block once its put has returned
                                 * (FB_DURABILITY_REPLICATED) */
    uint32_t wait_for_readers;  /* how many readers with different names are to be attached before the first step
                                 * of the run begins; FB_TIMEOUT at the deadline names those that have come. Two
                                 * codes that read each other both need it from their first step (default 0) */
    int32_t reserved;           /* 0 */
    const char *job;            /* what names the job that the ranks belong to, the same for all of them: ranks of
                                 * two jobs never make one run. By default as the launcher says (PMIx, Slurm, Open
                                 * MPI, MPICH on one host); where it says nothing, ranks are told apart by their
                                 * numbers alone. A program that uses MPI opens its ranks by its communicator
                                 * instead (fb_producer_open_mpi) */
    const char *name;           /* what this rank is called in errors, by `status` and in logs; by default its host
                                 * and process say which it is */
    uint64_t first;             /* the number of the first step, or of one before it: with `stride` it says which
                                 * numbers steps have. Readers' periods count the steps from there on. A step with
                                 * another number is refused (default 0) */
    uint64_t stride;            /* the distance between the numbers of two steps: 10 where a simulation hands over
                                 * each tenth of its iterations (default 1) */
} fb_producer_options;
#define FB_PRODUCER_OPTIONS_INIT \
    { sizeof(fb_producer_options), NULL, NULL, 0, 1, FB_POLICY_DROP_OLDEST, 0, 30.0, NULL, FB_ON_LOSS_SKIP, \
      FB_PLACEMENT_NEAREST, NULL, NULL, 0, 0, 1073741824, 1, FB_DURABILITY_LOCAL, 0, 0, NULL, NULL, 0, 1 }
/* end of what is generated */

/* generated from interface/forebay.toml: struct field */
/* A field of the output contract. */
typedef struct fb_field {
    uint64_t struct_size;
    const char *name;
    int32_t dtype;               /* FB_... */
    uint32_t ndim;               /* 0 to 8 */
    const uint64_t *shape;       /* [ndim] the global shape; NULL for a field whose blocks have no place in one.
                                  * With ndim 0 the field is one number of the whole stream, put by one rank */
    int32_t association;         /* FB_ASSOCIATION_... */
    uint32_t every;              /* offered at every so many of the producer's steps, the first of them among these
                                  * (default 1) */
    const char *const *dims;     /* [ndim] the names of its dimensions, slowest first; or NULL */
    const double *spacing;       /* [ndim] the distance of neighbours in each dimension, or NULL */
    const double *origin;        /* [ndim] where the first element lies, or NULL */
    const char *units;           /* of its values, or NULL */
    int32_t reserved;            /* 0 */
    int32_t reserved2;           /* 0 */
    const int32_t *periodic;     /* [ndim] whether the domain goes on with its first elements behind its last ones,
                                  * 0 or 1 in each dimension; or NULL */
    const uint32_t *refinement;  /* [ndim] how many elements of a refinement level lie where one of the level below
                                  * does, in each dimension; or NULL */
    int32_t is_static;           /* 1: it belongs to the run: declared before the first step, put once in that, and
                                  * given to every reader with its first step (default 0) */
    int32_t reserved3;           /* 0 */
} fb_field;
#define FB_FIELD_INIT \
    { sizeof(fb_field), NULL, 0, 0, NULL, FB_ASSOCIATION_CELL, 1, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 0, 0 }
/* end of what is generated */

/* generated from interface/forebay.toml: struct attribute */
/* What is said of a stream or of one of its fields beside the data. */
typedef struct fb_attribute {
    uint64_t struct_size;
    const char *field;   /* NULL: of the stream itself */
    const char *key;
    int32_t dtype;       /* FB_BOOL, FB_I64, FB_U64, FB_F64, FB_C128 or FB_TEXT. What FB_I64 holds is told as that */
    int32_t list;        /* 0: one value; 1: a list of `count`, which may be 0 (default 0) */
    uint64_t count;      /* default 1 */
    const void *values;  /* [count] uint8_t (0 or 1), int64_t, uint64_t, double, double[2], or const char * to text
                          * that ends in NUL */
} fb_attribute;
#define FB_ATTRIBUTE_INIT { sizeof(fb_attribute), NULL, NULL, 0, 0, 1, NULL }
/* end of what is generated */

/* generated from interface/forebay.toml: struct block */
/* What is put: a box of the global array, or a local array without a place in one. `offset` and `shape` are the
 * interior's; the array in memory has shape + ghost_low + ghost_high elements in each dimension, and `data` points
 * at its first element, ghosts included. To put only the interior of a larger array: no ghosts, `data` at the
 * interior's first element, and `strides` of the array as it lies in memory. */
typedef struct fb_block {
    uint64_t struct_size;
    const char *field;
    uint64_t number;             /* tells apart several blocks of one rank, field and step */
    const void *data;            /* may be NULL if the block is empty */
    int32_t memory;              /* FB_MEMORY_HOST */
    int32_t dtype;               /* FB_... */
    uint32_t ndim;
    uint32_t level;              /* refinement level. Offsets above 0 count in an index space of that level's own,
                                  * of any extent; such blocks are seen by fb_view, not by reads of regions */
    const uint64_t *offset;      /* [ndim] in the global array; NULL for an unplaced field */
    const uint64_t *shape;       /* [ndim] of the interior */
    const uint64_t *ghost_low;   /* [ndim] layers before the interior, or NULL for none */
    const uint64_t *ghost_high;  /* [ndim] layers after it, or NULL for none */
    const int64_t *strides;      /* [ndim] bytes between neighbours, of either sign; NULL for dense row-major */
    int32_t *outcome;            /* where fb_put tells FB_OUTCOME_...; or NULL */
} fb_block;
#define FB_BLOCK_INIT { sizeof(fb_block), NULL, 0, NULL, FB_MEMORY_HOST, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL }
/* end of what is generated */

/* ---- producer ------------------------------------------------------------------------------- */

/* Joins the stream as one rank. Waits for one or two answers of a server. *producer is NULL on failure. */
int fb_producer_open(const fb_producer_options *options, fb_producer **producer);

/* The number of the run that was joined, for a checkpoint to remember. */
int fb_producer_run(const fb_producer *producer, uint64_t *run);
/* Which transport was chosen: *name is "shm" or "tcp", and needs not be freed. */
int fb_producer_transport(const fb_producer *producer, const char **name);
/* FB_OK while all is well; else why staging was given up (see FB_ON_LOSS_SKIP). In *skipped, unless that is
 * NULL, the number of steps that were begun while it was, so far, also when all is well again. */
int fb_producer_lost(const fb_producer *producer, uint64_t *skipped);

/* Adds a field to the output contract, or changes its global shape from the next step on. Between steps. */
int fb_array(fb_producer *producer, const fb_field *field);

/* Adds a particle species: a group of fields that share one count.  Each is named `species/name`, has no global
 * shape, and its first dimension counts the particles: ndim is 1, or 2 for vectors.  They are put, demanded and
 * read as any field without a global shape; within a step the blocks of a species that have one `number` must
 * have one count, else fb_put says FB_CONFLICT.  `fields_stride` is sizeof(fb_field) as you compiled it. */
int fb_particles(fb_producer *producer, const char *species, const fb_field fields[], uint32_t fields_count,
                 uint32_t fields_stride);
/* Declares that ranks say which part of space, of so many dimensions, they have: what particles alone do not tell.  It is a
 * field like others, called "rank_bounds", offered at the steps that are multiples of `every`.  Between steps. */
int fb_rank_bounds(fb_producer *producer, uint32_t ndim, uint32_t every);
/* Says it for the open step: the lowest and the highest place of what is this rank's own, and of this and its ghosts (NULL: it
 * has none). */
int fb_put_rank_bounds(fb_producer *producer, uint32_t ndim, const double low[], const double high[], const double ghost_low[],
                       const double ghost_high[]);
/* Adds a buffer: bytes, of another length at each step and rank if need be.  It is put as a block of FB_U8 with
 * ndim 1 and without an offset, and read with fb_step_block.  `every` is as in fb_field. */
int fb_buffer(fb_producer *producer, const char *name, uint32_t every);

/* Sets an attribute for the rest of the run; readers see it from the next step on.  One rank that sets it is
 * enough; where several do they must agree, and to change one is FB_CONFLICT: what changes with the step is a
 * field.  All attributes of a stream take up to 64 KiB, else FB_OVER_BUDGET.  Between steps; waits for an
 * answer. */
int fb_attr(fb_producer *producer, const fb_attribute *attribute);
/* The same of the step that is open, for that step alone; `field` is NULL.  Readers find it by fb_attr_get, before one of the
 * stream of the same name.  Two ranks that set it must agree, which is seen when the step closes.  Those of a step take up to
 * 64 KiB.  Does not wait. */
int fb_attr_step(fb_producer *producer, const fb_attribute *attribute);

/* Begins a step. `time` is physical time; NAN if it has none. Waits for one answer of the home server, never for room; on one host it
 * need not wait where nothing of this rank is wanted, or where the last step brought blocks of up to 1024 bytes
 * only and its home has taken them. Step numbers must grow within a run. What is
 * wrong with a step and only the servers can see, such as blocks of two ranks that overlap (FB_CONFLICT), is
 * told by a later call of this kind, at the latest by fb_flush or fb_producer_close: the step that was to begin
 * is then not begun; it, or a later one, may be.  Of ranks that give different times readers are told the first
 * rank's. */
int fb_producer_begin(fb_producer *producer, uint64_t number, double time);

/* Sets *demanded to 1 if something wants this field at the current step. Never waits. */
int fb_demanded(fb_producer *producer, const char *field, int *demanded);

/* Stages one block by one copy; the buffer is yours again on return. Where there is no room it waits for some with
 * FB_POLICY_BLOCK, and is FB_FULL at its deadline; with the other policies the step is dropped, and *block->outcome
 * says so. An undemanded field costs one check, and a mistake in its block is told all the same. */
int fb_put(fb_producer *producer, const fb_block *block);

/* As fb_put, without waiting for the server's answer: fb_wait, fb_flush and fb_producer_end do that, and say what failed.
 * The array is yours again on return here, too.
 *
 * No thread works behind your back.  Where the server is on this host there is no answer to wait for: the
 * block is copied at once, as fb_put does.  Over TCP its bytes are handed to the socket before this returns
 * (which waits while the server does not take them), but many blocks then share one journey there and back.
 * At most 256 answers are outstanding: one more put waits for the oldest.  FB_OUTCOME_STAGED says that the
 * block is on its way. */
int fb_put_async(fb_producer *producer, const fb_block *block);
/* Waits until the server holds all that was put in this step with fb_put_async, or says what failed: such a
 * block may be put again.  *dropped, unless NULL, is how many of them found no room so far and were dropped,
 * as the stream's policy says: readers see a gap.  FB_STEP_ORDER outside a step. */
int fb_wait(fb_producer *producer, uint64_t *dropped);

/* Gives memory of a staged block to compute into (dense row-major, ghosts included): block->data and
 * block->strides are ignored. *data is NULL if nothing wants the field, or it was dropped: then there is
 * nothing to compute, and fb_commit(producer, NULL) does nothing. FB_UNSUPPORTED if the server is on another
 * host: use fb_put, which sends from where the data lies. */
int fb_alloc(fb_producer *producer, const fb_block *block, void **data);
/* Publishes (or gives back) what fb_alloc gave. The memory must not be touched afterwards. What is neither
 * committed nor given back when the step ends is given back. */
int fb_commit(fb_producer *producer, void *data);
int fb_abort(fb_producer *producer, void *data);

/* Ends the step of this rank.  Waits only for the answers to fb_put_async.  If one of those says what failed,
 * that is returned; the step is ended all the same, and dropped: readers see a gap. */
int fb_producer_end(fb_producer *producer);

/* Waits until the home server holds all that was put, or says what failed. */
int fb_flush(fb_producer *producer);

/* Ends the stream for this rank and frees the handle (also after an error).  A step that is not ended is
 * told as torn, if anything was put in it.  Waits until other servers know.  A run has finished when all its ranks have
 * done so; one that ends without it has crashed, and readers are told FB_CRASHED after all that can be read.  NULL is
 * allowed. */
int fb_producer_close(fb_producer *producer);

/* Frees the handle without closing the stream: readers are told that the run has crashed, as if this process had ended.
 * For a simulation that fails and goes on as a process.  Waits until the home server holds what was put, two seconds at
 * most; where that is gone, until another one knows.
 * NULL is allowed. */
int fb_producer_abandon(fb_producer *producer);

/* ---- driving a pipeline --------------------------------------------------------------------- */

/* A rank that drives a pipeline itself (docs/driving.md), which was created with `driven`.  All ranks make the same
 * calls, and it runs once for all of them.  `options` are those of the rank: `stream` is NULL, or the pipeline's;
 * the policy is always FB_POLICY_BLOCK.  `server` is -1 for all workers, or the number of the server whose worker
 * runs alone, and which then holds what is staged.  Waits for a few answers.  *pipeline is NULL on failure. */
int fb_pipeline_open(const fb_producer_options *options, const char *name, int64_t server, fb_pipeline **pipeline);

/* The rank, for fb_array, fb_particles, fb_buffer, fb_attr, fb_put, fb_put_async, fb_wait, fb_alloc, fb_commit,
 * fb_abort, fb_demanded, fb_producer_run, fb_producer_transport and fb_producer_lost.  It belongs to the handle:
 * fb_producer_begin, fb_producer_end and fb_producer_close are FB_INVALID. */
int fb_pipeline_producer(const fb_pipeline *pipeline, fb_producer **producer);

/* Begins a step.  Who runs it is fixed: *workers, unless NULL, is how many workers do; 0 if staging was given up.  Up to 4
 * steps may be active, of which the last one is staged; a fifth is FB_CONFLICT.  Waits for one answer of the home
 * server; with the first step for one of the pipeline's coordinator, too.  A rank that is ahead waits until the others
 * have so few steps active that the one before can be: FB_TIMEOUT at the deadline; the same call waits on. */
int fb_pipeline_activate(fb_pipeline *pipeline, uint64_t step, double time, uint32_t *workers);
/* The same without waiting for the coordinator: fb_request_wait does. */
int fb_pipeline_activate_async(fb_pipeline *pipeline, uint64_t step, double time, fb_request **request);

/* As fb_put and fb_put_async, in the step that was activated last.  What is outstanding is waited for by
 * fb_pipeline_execute and fb_pipeline_deactivate. */
int fb_pipeline_stage(fb_pipeline *pipeline, const fb_block *block);
int fb_pipeline_stage_async(fb_pipeline *pipeline, const fb_block *block);

/* Ends the step of this rank, and has the pipeline run on it once all ranks have ended it.  Waits until that is over,
 * `timeout` seconds at most (negative: as in `options`); after FB_TIMEOUT the same call waits on.  *ran, unless NULL,
 * is 1 if the workers ran, 0 at a step at which the pipeline needs nothing, or if staging was given up.
 * FB_PIPELINE_FAILED with the traceback if the code failed, FB_TORN if a rank died in the step.  While the step is
 * active it can be executed again. */
int fb_pipeline_execute(fb_pipeline *pipeline, uint64_t step, double timeout, int *ran);
/* The same without waiting for the execution: fb_request_wait does. */
int fb_pipeline_execute_async(fb_pipeline *pipeline, uint64_t step, fb_request **request);

/* Has finished with a step, and ends it if fb_pipeline_execute has not.  When all ranks have, and nothing runs on it,
 * its memory is free.  Waits for nothing else. */
int fb_pipeline_deactivate(fb_pipeline *pipeline, uint64_t step);

/* Waits for what was asked for, `timeout` seconds at most (negative: as in `options`), and tells what the other call
 * would have: *workers of an activation, *ran of an execution; each may be NULL.  After FB_TIMEOUT it can be waited for
 * again, and after anything else it tells the same again. */
int fb_request_wait(fb_request *request, double timeout, uint32_t *workers, int *ran);
/* Frees a request; what was asked for goes on.  NULL is allowed. */
int fb_request_free(fb_request *request);

/* The steps that this rank has activated and not deactivated, in order, and how many: at most 4, for which there must be
 * room. Never waits. */
int fb_pipeline_active(const fb_pipeline *pipeline, uint64_t steps[], uint32_t *steps_count);

/* Ends the stream for this rank, with all steps that are active, and frees the handle (also after an error), and the
 * rank.  Requests must be freed for themselves.  NULL is allowed. */
int fb_pipeline_close(fb_pipeline *pipeline);

/* The same without closing the stream, as fb_producer_abandon does. */
int fb_pipeline_abandon(fb_pipeline *pipeline);

/* ---- consumer ------------------------------------------------------------------------------- */

/* generated from interface/forebay.toml: struct need */
/* One field that a consumer needs. */
typedef struct fb_need {
    uint64_t struct_size;
    const char *field;
    int32_t dtype;           /* FB_...; 0: any */
    uint32_t every;          /* every so many of the steps at which the producer offers it, so that both periods
                              * multiply (default 1) */
    uint64_t first;          /* the first of them is the first that is offered from this step on */
    uint32_t ndim;           /* of the part that is needed of its global shape, and leaves the simulation; reading
                              * anything else is FB_NOT_COVERED. 0: all of it */
    int32_t optional;        /* 1: it may be declared later, or never (default 0) */
    const uint64_t *offset;  /* [ndim] where the part begins */
    const uint64_t *shape;   /* [ndim] how many elements it has */
    const uint64_t *stride;  /* [ndim] every so many elements; NULL: 1 */
    int32_t stats;           /* FB_STATS_...: which statistics are needed */
    int32_t reserved;        /* 0 */
} fb_need;
#define FB_NEED_INIT { sizeof(fb_need), NULL, 0, 1, 0, 0, 0, NULL, NULL, NULL, FB_STATS_NONE, 0 }
/* end of what is generated */

/* generated from interface/forebay.toml: options consumer */
/* How to open a consumer. */
typedef struct fb_consumer_options {
    uint64_t struct_size;
    const char *group;       /* the group: a connection file's path, a group's name, or the file's text; by default
                              * FOREBAY_GROUP says */
    const char *stream;      /* the name that the producer gave. It need not exist yet */
    uint32_t fields_count;   /* how many; 0: all fields */
    uint32_t fields_stride;  /* sizeof(fb_need), as the caller compiled it */
    const fb_need *fields;   /* [fields_count] the fields that are needed */
    double timeout;          /* seconds that the reader waits for a run to begin, and for a server's answer: more
                              * than 0; infinity waits for ever. While ranks of a run live it waits for their next
                              * step however long that takes (default 30) */
    const char *transport;   /* how blocks travel: "auto" (shared memory where the server is on this host, else
                              * TCP), "shm" or "tcp". NULL: "auto" */
    uint32_t every;          /* every so many of the steps at which the producer offers a field, where no `fields`
                              * are given (default 1) */
    uint32_t window;         /* how many steps may be held at once, 1 to 1024. More wait in the stream, under its
                              * policy (default 4) */
    int32_t follow;          /* whether to go on with the next run when the simulation is restarted (default 0: no) */
    int32_t start;           /* with which step to begin: FB_START_NEXT, the next step that begins;
                              * FB_START_OLDEST, the oldest that the stream keeps; FB_START_LATEST, the newest that
                              * is held; FB_START_HELD, those that are held now and none that comes later, so that
                              * nothing is demanded of the simulation; FB_START_RUN, the first step of a run: of
                              * the one that is there, if it has begun none yet, else of the next one, whatever ran
                              * before; FB_START_RESUME, where the last reader of this `name` has stopped, as the
                              * group knows, with the next step that begins if there was none: what it had not
                              * finished with when it died is given again; or a cursor: where an earlier reader of
                              * the stream stopped, in this process or another, as fb_consumer_cursor tells. Steps
                              * that are held no longer are left out, and counted as `missed` with the first one
                              * that comes, as far as the group knows. FB_NOT_FOUND if the stream has had no such
                              * run */
    uint64_t start_run;      /* with FB_START_CURSOR: the run that fb_consumer_cursor told, from 1 */
    uint64_t start_step;     /* with FB_START_CURSOR: the step that it told */
    uint64_t pin_bytes;      /* bytes of earlier steps that arrays may keep in the servers' memory. Beyond that the
                              * blocks of further steps are copied, so that a reader that collects arrays cannot
                              * fill the servers. The arrays of one step may be kept whatever its size (default 1
                              * GiB) */
    int32_t take;            /* which of the steps that wait for it the reader is given: FB_TAKE_ALL of them, in
                              * order; or the FB_TAKE_LATEST, for a live view: then `next` gives the newest closed
                              * step and counts those passed over as `missed`. Neither the simulation nor other
                              * readers notice, whatever the stream's policy */
    int32_t reserved;        /* 0 */
    const char *name;        /* what this reader is called: by simulations that wait for their readers
                              * (`wait_for_readers`), in errors, by `status` and in logs. The ranks of a parallel
                              * reader have one name, which no other parallel reader of the stream has */
    uint32_t rank;           /* of a parallel reader: this rank, counted from 0 (default 0) */
    uint32_t size;           /* how many ranks the reader has. They begin once all have come, have one position in
                              * the stream, and are given the same steps in the same order; a step is held until
                              * the last rank has released it (default 1) */
    int32_t on_loss;         /* of a parallel reader: what the other ranks do when one dies, FB_ON_RANK_LOSS_FAIL
                              * (they are told FB_LOST, which names it) or FB_ON_RANK_LOSS_GO_ON (without it: what
                              * it had not finished with, nobody reads) */
    int32_t reserved2;       /* 0 */
    const char *assign;      /* of a parallel reader: which blocks are this rank's, as fb_step_mine tells. "all";
                              * "ranks", those of whole ranks of the simulation, so that fields which belong
                              * together stay so; "round-robin"; "balanced", by bytes; "slab", a slab of each field
                              * that has a global shape, cut along its first dimension that is long enough;
                              * "host+ranks", "host+round-robin" or "host+balanced", where each rank is given first
                              * what lies on its own host. NULL: "all" */
    int32_t share;           /* whether the steps are shared out among all readers of this `name`:
                              * FB_SHARE_ON_DEMAND, each step goes to the reader that has asked for one first;
                              * FB_SHARE_ROUND_ROBIN, to the next in turn. Readers come and go; a step with which
                              * one that dies had not finished is given to another one, which is told how often
                              * that has happened (`attempt`). A reader has finished with a step when it releases
                              * it */
    int32_t reserved3;       /* 0 */
} fb_consumer_options;
#define FB_CONSUMER_OPTIONS_INIT \
    { sizeof(fb_consumer_options), NULL, NULL, 0, sizeof(fb_need), NULL, 30.0, NULL, 1, 4, 0, FB_START_NEXT, 0, 0, \
      1073741824, FB_TAKE_ALL, 0, NULL, 0, 1, FB_ON_RANK_LOSS_FAIL, 0, NULL, FB_SHARE_NONE, 0 }
/* end of what is generated */

/* generated from interface/forebay.toml: struct step_info */
/* What is told of a step. */
typedef struct fb_step_info {
    uint64_t struct_size;
    uint64_t run;
    uint64_t number;
    double time;       /* physical time, as the producer gave it; not a number if it gave none */
    uint64_t missed;   /* steps that were dropped before this one */
    int32_t rewound;   /* 1 if a new run went back: forget steps from `number` on (default 0) */
    int32_t torn;      /* 1 if a rank died in the step or left it out: parts may be missing (default 0) */
    uint32_t attempt;  /* where readers share steps: how often it was given before to one that did not finish with
                        * it (default 0) */
    int32_t reserved;  /* 0 */
} fb_step_info;
#define FB_STEP_INFO_INIT { sizeof(fb_step_info), 0, 0, 0, 0, 0, 0, 0, 0 }
/* end of what is generated */

/* generated from interface/forebay.toml: struct field_info */
/* What is told of a field of a step. Texts are valid until the step is released. */
typedef struct fb_field_info {
    uint64_t struct_size;
    const char *name;
    int32_t dtype;           /* FB_... */
    int32_t association;     /* FB_ASSOCIATION_... */
    uint32_t ndim;
    uint32_t every;          /* offered at every so many of the producer's steps (default 1) */
    int32_t placed;          /* 1: it has a global shape; 0: its blocks have no place in one (default 0) */
    int32_t has_dims;        /* 1: the producer named its dimensions; else `dims` are NULL (default 0) */
    int32_t has_spacing;     /* 1: the producer gave it; else all are 0 (default 0) */
    int32_t has_origin;      /* 1: the producer gave it; else all are 0 (default 0) */
    uint64_t shape[8];       /* the global shape, slowest dimension first */
    const char *dims[8];     /* names, slowest first */
    double spacing[8];       /* the distance of neighbours in each dimension */
    double origin[8];        /* where the first element lies */
    const char *units;       /* of its values; empty if the producer gave none */
    uint64_t periodic[8];    /* 1: the domain goes on with its first elements behind its last ones, in each
                              * dimension */
    uint64_t refinement[8];  /* how many elements of a level lie where one of the level below does; 0: the producer
                              * did not say */
    int32_t is_static;       /* 1: it belongs to the run, and not to this step alone (default 0) */
    int32_t reserved;        /* 0 */
} fb_field_info;
#define FB_FIELD_INFO_INIT \
    { sizeof(fb_field_info), NULL, 0, FB_ASSOCIATION_CELL, 0, 1, 0, 0, 0, 0, {0}, {NULL}, {0}, {0}, NULL, {0}, \
      {0}, 0, 0 }
/* end of what is generated */

/* generated from interface/forebay.toml: struct selection */
/* A part of a field, and where it goes. */
typedef struct fb_selection {
    uint64_t struct_size;
    const char *field;
    int32_t dtype;           /* of `data`; must be the field's */
    uint32_t ndim;
    const uint64_t *offset;  /* [ndim] where it begins */
    const uint64_t *shape;   /* [ndim] elements taken in each dimension */
    const uint64_t *every;   /* [ndim] every so many elements; NULL: 1 */
    void *data;              /* where they go */
    const int64_t *strides;  /* [ndim] of `data` in bytes; NULL for dense row-major */
    int32_t holes;           /* FB_HOLES_..., for fb_get */
    int32_t reserved;        /* 0 */
} fb_selection;
#define FB_SELECTION_INIT { sizeof(fb_selection), NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, FB_HOLES_REFUSED, 0 }
/* end of what is generated */

/* generated from interface/forebay.toml: struct view */
/* One block of a step, shown where it lies: its array is dense row-major, of shape + ghost_low + ghost_high. */
typedef struct fb_view {
    uint64_t struct_size;
    uint64_t number;          /* as it was put */
    uint32_t rank;            /* who put it */
    uint32_t level;
    int32_t dtype;            /* FB_... */
    uint32_t ndim;
    uint32_t server;          /* the number of the server that holds it */
    int32_t placed;           /* 0: an unplaced block, without an offset (default 0) */
    int32_t has_stats;        /* 1: it carries statistics of its interior, which the contract asked for
                               * (fb_need.stats); else those below are 0 (default 0) */
    int32_t reserved;         /* 0 */
    uint64_t offset[8];
    uint64_t shape[8];
    uint64_t ghost_low[8];
    uint64_t ghost_high[8];
    const void *data;         /* read-only; NULL for an empty block */
    uint64_t bytes;
    double min;               /* infinities are values; not a number if there are none */
    double max;               /* of integers that a double cannot hold, the next double outwards */
    double sum;
    uint64_t count;           /* how many elements are numbers */
    uint64_t nan;             /* and how many are not: these take no part in the rest */
    uint64_t step[8];         /* how far apart its elements lie in the global array: 1, but where the contract's
                               * part has a stride */
    double variance;          /* with `count` as divisor */
    uint64_t min_bits;        /* the smallest and the largest as elements of the field's own type, in the first
                               * bytes */
    uint64_t max_bits;
    uint64_t tiles;           /* how many tiles its interior has, if it has more than one: so many consecutive
                               * elements in C order that they have 64 KiB; of an interior of more than 256 MiB
                               * twice, four times ... that */
    const void *tile_bounds;  /* [tiles][2] of the field's own type: the smallest and the largest element of each;
                               * valid until the step is released */
} fb_view;
#define FB_VIEW_INIT \
    { sizeof(fb_view), 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, {0}, {0}, NULL, 0, 0, 0, 0, 0, 0, {0}, 0, 0, 0, 0, \
      NULL }
/* end of what is generated */

/* generated from interface/forebay.toml: struct stats */
/* Statistics of a whole field at a step: of all its blocks of level 0, without their ghosts. */
typedef struct fb_stats {
    uint64_t struct_size;
    double min;         /* infinities are values; not a number if there are none */
    double max;         /* of integers that a double cannot hold, the next double outwards */
    double sum;
    double variance;    /* with `count` as divisor */
    uint64_t count;     /* how many elements are numbers */
    uint64_t nan;       /* and how many are not: these take no part in the rest */
    uint64_t min_bits;  /* the smallest and the largest as elements of the field's own type, in the first bytes */
    uint64_t max_bits;
} fb_stats;
#define FB_STATS_INIT { sizeof(fb_stats), 0, 0, 0, 0, 0, 0, 0, 0 }
/* end of what is generated */

/* generated from interface/forebay.toml: struct value */
/* What an expression gives, or one of the values of an event. */
typedef struct fb_value {
    uint64_t struct_size;
    const char *label;   /* of an event's: the binding's name, or the aggregate as a text; valid until the event is
                          * released. Else NULL */
    int32_t kind;        /* FB_VALUE_...: of which kind it is */
    int32_t is_integer;  /* 1: a number that is an integer, which `integer` has exactly if it has 64 bits (default
                          * 0) */
    double number;       /* a number as a double; a condition as 0 or 1 */
    int64_t integer;     /* the nearest integer of 64 bits */
    uint64_t nan;        /* how many of the elements were no numbers */
    int32_t has_place;   /* 1: an extreme lies at `index`; 0: it has no place, and what follows is 0 (default 0) */
    uint32_t ndim;       /* of `index` */
    uint32_t level;      /* its refinement level */
    int32_t in_block;    /* 1: `index` counts in the interior of a block that has no place in a global array
                          * (default 0) */
    uint32_t rank;       /* with that: who put the block */
    int32_t reserved;    /* 0 */
    uint64_t block;      /* and its number */
    uint64_t index[8];   /* in the global array, or in the block */
} fb_value;
#define FB_VALUE_INIT { sizeof(fb_value), NULL, FB_VALUE_UNKNOWN, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0} }
/* end of what is generated */

/* Attaches to a stream, which may not exist yet. *consumer is NULL on failure. */
int fb_consumer_open(const fb_consumer_options *options, fb_consumer **consumer);
/* Waits for the next step that this consumer wants: FB_OK, FB_ENDED, FB_TIMEOUT or an error. `timeout` in
 * seconds; below 0: the one it was opened with. *step is NULL unless the result is FB_OK. */
int fb_consumer_next(fb_consumer *consumer, double timeout, fb_step **step);
/* Takes the next step if it is there: FB_OK, with *step NULL if it is not, or FB_ENDED or an error.  Does not wait, but for the
 * server's answer with FB_TAKE_LATEST.  FB_TIMEOUT if this reader holds as many steps as it may. */
int fb_consumer_poll(fb_consumer *consumer, fb_step **step);
int fb_step_info_get(const fb_step *step, fb_step_info *info);
/* The name of one of the fields that the step has, counted from 0; FB_NOT_FOUND past the last one. Valid
 * until the step is released. */
int fb_step_field_name(const fb_step *step, uint64_t index, const char **name);
/* Tells a field's dtype, global shape, dimensions, spacing, origin, units and association at this step. */
int fb_step_field(const fb_step *step, const char *field, fb_field_info *info);
/* An attribute of the stream (`field` NULL) or of one of its fields; FB_NOT_FOUND if it is not set.  What
 * *attribute then points at is valid until the step is released. */
int fb_attr_get(const fb_step *step, const char *field, const char *key, fb_attribute *attribute);
/* The key of one of the attributes, counted from 0; FB_NOT_FOUND past the last one.  Valid as above. */
int fb_attr_key(const fb_step *step, const char *field, uint64_t index, const char **key);
/* Copies exactly the region asked for, or fails and says what is missing.  With FB_HOLES_LEFT in selection->holes a
 * region with holes can be read. */
int fb_get(fb_step *step, const fb_selection *selection);
/* Tells where a region is filled by what was put: `data`, of dtype FB_BOOL, gets 1 there and else 0.  Reads no data. */
int fb_covered(const fb_step *step, const fb_selection *selection);
/* The statistics of a whole field, if the contract asks for them (fb_need.stats): FB_NOT_COVERED otherwise.  Moves no data. */
int fb_step_stats(const fb_step *step, const char *field, fb_stats *stats);
/* What an expression gives at a step: a number, a condition, or a place (docs/expressions.md).  Fields that it names without a
 * stream are those of the step.  Where all blocks that it takes lie on this host they are read where they lie, by this process;
 * else the servers evaluate it beside them, and nothing but the answer travels.  FB_INVALID, FB_NOT_FOUND, FB_TYPE_MISMATCH,
 * FB_OUT_OF_BOUNDS or FB_UNSUPPORTED where the text is wrong: the message shows the column.  FB_NOT_COVERED where elements lack. */
int fb_step_evaluate(const fb_step *step, const char *text, fb_value *value);
/* The blocks of a field, counted from 0, without a copy where the server is on this host. This is how to
 * read a field without a global shape, ghosts, and refined levels. Valid until the step is released. */
int fb_step_block_count(const fb_step *step, const char *field, uint64_t *count);
int fb_step_block(fb_step *step, const char *field, uint64_t index, fb_view *view);
/* The same of those that are this rank's, of a parallel reader, as `assign` in its options says; of another reader all. */
int fb_step_mine_count(const fb_step *step, const char *field, uint64_t *count);
int fb_step_mine(fb_step *step, const char *field, uint64_t index, fb_view *view);
/* The slab of a field that is this rank's, with assign "slab": where it begins, how many elements it has, and how far apart they
 * lie (`every` may be NULL), in each dimension; ndim numbers are written to each.  FB_INVALID where something else is assigned,
 * or if the field has no global shape.  Moves no data. */
int fb_step_mine_region(const fb_step *step, const char *field, uint64_t offset[], uint64_t shape[], uint64_t every[]);
/* Where a block lies in space, with or without its ghosts: view->ndim numbers each, by the field's spacing, origin and, above
 * level 0, refinement; FB_INVALID if the producer did not say these.  A cell reaches half the spacing to each side. */
int fb_view_bounds(const fb_step *step, const char *field, const fb_view *view, int ghosts, double low[], double high[]);
/* Which part of space a rank of the simulation said that it has (fb_put_rank_bounds): ndim numbers each; any of them may be
 * NULL.  FB_NOT_FOUND if it did not say so, FB_NOT_COVERED if the contract does not name "rank_bounds". */
int fb_step_rank_bounds(const fb_step *step, uint32_t rank, uint32_t ndim, double low[], double high[], double ghost_low[],
                        double ghost_high[]);
/* The rows of a field without a global shape: elements of its first dimension, counted from 0 over all blocks in the order of
 * ranks and of numbers, without ghosts; of a particle species these are its particles.  fb_get_rows copies shape[0] of them
 * behind the first offset[0]; the other extents are those of a row, from 0 on.  Only what is read is fetched. */
int fb_step_row_count(const fb_step *step, const char *field, uint64_t *count);
int fb_get_rows(fb_step *step, const fb_selection *selection);
/* Has finished with the step and frees its handle: its memory may be used again. NULL is allowed. */
int fb_step_release(fb_step *step);
/* Frees the handle of a step with which the reader could not do what it wanted.  Where readers share steps (`share` in the options)
 * another one is given it, or this one again: `attempt` in fb_step_info counts that.  Of others the next reader of their name begins
 * there (FB_START_RESUME), unless this one releases a later step.  NULL is allowed. */
int fb_step_give_back(fb_step *step);
/* Where another reader goes on (FB_START_CURSOR): the run, and the step after the last one that came.  Before the first
 * step has come it is the one from which on this reader takes part, or FB_NOT_FOUND if that is not known yet.  Does not
 * wait. */
int fb_consumer_cursor(const fb_consumer *consumer, uint64_t *run, uint64_t *step);
/* Changes what the reader needs, while it is attached: `count` fields, 0 for all fields every `every` of their steps.  Tells
 * the run and the step from which on that holds, 0 and 0 if the reader waits for a run; steps before it come as they were
 * needed before.  `run` and `step` may be NULL.  Waits until the servers have agreed on it.  What the run cannot meet is an
 * error, and the contract stays what it was. */
int fb_consumer_need(fb_consumer *consumer, const fb_need fields[], uint32_t count, uint32_t every, uint64_t *run,
                     uint64_t *step);
/* Detaches and frees the handle. Steps that are held stay valid until they are released. NULL is allowed. */
int fb_consumer_close(fb_consumer *consumer);
/* The same of a reader that has failed, as if its process had ended: the other ranks of a parallel reader are told FB_LOST, and of
 * the steps that it has not released the readers that share them are given those.  Does not wait.  NULL is allowed. */
int fb_consumer_abandon(fb_consumer *consumer);

/* ---- space: arrays by name, step and region, whoever put them ------------------------------- */

typedef struct fb_space fb_space;

/* generated from interface/forebay.toml: options space */
/* How to open a space. */
typedef struct fb_space_options {
    uint64_t struct_size;
    const char *group;      /* the group: a connection file's path, a group's name, or the file's text; by default
                             * FOREBAY_GROUP says */
    double timeout;         /* seconds that any wait may take: more than 0; infinity waits for ever (default 30) */
    const char *transport;  /* how blocks travel: "auto" (shared memory where the server is on this host, else
                             * TCP), "shm" or "tcp". NULL: "auto" */
    uint32_t replicas;      /* how many servers hold each array that this handle puts, 1 to 8: all but one of them
                             * may die. FB_INVALID if the group has fewer (default 1) */
    int32_t reserved;       /* 0 */
    const char *name;       /* what this handle is called by `status` and in logs; by default its host and process
                             * say which it is */
} fb_space_options;
#define FB_SPACE_OPTIONS_INIT { sizeof(fb_space_options), NULL, 30.0, NULL, 1, 0, NULL }
/* end of what is generated */

/* Finds the group. Connects to nothing yet. *space is NULL on failure. */
int fb_space_open(const fb_space_options *options, fb_space **space);
/* Keeps an array, or a part of it, until it is removed. block->field may be NULL. One copy; waits until a server holds it
 * and the directory knows it. */
int fb_space_put(fb_space *space, const fb_field *field, uint64_t step, const fb_block *block);
/* The same of a whole array, which takes the place of what there is under this name and step, if there is anything, in one
 * operation: who gets it gets the one before or the new one.  It may have another shape or dtype.  After FB_TIMEOUT or
 * FB_UNREACHABLE it may have been replaced. */
int fb_space_replace(fb_space *space, const fb_field *field, uint64_t step, const fb_block *block);
/* What there is in the space, by name and step, as JSON: a list of objects with name, step, dtype, shape, blocks (how many
 * were put) and bytes (of these, without copies).  Asks all servers.  Free it with fb_free. */
int fb_space_list(fb_space *space, char **json);
/* Copies exactly the region asked for, waiting up to `timeout` seconds (below 0: as in the options) until all of it was
 * put. */
int fb_space_get(fb_space *space, uint64_t step, double timeout, const fb_selection *selection);
/* What an expression gives of what is put of the fields of the space at a step, as fb_step_evaluate says; fields are named without a
 * stream.  Waits until the regions that it names are covered, up to `timeout` seconds (below 0: as in the options) all in all.  The
 * servers compute beside the blocks. */
int fb_space_evaluate(fb_space *space, uint64_t step, double timeout, const char *text, fb_value *value);
/* Removes what was put of a field at a step, on every server. */
int fb_space_remove(fb_space *space, const char *field, uint64_t step);
/* Frees the handle; what was put stays. NULL is allowed. */
int fb_space_close(fb_space *space);

/* ---- administration ------------------------------------------------------------------------- */

typedef struct fb_admin fb_admin;

/* generated from interface/forebay.toml: options admin */
/* How to look after a group. */
typedef struct fb_admin_options {
    uint64_t struct_size;
    const char *group;      /* the group: a connection file's path, a group's name, or the file's text; by default
                             * FOREBAY_GROUP says */
    double timeout;         /* seconds that each call may take. By default 30; 3 for a status; and 120 each for
                             * loading a pipeline's code and for starting its workers. Below 0: by default */
    const char *transport;  /* how blocks travel: "auto" (shared memory where the server is on this host, else
                             * TCP), "shm" or "tcp". NULL: "auto" */
    const char *name;       /* what this handle is called by `status` and in logs; by default its host and process
                             * say which it is */
} fb_admin_options;
#define FB_ADMIN_OPTIONS_INIT { sizeof(fb_admin_options), NULL, -1, NULL, NULL }
/* end of what is generated */

/* generated from interface/forebay.toml: struct pipeline_options */
/* A pipeline that is to be created. */
typedef struct fb_pipeline_options {
    uint64_t struct_size;
    const char *name;    /* under which it is found */
    const char *code;    /* "FILE.py:CLASS" */
    const char *stream;  /* that it runs on; NULL: the one that the class names, or the only one that the group has */
    const char *config;  /* its configuration, as JSON; NULL: {} */
    const char *python;  /* the Python to run it with; NULL: the one beside the command forebay */
    int32_t driven;      /* 1: it runs when ranks say so, through a handle, instead of on each closed step (default
                          * 0) */
    int32_t reserved;    /* 0 */
    const char *on;      /* the name of a subscription at whose events it runs; NULL: on each closed step */
} fb_pipeline_options;
#define FB_PIPELINE_OPTIONS_INIT { sizeof(fb_pipeline_options), NULL, NULL, NULL, NULL, NULL, 0, 0, NULL }
/* end of what is generated */

/* Finds a group, to look after it. Each call then connects for itself. *admin is NULL on failure. */
int fb_admin_open(const fb_admin_options *options, fb_admin **admin);

/* What the servers say of themselves, of streams and of pipelines, as JSON (docs/status.md); to be freed with fb_free.
 * Waits for all servers, with one deadline; one that does not answer has an `error`. */
int fb_admin_status(fb_admin *admin, char **json);

/* What a stream's latest run offers, and what of it each reader and pipeline needs: which steps, which part, how many bytes,
 * as JSON (docs/status.md, StreamContracts); to be freed with fb_free.  FB_NOT_FOUND if no server knows the stream.  Waits for
 * the server that coordinates it. */
int fb_admin_contracts(fb_admin *admin, const char *stream, char **json);

/* Starts `count` more servers of the group on this machine, in the background, and waits until they are members: their
 * numbers come into `servers`, unless that is NULL.  Nothing that runs is held up.  It runs `forebay add`, and needs that
 * command: the one that the variable FOREBAY_COMMAND names, that is installed beside the library, or the first on the
 * path. */
int fb_admin_add_servers(fb_admin *admin, uint32_t count, uint32_t servers[]);

/* Has a server leave the group and end.  What it holds, its ranks and workers go to the others first; waits until all of
 * that is done and the group has agreed: FB_TIMEOUT at the deadline, or FB_FULL where the others have no room, and the
 * server stays.  The last server that holds something, or has ranks, is FB_CONFLICT unless `discard` is 1, which gives
 * up what no other server can hold. */
int fb_admin_remove_server(fb_admin *admin, uint32_t server, int discard);

/* Has the group go on after it lost half of its servers or more at once, which they cannot agree on.  Tells how many
 * servers answer and how many do not, and the numbers of the first `room` of each; only if `force` is 1 are the latter
 * given up, with what only they held.  None of them may still run.  FB_CONFLICT where more than half answer: those agree
 * by themselves.  Waits for silent servers, some seconds at most.  `answering` and `silent` may be NULL. */
int fb_admin_heal(fb_admin *admin, int force, uint32_t room, uint32_t answering[], uint32_t *answering_count,
                  uint32_t silent[], uint32_t *silent_count);

/* Gives every server a worker that runs a pipeline's code, and waits until all are ready: FB_PIPELINE_FAILED with the
 * traceback if the code fails.  After an error there is no such pipeline.  It runs `forebay pipeline create`, which needs
 * that command as fb_admin_add_servers does, and Python with the package. */
int fb_admin_create_pipeline(fb_admin *admin, const fb_pipeline_options *options);
/* Ends a pipeline and its workers. */
int fb_admin_destroy_pipeline(fb_admin *admin, const char *name);

/* Ends every server of the group. FB_TIMEOUT for one that does not answer, once all are told. */
int fb_admin_shutdown(fb_admin *admin);
/* Frees the handle. NULL is allowed. */
int fb_admin_close(fb_admin *admin);

/* The text of a group's connection file, once the group is complete, for one rank to hand to all others as
 * their fb_producer_options.group; to be freed with fb_free. It holds the group's secret, and names the file: ranks that
 * see it look there for servers that join later. */
int fb_group_text(const char *group, char **text);

/* ---- looking at a stream -------------------------------------------------------------------- */

/* Looks at a stream without becoming one of its readers: nothing is demanded of the simulation, and what is held is there since a
 * reader or the simulation's `keep` holds it.  Finds the group; the stream need not exist yet. */
int fb_stream_open(const fb_admin_options *options, const char *name, fb_stream **stream);
/* The closed steps that are held now, of all runs, the oldest first, as JSON: a list of objects with run, number, time (null
 * if the producer gave none), fields (their names), bytes (without copies), blocks and torn.  Waits for the servers; moves
 * no data.  Free it with fb_free. */
int fb_stream_steps(fb_stream *stream, char **json);
/* The newest closed step that is held: FB_NOT_FOUND if none is.  It is held until fb_step_release, even if the stream is
 * closed.  Waits for the servers. */
int fb_stream_latest(fb_stream *stream, fb_step **step);
/* The step of this number of a run, counted from 1, or of the latest run with run 0.  FB_DROPPED if it is held no longer: the
 * message says which is the next that is.  FB_NOT_FOUND if there was none, or it is not closed yet. */
int fb_stream_at(fb_stream *stream, uint64_t run, uint64_t number, fb_step **step);
/* Frees the handle. NULL is allowed. */
int fb_stream_close(fb_stream *stream);

/* ---- subscriptions -------------------------------------------------------------------------- */

/* A subscription that this process listens to; one of its events. */
typedef struct fb_subscription fb_subscription;
typedef struct fb_event fb_event;

/* generated from interface/forebay.toml: struct subscription_options */
/* How to make a subscription. */
typedef struct fb_subscription_options {
    uint64_t struct_size;
    const char *group;      /* as in fb_consumer_options */
    double timeout;         /* seconds that making it may take (default 30) */
    const char *transport;  /* as in fb_consumer_options, for the data of its events */
    const char *name;       /* unique in its stream; NULL: one that nobody else has. If there is one that watches
                             * for the same, that goes on; FB_CONFLICT if one of the name watches for something
                             * else */
    const char *stream;     /* the stream of fields that the text names without one, or NULL */
    uint32_t every;         /* at every so many of the steps at which its fields are offered (default 1) */
    int32_t on;             /* FB_ON_...: at which evaluations there are events */
    uint64_t limit;         /* it ends after so many events; 0: never (default 0) */
    double expires;         /* it ends after so many seconds; 0: never (default 0) */
    int32_t missing;        /* FB_MISSING_... */
    int32_t keep;           /* 1: it goes on without anybody who listens, also when this process has ended; 0: it
                             * ends half a minute after that (default 0) */
    int32_t keep_around;    /* 1: keeps the step of each event and those around it in the servers' memory, 128 at
                             * most, the latest: fb_stream_at reads them (default 0) */
    uint32_t keep_before;   /* with that: so many steps before it (default 0) */
    uint32_t keep_after;    /* and so many after it (default 0) */
    uint32_t hold;          /* for how many seconds an event holds its step for those who have not taken it
                             * (default 30) */
    int32_t begin;          /* FB_BEGIN_...: with which event to begin, where there is one of the name already */
    uint32_t window;        /* how many events may be held at once, 1 to 1024 (default 4) */
    uint64_t after;         /* with FB_BEGIN_AFTER: the number of the event before, as fb_subscription_cursor tells
                             * (default 0) */
    int32_t space;          /* 1: the fields are those of the space, and each step is watched at the put that
                             * completes the regions that the text names; its events hold no steps: fb_space_get
                             * reads them. Without `stream` and `keep_around` (default 0) */
    int32_t reserved;       /* 0 */
} fb_subscription_options;
#define FB_SUBSCRIPTION_OPTIONS_INIT \
    { sizeof(fb_subscription_options), NULL, 30.0, NULL, NULL, NULL, 1, FB_ON_EACH, 0, 0.0, FB_MISSING_SKIP, 0, 0, \
      0, 0, 30, FB_BEGIN_RESUME, 4, 0, 0, 0 }
/* end of what is generated */

/* generated from interface/forebay.toml: struct event_info */
/* What is told of an event. */
typedef struct fb_event_info {
    uint64_t struct_size;
    int32_t turn;           /* FB_TURN_... */
    uint32_t values_count;  /* how many values it has */
    uint64_t number;        /* its number among the events of the subscription, from 1 on; 0 where nothing is known */
    uint64_t run;
    uint64_t step;
    double time;            /* physical time; not a number if the producer gave none */
    uint64_t episode;       /* the number of the episode, from 1 on */
    uint64_t first;         /* the step at which the episode began */
    uint64_t missing;       /* how many evaluations of the episode gave nothing known */
    uint64_t missed;        /* how many events before it were forgotten before this subscriber could be told of
                             * them */
    int32_t has_step;       /* 1: its step is held, and not taken yet (default 0) */
    int32_t reserved;       /* 0 */
    const char *why;        /* with FB_TURN_UNKNOWN: why it is not known; else NULL. Valid until the event is
                             * released */
} fb_event_info;
#define FB_EVENT_INFO_INIT { sizeof(fb_event_info), FB_TURN_UNKNOWN, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL }
/* end of what is generated */

/* Has the servers watch for something, from the next step on that begins after they have agreed on it, and returns at once: the
 * first one of a process for a connection, the next ones for one answer.  The stream need not be there yet.  Errors as of
 * fb_step_evaluate, as far as they are known already.  `options` may be NULL.  *subscription is NULL on failure. */
int fb_subscribe(const fb_subscription_options *options, const char *text, fb_subscription **subscription);
/* The subscription's name, which was given or made up; valid until the handle is closed. */
int fb_subscription_name(const fb_subscription *subscription, const char **name);
/* Waits until the servers have agreed from which step on it watches; 0 and 0 if there is no run yet.  `run` and `step` may be
 * NULL. */
int fb_subscription_wait_active(fb_subscription *subscription, uint64_t *run, uint64_t *step);
/* The number of the event behind which it goes on, the last one that came: FB_BEGIN_AFTER goes on there in another handle.
 * FB_NOT_FOUND before the first one with FB_BEGIN_FIRST.  Does not wait. */
int fb_subscription_cursor(const fb_subscription *subscription, uint64_t *number);
/* Pauses, resumes or removes it: FB_CHANGE_...  Waits for the server that coordinates the stream. */
int fb_subscription_change(fb_subscription *subscription, int change);
/* Waits for the next event: FB_OK, FB_ENDED when the subscription has ended and all its events were told, FB_TIMEOUT or an error.
 * `timeout` in seconds; below 0: as long as it takes.  Each event comes once, in the order of steps, also when servers die.  What is
 * not known is told in between, once for each sort of reason, with FB_TURN_UNKNOWN: look at the turn.  *event is NULL unless the
 * result is FB_OK. */
int fb_event_next(fb_subscription *subscription, double timeout, fb_event **event);
int fb_event_info_get(const fb_event *event, fb_event_info *info);
/* One of its values, counted from 0: what the bindings are, and the aggregates; FB_NOT_FOUND past the last one. */
int fb_event_value(const fb_event *event, uint64_t index, fb_value *value);
/* Takes its step out of the event: from now on it is yours, to be released with fb_step_release, also after the event.  FB_DROPPED if
 * it is held no longer, FB_CLOSED if it was taken before. */
int fb_event_step(fb_event *event, fb_step **step);
/* Frees the handle of an event, and releases its step unless that was taken.  NULL is allowed. */
int fb_event_release(fb_event *event);
/* Listens no more, and frees the handle.  The subscription goes on if it is to be kept, or others listen to it; else it ends half a
 * minute after that.  Events stay valid until they are released.  Waits until the server knows with which events this subscriber has
 * finished; no longer than a second.  NULL is allowed. */
int fb_subscription_close(fb_subscription *subscription);

/* All subscriptions of a group, as JSON: what each watches for, and what has come of it (docs/status.md, SubscriptionStatus); to be
 * freed with fb_free.  Waits for all servers. */
int fb_admin_subscriptions(fb_admin *admin, char **json);
/* Pauses, resumes or removes a subscription, whoever has made it: FB_CHANGE_...  `stream` is needed only where several streams have
 * one of the name, else it may be NULL. */
int fb_admin_change_subscription(fb_admin *admin, const char *name, const char *stream, int change);

/* ---- general -------------------------------------------------------------------------------- */

/* The text of the calling thread's last error; valid until its next call. Never NULL. A call that succeeds
 * leaves it as it is. */
const char *fb_error(void);
/* The number of the server that the calling thread's last error is about: one that could not be reached, did not answer in
 * time or is not there, or that held what is lost.  -1 if it is about no server.  A call that succeeds leaves it as it is. */
int64_t fb_error_server(void);
/* Makes `text` the calling thread's last error, about no server, and returns `result`: for libraries on top of this one. */
int fb_error_set(int result, const char *text);
/* The name of a result code, as in the list above. Never NULL. */
const char *fb_result_name(int result);
/* 1 if the same call may succeed later although you have changed nothing, else 0. */
int fb_result_is_retryable(int result);
const char *fb_version(void);

/* A name that no other job has, for `job` in fb_producer_options: one rank makes it and tells the others, which
 * fb_producer_open_mpi does.  Free it with fb_free.  Does not wait. */
int fb_new_job_name(char **name);
/* Frees a text that fb_admin_status, fb_admin_contracts, fb_admin_subscriptions, fb_stream_steps, fb_space_list, fb_group_text or
 * fb_new_job_name gave. NULL is allowed. */
void fb_free(char *text);

#ifdef __cplusplus
}
#endif
#endif /* FOREBAY_H */
