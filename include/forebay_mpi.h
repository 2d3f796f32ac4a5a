/* Opens a Forebay producer, a handle that drives a pipeline, or a parallel reader, on every rank of an MPI communicator.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Header only: the Forebay library knows no MPI, so that it need not match the site's.  One rank reads the
 * connection file and broadcasts its text: a thousand ranks do not open one file, and the file need not be
 * visible on every node.  Ranks that do see it look there again when servers have joined.
 *
 *     fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
 *     options.stream = "grayscott";
 *     fb_producer *producer;
 *     if (fb_producer_open_mpi(&options, MPI_COMM_WORLD, &producer) != FB_OK)
 *         fprintf(stderr, "%s\n", fb_error_mpi());
 *
 * The text holds the group's secret.  It travels as MPI messages do: within the job, unencrypted.
 */
#ifndef FOREBAY_MPI_H
#define FOREBAY_MPI_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "forebay.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FB_MPI_ERROR_MAX = 1024, FB_MPI_JOB_MAX = 256 };

/* Joins the stream as rank and size of `comm` (the two in `options` are ignored), and as one job: no rank of another one
 * is taken for one of these.  Collective: all ranks
 * return FB_OK, or all return the same kind of error with the same text, since a stream that lacks a rank
 * could never close a step. */
static inline int fb_producer_open_mpi(const fb_producer_options *options, MPI_Comm comm, fb_producer **producer);

/* Opens a handle that drives the pipeline `name`, as fb_pipeline_open does, on all ranks of `comm`.  Collective, as
 * fb_producer_open_mpi. */
static inline int fb_pipeline_open_mpi(const fb_producer_options *options, const char *name, int64_t server, MPI_Comm comm,
                                       fb_pipeline **pipeline);

/* Attaches a reader with one rank for each of `comm` (`rank` and `size` in `options` are ignored).  Without a name in `options`
 * it is given one that no other reader has.  Collective, as fb_producer_open_mpi. */
static inline int fb_consumer_open_mpi(const fb_consumer_options *options, MPI_Comm comm, fb_consumer **consumer);

/* The text of the calling thread's last failure: after one of these failed that of the rank that failed, which
 * may be another one.  It is fb_error(), under the name that it has had.  Never NULL. */
static inline const char *fb_error_mpi(void);

/* ---- below: how ----------------------------------------------------------------------------- */

static inline const char *fb_error_mpi(void) { return fb_error(); }

/* Makes all ranks agree: FB_OK, or the kind and text of the lowest rank that failed, in *text as well. */
static inline int fb_mpi_agree(int result, MPI_Comm comm, int rank, int ranks, char text[FB_MPI_ERROR_MAX]) {
    int mine = result == FB_OK ? ranks : rank, first;
    if (MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm) != MPI_SUCCESS) {
        snprintf(text, FB_MPI_ERROR_MAX, "rank %d: MPI_Allreduce failed: see what MPI says of it", rank);
        return FB_IO;
    }
    if (first == ranks) return FB_OK;
    if (first == rank) snprintf(text, FB_MPI_ERROR_MAX, "rank %d: %.900s", rank, fb_error());
    MPI_Bcast(&result, 1, MPI_INT, first, comm);
    MPI_Bcast(text, FB_MPI_ERROR_MAX, MPI_CHAR, first, comm);
    return result;
}

/* What rank 0 tells the others: the connection file's text, to be freed, and a name: the one that is given, or a new one. */
static inline int fb_mpi_tell(const char *group, const char *given_name, MPI_Comm comm, int rank, int ranks, char **text,
                              char name[FB_MPI_JOB_MAX], char error[FB_MPI_ERROR_MAX]) {
    char *given = NULL, *made = NULL;
    int length = 0, result = FB_OK;
    *text = NULL;
    if (rank == 0) {
        result = fb_group_text(group, &given);
        if (result == FB_OK) length = (int)strlen(given) + 1; /* a few kilobytes */
        if (result == FB_OK && !given_name) result = fb_new_job_name(&made);
        if (result == FB_OK) snprintf(name, FB_MPI_JOB_MAX, "%s", given_name ? given_name : made);
        fb_free(made);
    }
    result = fb_mpi_agree(result, comm, rank, ranks, error);
    if (result != FB_OK) {
        fb_free(given);
        return result;
    }
    MPI_Bcast(&length, 1, MPI_INT, 0, comm);
    if (!(*text = (char *)malloc((size_t)length))) {
        result = fb_error_set(FB_IO, "no memory for the connection file's text: free some");
    } else if (rank == 0) {
        memcpy(*text, given, (size_t)length);
    }
    fb_free(given);
    result = fb_mpi_agree(result, comm, rank, ranks, error);
    if (result == FB_OK) {
        MPI_Bcast(*text, length, MPI_CHAR, 0, comm);
        MPI_Bcast(name, FB_MPI_JOB_MAX, MPI_CHAR, 0, comm);
    }
    return result;
}

