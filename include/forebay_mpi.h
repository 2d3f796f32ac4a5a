/* Opens a Forebay producer on every rank of an MPI communicator.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Header only: the Forebay library knows no MPI, so that it need not match the site's.  One rank reads the
 * connection file and broadcasts its text: a thousand ranks do not open one file, and the file need not be
 * visible on every node.
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

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mpi.h>

#include "forebay.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FB_MPI_TEXT_MAX = 16 << 20 }; /* a connection file is a few kilobytes; more is some other file */
enum { FB_MPI_ERROR_MAX = 1024 };

/* Joins the stream as rank and size of `comm` (the two in `options` are ignored).  Collective: all ranks
 * return FB_OK, or all return the same kind of error with the same text, since a stream that lacks a rank
 * could never close a step. */
static inline int fb_producer_open_mpi(const fb_producer_options *options, MPI_Comm comm, fb_producer **producer);

/* The text of the last failure of fb_producer_open_mpi, which may be another rank's.  Never NULL. */
static inline const char *fb_error_mpi(void);

/* ---- below: how ----------------------------------------------------------------------------- */

static inline char *fb_mpi_error_buffer(void) {
    static char text[FB_MPI_ERROR_MAX];
    return text;
}

static inline const char *fb_error_mpi(void) { return fb_mpi_error_buffer(); }

static inline int fb_mpi_fail(int kind, const char *path, const char *what, const char *remedy) {
    snprintf(fb_mpi_error_buffer(), FB_MPI_ERROR_MAX, "connection file %.600s: %s; %s", path, what, remedy);
    return kind;
}

/* The connection file's text starts with a brace; no path and no name that Forebay gives does. */
static inline int fb_mpi_is_text(const char *group) { return group[strspn(group, " \t\r\n")] == '{'; }

/* Where a group's connection file is: the rule of FOREBAY_GROUP. */
static inline int fb_mpi_path(const char *group, char *path, size_t room) {
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int length;
    if (strchr(group, '/'))
        length = snprintf(path, room, "%s", group);
    else if (runtime && *runtime)
        length = snprintf(path, room, "%s/forebay/%s.json", runtime, group);
    else
        length = snprintf(path, room, "/tmp/forebay-%lu/%s.json", (unsigned long)getuid(), group);
    if (length < 0 || (size_t)length >= room)
        return fb_mpi_fail(FB_CONNECTION_FILE, group, "the path is too long", "give a shorter one");
    return FB_OK;
}

/* Reads all of an open file of `size` bytes into `text`, which has room for a NUL more. */
static inline int fb_mpi_read_all(int file, char *text, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t got = read(file, text + done, size - done);
        if (got <= 0) return -1;
        done += (size_t)got;
    }
    text[size] = '\0';
    return 0;
}

/* Since the library sees only the text, its checks of the file are made here too. */
static inline int fb_mpi_read(const char *path, char **text) {
    struct stat about;
    int result = FB_OK, file = open(path, O_RDONLY | O_NONBLOCK);
    *text = NULL;
    if (file < 0)
        return fb_mpi_fail(FB_CONNECTION_FILE, path, "cannot be opened",
                           "start a group with `forebay up`, or set FOREBAY_GROUP to its file");
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode))
        result = fb_mpi_fail(FB_CONNECTION_FILE, path, "is no regular file", "set FOREBAY_GROUP to the group's file");
    else if (about.st_uid != geteuid())
        result = fb_mpi_fail(FB_CONNECTION_FILE, path, "belongs to another user", "use a group of your own");
    else if (about.st_mode & 077)
        result = fb_mpi_fail(FB_CONNECTION_FILE, path, "holds a secret but others may read it",
                             "start the group anew: its secret may be known");
    else if (about.st_size <= 0 || about.st_size > FB_MPI_TEXT_MAX)
        result = fb_mpi_fail(FB_CONNECTION_FILE, path, "is empty or too large", "start the group anew");
    else if (!(*text = (char *)malloc((size_t)about.st_size + 1)) ||
             fb_mpi_read_all(file, *text, (size_t)about.st_size) != 0)
        result = fb_mpi_fail(FB_IO, path, "cannot be read", "try again");
    close(file);
    if (result != FB_OK) {
        free(*text);
        *text = NULL;
    }
    return result;
}

/* What the first rank does alone: finds the group and gives its text, to be freed. */
static inline int fb_mpi_find(const char *group, char **text) {
    char path[4096];
    int result;
    *text = NULL;
    if (!group || !*group) group = getenv("FOREBAY_GROUP");
    if (!group || !*group) group = "default";
    if (fb_mpi_is_text(group)) {
        size_t size = strlen(group) + 1;
        if (size > FB_MPI_TEXT_MAX || !(*text = (char *)malloc(size)))
            return fb_mpi_fail(FB_CONNECTION_FILE, "(given as text)", "is too large", "pass the group's path");
        memcpy(*text, group, size);
        return FB_OK;
    }
    result = fb_mpi_path(group, path, sizeof path);
    return result == FB_OK ? fb_mpi_read(path, text) : result;
}

/* Makes all ranks agree: FB_OK, or the kind and text of the lowest rank that failed. */
static inline int fb_mpi_agree(int result, MPI_Comm comm, int rank, int ranks) {
    int mine = result == FB_OK ? ranks : rank, first;
    if (MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm) != MPI_SUCCESS) return FB_IO;
    if (first == ranks) return FB_OK;
    MPI_Bcast(&result, 1, MPI_INT, first, comm);
    MPI_Bcast(fb_mpi_error_buffer(), FB_MPI_ERROR_MAX, MPI_CHAR, first, comm);
    return result;
}

static inline int fb_producer_open_mpi(const fb_producer_options *options, MPI_Comm comm, fb_producer **producer) {
    fb_producer_options mine = *options;
    char *text = NULL;
    int rank, ranks, result = FB_OK;
    long length = 0;

    *producer = NULL;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);

    if (rank == 0) result = fb_mpi_find(options->group, &text);
    if (rank == 0 && result == FB_OK) length = (long)strlen(text) + 1;
    result = fb_mpi_agree(result, comm, rank, ranks);
    if (result != FB_OK) return result;

    MPI_Bcast(&length, 1, MPI_LONG, 0, comm);
    if (rank != 0 && !(text = (char *)malloc((size_t)length)))
        result = fb_mpi_fail(FB_IO, "(from rank 0)", "no memory for it", "free some");
    result = fb_mpi_agree(result, comm, rank, ranks);
    if (result == FB_OK) {
        MPI_Bcast(text, (int)length, MPI_CHAR, 0, comm);
        mine.group = text;
        mine.rank = (uint32_t)rank;
        mine.ranks = (uint32_t)ranks;
        result = fb_producer_open(&mine, producer);
        if (result != FB_OK) snprintf(fb_mpi_error_buffer(), FB_MPI_ERROR_MAX, "rank %d: %s", rank, fb_error());
        result = fb_mpi_agree(result, comm, rank, ranks);
    }
    if (result != FB_OK && *producer) {
        fb_producer_close(*producer);
        *producer = NULL;
    }
    free(text);
    return result;
}

#ifdef __cplusplus
}
#endif
#endif /* FOREBAY_MPI_H */
