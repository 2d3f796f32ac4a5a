/* Forebay's communicators: messages and collectives among processes that meet by name, without MPI.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *     fb_comm *comm;
 *     if (fb_comm_open("solver", rank, size, NULL, 30.0, &comm) != FB_OK) ...
 *     double mine = ..., sum;
 *     fb_comm_allreduce(comm, &mine, &sum, 1, FB_F64, FB_OP_SUM);
 *     fb_comm_close(comm);
 *
 * The processes may be on several hosts, and come and go: a communicator is cheap to make and to throw away.  Those of one host
 * share memory.  No server is in between: one only tells the ranks where they are.
 *
 * Errors.  As in forebay.h: FB_OK or an error kind, and fb_error() has the text.  Every call has a deadline, by default 60 seconds
 * (fb_comm_set_timeout): FB_TIMEOUT names what was awaited, and from whom.  What involves a rank that died fails at once with
 * FB_UNREACHABLE, which names it.  A collective that ranks call differently, with other sizes, types, roots or operations, fails
 * with FB_INVALID; after one has failed on a rank, so do the others of that communicator, on all ranks.
 *
 * Memory.  Buffers are bytes, except in reductions, whose elements have a dtype of forebay.h.  Up to 16 KiB of a message are copied
 * into memory that both processes share; more is read by the receiver where it lies, so that the sender waits until it is
 * received.  In collectives `sent` and `received` may be the same pointer where that is said; otherwise they must not overlap.
 *
 * Threads.  Messages may be sent and received by many threads at once; collectives are called in one order by all ranks.  After
 * fork() the child's communicators are dead, as all handles of forebay.h.
 */
#ifndef FOREBAY_COMM_H
#define FOREBAY_COMM_H

#include "forebay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In the place of a source or a tag: of any rank, with any tag. */
#define FB_ANY (-1)
/* How many ranks a communicator may have. */
#define FB_COMM_SIZE_MAX 4096

/* Some ranks that talk to each other. */
typedef struct fb_comm fb_comm;
/* An operation that goes on while its caller does something else. */
typedef struct fb_comm_request fb_comm_request;

/* Which message was received.  It never grows. */
typedef struct fb_comm_status {
    uint32_t source;   /* the rank that sent it */
    uint32_t reserved; /* 0 */
    uint64_t tag;
    uint64_t bytes;    /* its length */
} fb_comm_status;

/* Operations of reductions. */
enum {
    FB_OP_SUM = 1,
    FB_OP_PRODUCT = 2,
    FB_OP_MIN = 3,          /* of a number and a NaN the NaN */
    FB_OP_MAX = 4,
    FB_OP_LOGICAL_AND = 5,  /* of integers and FB_BOOL, as the next two */
    FB_OP_LOGICAL_OR = 6,
    FB_OP_LOGICAL_XOR = 7,
    FB_OP_BIT_AND = 8,      /* of integers, as the next two */
    FB_OP_BIT_OR = 9,
    FB_OP_BIT_XOR = 10,
    FB_OP_MIN_LOCATION = 11, /* of pairs: the smaller value with its place; of two that are equal the lower place */
    FB_OP_MAX_LOCATION = 12
};

/* Pairs of a value and a place, an int32_t, as C lays out a struct of both. */
enum { FB_F32_PLACE = 101, FB_F64_PLACE = 102, FB_I64_PLACE = 103, FB_I32_PLACE = 104, FB_I16_PLACE = 105 };

/* Elements of so many bytes that no operation knows, for functions. */
#define FB_ELEMENT(bytes) (-(int32_t)(bytes))

/* Replaces each of `count` elements of `higher`, which are of the higher ranks, by what it makes of that and the one of `lower`.
 * It must give the same on every rank; it need not commute.  What it returns other than 0 fails the collective, on all ranks. */
typedef int(fb_comm_function)(const void *lower, void *higher, uint64_t count, void *user);

/* ---- communicators --------------------------------------------------------------------------- */