/* One rank of a job that opens a stream: what it was told, and by whom. */
struct fb_mpi_job {
    int rank, ranks;
    char *text; /* to be freed */
    char name[FB_MPI_JOB_MAX], error[FB_MPI_ERROR_MAX];
};

/* Fills in what all ranks of `comm` have from it.  `job` lives as long as `options` are used. */
static inline int fb_mpi_join(fb_producer_options *options, MPI_Comm comm, struct fb_mpi_job *job) {
    int result;
    job->name[0] = job->error[0] = '\0';
    MPI_Comm_rank(comm, &job->rank);
    MPI_Comm_size(comm, &job->ranks);
    result = fb_mpi_tell(options->group, options->job, comm, job->rank, job->ranks, &job->text, job->name, job->error);
    if (result != FB_OK) return result;
    options->job = job->name;
    options->group = job->text;
    options->rank = (uint32_t)job->rank;
    options->size = (uint32_t)job->ranks;
    return FB_OK;
}

static inline int fb_producer_open_mpi(const fb_producer_options *options, MPI_Comm comm, fb_producer **producer) {
    fb_producer_options mine = *options;
    struct fb_mpi_job job;
    int result;

    *producer = NULL;
    result = fb_mpi_join(&mine, comm, &job);
    if (result == FB_OK) result = fb_mpi_agree(fb_producer_open(&mine, producer), comm, job.rank, job.ranks, job.error);
    if (result != FB_OK && *producer) {
        fb_producer_close(*producer);
        *producer = NULL;
    }
    free(job.text);
    return result == FB_OK ? FB_OK : fb_error_set(result, job.error);
}

static inline int fb_pipeline_open_mpi(const fb_producer_options *options, const char *name, int64_t server, MPI_Comm comm,
                                       fb_pipeline **pipeline) {
    fb_producer_options mine = *options;
    struct fb_mpi_job job;
    int result;

    *pipeline = NULL;
    result = fb_mpi_join(&mine, comm, &job);
    if (result == FB_OK)
        result = fb_mpi_agree(fb_pipeline_open(&mine, name, server, pipeline), comm, job.rank, job.ranks, job.error);
    if (result != FB_OK && *pipeline) {
        fb_pipeline_close(*pipeline);
        *pipeline = NULL;
    }
    free(job.text);
    return result == FB_OK ? FB_OK : fb_error_set(result, job.error);
}

static inline int fb_consumer_open_mpi(const fb_consumer_options *options, MPI_Comm comm, fb_consumer **consumer) {
    fb_consumer_options mine = *options;
    char *text, name[FB_MPI_JOB_MAX] = "", error[FB_MPI_ERROR_MAX] = "";
    int rank, ranks, result;

    *consumer = NULL;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    result = fb_mpi_tell(options->group, options->name, comm, rank, ranks, &text, name, error);
    if (result == FB_OK) {
        mine.name = name;
        mine.group = text;
        mine.rank = (uint32_t)rank;
        mine.size = (uint32_t)ranks;
        result = fb_mpi_agree(fb_consumer_open(&mine, consumer), comm, rank, ranks, error);
    }
    if (result != FB_OK && *consumer) {
        fb_consumer_close(*consumer);
        *consumer = NULL;
    }
    free(text);
    return result == FB_OK ? FB_OK : fb_error_set(result, error);
}

#ifdef __cplusplus
}
#endif
#endif /* FOREBAY_MPI_H */