/* Opens a communicator by its name, as one of its ranks.  Every rank calls it once, with the same size; this waits for
 * all, `timeout` seconds at most (0: as long as other handles do): then FB_TIMEOUT names those that did not come.
 * FB_CONFLICT if a rank has come twice, or with another size.  `group` is the connection file, or NULL.  *comm is NULL
 * on failure. */
int fb_comm_open(const char *name, uint32_t rank, uint32_t size, const char *group, double timeout, fb_comm **comm);
/* Which rank this process is. */
int fb_comm_rank(const fb_comm *comm, uint32_t *rank);
/* How many ranks there are. */
int fb_comm_size(const fb_comm *comm, uint32_t *size);
/* How long, in seconds, one operation may wait in all, from the next one on. */
int fb_comm_set_timeout(fb_comm *comm, double timeout);
/* Splits it: those with the same color, 0 or more, are together, in the order of `key`, then of their ranks.  With a
 * negative color this rank is in no part, and *part is NULL.  All ranks call it.  Each part has messages and
 * collectives of its own. */
int fb_comm_split(fb_comm *comm, int64_t color, int64_t key, fb_comm **part);
/* The same ranks once more, with messages and collectives of their own.  All ranks call it. */
int fb_comm_dup(fb_comm *comm, fb_comm **copy);
/* Ends it on all ranks, for one that cannot go on, so that nobody waits for it in vain: what they have begun in it and what they begin
 * fails with FB_UNREACHABLE, whose text tells this rank and `why`, on this rank, too.  They hear of it at once if they have talked to
 * this rank, wait for it, or for one that knows; else as soon as they do.  What has arrived may still be received.  Parts of it, and
 * what it is a part of, go on.  Waits for nobody.  The handle is still to be closed. */
int fb_comm_revoke(fb_comm *comm, const char *why);
/* Makes an operation of a function, for reductions of this communicator, which is given `user` at each call.  At most
 * 1000. */
int fb_comm_function_op(fb_comm *comm, fb_comm_function *function, void *user, int32_t *op);
/* Closes it and frees the handle; parts of it and requests go on.  Once all of them are closed, too, who waits for this
 * rank fails at once.  Waits until the others have read what was sent, 2 seconds at most.  NULL is allowed. */
int fb_comm_close(fb_comm *comm);

/* ---- messages ---------------------------------------------------------------------------- */

/* Sends so many bytes, also to itself.  Returns when they may be reused. */
int fb_comm_send(fb_comm *comm, uint32_t dest, uint64_t tag, const void *bytes, uint64_t count);
/* Receives a message from a rank or FB_ANY, with a tag or FB_ANY.  Waits for it.  FB_INVALID if it is longer than
 * `room`: then it is gone.  `status` may be NULL. */
int fb_comm_recv(fb_comm *comm, int64_t source, int64_t tag, void *bytes, uint64_t room, fb_comm_status *status);
/* Both at once. */
int fb_comm_sendrecv(fb_comm *comm, uint32_t dest, uint64_t send_tag, const void *sent, uint64_t count,
    int64_t source, int64_t recv_tag, void *received, uint64_t room, fb_comm_status *status);
/* Waits until there is a message that fb_comm_recv would take, and leaves it there. */
int fb_comm_probe(fb_comm *comm, int64_t source, int64_t tag, fb_comm_status *status);
/* Whether there is one, in *there.  Does not wait. */
int fb_comm_iprobe(fb_comm *comm, int64_t source, int64_t tag, int *there, fb_comm_status *status);
/* As fb_comm_send, put aside: the bytes must stay as they are until the request is over. */
int fb_comm_isend(fb_comm *comm, uint32_t dest, uint64_t tag, const void *bytes, uint64_t count,
    fb_comm_request **request);
/* As fb_comm_recv, put aside. */
int fb_comm_irecv(fb_comm *comm, int64_t source, int64_t tag, void *bytes, uint64_t room, fb_comm_request **request);

/* ---- requests ---------------------------------------------------------------------------- */

/* Waits until an operation is over, by its communicator's deadline, frees its handle and makes it NULL, also when it
 * has failed.  A request gets on while its process is in any call of a communicator, as with MPI.  NULL in *request is
 * over.  `status` may be NULL; it is written for messages that were received. */
int fb_comm_wait(fb_comm_request **request, fb_comm_status *status);
/* The same if it is over, which *done says.  Does not wait. */
int fb_comm_test(fb_comm_request **request, int *done, fb_comm_status *status);
/* Waits until one of them is over, and does with it as fb_comm_wait; *index says which one.  NULLs are passed over;
 * FB_ENDED if all are NULL. */
int fb_comm_wait_any(fb_comm_request **requests, uint64_t count, uint64_t *index, fb_comm_status *status);
/* Waits until all are over.  The first error is told; the handles are freed all the same. */
int fb_comm_wait_all(fb_comm_request **requests, uint64_t count);
/* Gives an operation up, and frees its handle: nothing is written to its memory any more.  What was sent may arrive
 * all the same. */
int fb_comm_cancel(fb_comm_request **request);

/* ---- collectives ------------------------------------------------------------------------- */

/* Returns when every rank has called it. */
int fb_comm_barrier(fb_comm *comm);
/* Fills every rank's memory with the root's. */
int fb_comm_bcast(fb_comm *comm, void *bytes, uint64_t count, uint32_t root);
/* Combines so many elements of every rank one by one, in the order of ranks, for the root; `received` is only looked
 * at there, and may be `sent`. */
int fb_comm_reduce(fb_comm *comm, const void *sent, void *received, uint64_t count, int32_t dtype, int32_t op,
    uint32_t root);
/* The same for all, which have the same bits.  `received` may be `sent`. */
int fb_comm_allreduce(fb_comm *comm, const void *sent, void *received, uint64_t count, int32_t dtype, int32_t op);
/* Combines the elements of all ranks up to this one.  `received` may be `sent`. */
int fb_comm_scan(fb_comm *comm, const void *sent, void *received, uint64_t count, int32_t dtype, int32_t op);
/* Combines the elements of all ranks below this one; rank 0's `received` stays as it is.  It may be `sent`. */
int fb_comm_exscan(fb_comm *comm, const void *sent, void *received, uint64_t count, int32_t dtype, int32_t op);
/* Combines the elements of all ranks, and gives each its block of the result: counts[size] are their numbers of
 * elements, by rank. */
int fb_comm_reduce_scatter(fb_comm *comm, const void *sent, void *received, const uint64_t *counts, int32_t dtype,
    int32_t op);
/* Gives the root so many bytes of every rank, one behind the other.  Its own may stand in their place: `sent` is there
 * then. */
int fb_comm_gather(fb_comm *comm, const void *sent, uint64_t count, void *received, uint32_t root);
/* The same of different numbers: counts[size] is only looked at by the root. */
int fb_comm_gatherv(fb_comm *comm, const void *sent, uint64_t count, void *received, const uint64_t *counts, uint32_t
    root);
/* Gives each rank so many bytes of the root's `sent`.  The root's own may stay in their place: `received` is there
 * then. */
int fb_comm_scatter(fb_comm *comm, const void *sent, void *received, uint64_t count, uint32_t root);
/* The same of different numbers: counts[size] is only looked at by the root, `count` is this rank's. */
int fb_comm_scatterv(fb_comm *comm, const void *sent, const uint64_t *counts, void *received, uint64_t count, uint32_t
    root);
/* Gives every rank so many bytes of every rank, one behind the other.  Its own may stand in their place. */
int fb_comm_allgather(fb_comm *comm, const void *sent, uint64_t count, void *received);
/* The same of different numbers: counts[size] is the same on all ranks. */
int fb_comm_allgatherv(fb_comm *comm, const void *sent, uint64_t count, void *received, const uint64_t *counts);
/* Gives each rank its block, so many bytes, of every rank's memory. */
int fb_comm_alltoall(fb_comm *comm, const void *sent, void *received, uint64_t count);
/* The same of different numbers: what one rank sends to another one, that one must expect. */
int fb_comm_alltoallv(fb_comm *comm, const void *sent, const uint64_t *sent_counts, void *received,
    const uint64_t *received_counts);

/* ---- pictures --------------------------------------------------------------------------------- */

/* In the place of the root of a picture: every rank has the result. */
#define FB_ALL_RANKS (-1)

/* Puts the pictures of all ranks together: of each pixel what is nearest; of equal depths the lowest rank's.  `colors` are four
 * bytes for each pixel, `depths` a float, less is nearer: what is not less than `far`, which is the same on all ranks, is background
 * and is not sent.  The root has the result in its own `colors`, and in `depths` if with_depths is 1; pixels that nobody has stay as
 * they are.  What the others' memory holds afterwards is of no use.  By radix-k (Peterka et al., 2009). */
int fb_comm_composite_nearest(fb_comm *comm, void *colors, void *depths, uint64_t pixels, double far,
    int32_t with_depths, int64_t root);
/* Puts layers together that one sees through, from front to back in the order of their positions, of which all ranks' layers have
 * different ones.  A rank gives `count` of them, also none.  Each is red, green and blue, multiplied with alpha, and alpha, of each
 * pixel, in FB_U8 or FB_F32.  The root has the result in `into`, which is NULL or of the same size elsewhere.  The operator is "over"
 * of Porter and Duff (1984). */
int fb_comm_composite_over(fb_comm *comm, const void *const *layers, const uint32_t *positions, uint32_t count,
    uint64_t pixels, int32_t dtype, void *into, int64_t root);
/* The order of boxes from front to back, as indices: no box hides a part of one that comes before it.  Six numbers for each: its
 * lowest corner, its highest.  They must not overlap, but may touch.  Give the place of the `eye`, or for a parallel projection the
 * `direction` in which it looks; the other one is NULL.  At most 65,536. */
int fb_front_to_back(const double *boxes, uint64_t count, const double *eye, const double *direction, uint64_t *order);

/* ---- collectives that are put aside ------------------------------------------------------ */

/* As those above.  All ranks begin theirs in one order; memory must stay as it is until they are over. */
int fb_comm_ibarrier(fb_comm *comm, fb_comm_request **request);
int fb_comm_ibcast(fb_comm *comm, void *bytes, uint64_t count, uint32_t root, fb_comm_request **request);
int fb_comm_ireduce(fb_comm *comm, const void *sent, void *received, uint64_t count, int32_t dtype, int32_t op,
    uint32_t root, fb_comm_request **request);
int fb_comm_iallreduce(fb_comm *comm, const void *sent, void *received, uint64_t count, int32_t dtype, int32_t op,
    fb_comm_request **request);
int fb_comm_iscan(fb_comm *comm, const void *sent, void *received, uint64_t count, int32_t dtype, int32_t op,
    fb_comm_request **request);
int fb_comm_iexscan(fb_comm *comm, const void *sent, void *received, uint64_t count, int32_t dtype, int32_t op,
    fb_comm_request **request);
int fb_comm_ireduce_scatter(fb_comm *comm, const void *sent, void *received, const uint64_t *counts, int32_t dtype,
    int32_t op, fb_comm_request **request);
int fb_comm_igather(fb_comm *comm, const void *sent, uint64_t count, void *received, uint32_t root,
    fb_comm_request **request);
int fb_comm_igatherv(fb_comm *comm, const void *sent, uint64_t count, void *received, const uint64_t *counts, uint32_t
    root, fb_comm_request **request);
int fb_comm_iscatter(fb_comm *comm, const void *sent, void *received, uint64_t count, uint32_t root,
    fb_comm_request **request);
int fb_comm_iscatterv(fb_comm *comm, const void *sent, const uint64_t *counts, void *received, uint64_t count,
    uint32_t root, fb_comm_request **request);
int fb_comm_iallgather(fb_comm *comm, const void *sent, uint64_t count, void *received, fb_comm_request **request);
int fb_comm_iallgatherv(fb_comm *comm, const void *sent, uint64_t count, void *received, const uint64_t *counts,
    fb_comm_request **request);
int fb_comm_ialltoall(fb_comm *comm, const void *sent, void *received, uint64_t count, fb_comm_request **request);
int fb_comm_ialltoallv(fb_comm *comm, const void *sent, const uint64_t *sent_counts, void *received,
    const uint64_t *received_counts, fb_comm_request **request);

#ifdef __cplusplus
}
#endif

#endif
