/* Tutorial 2, in C: a reader that follows a simulation.
 *
 *     cc 02_reader.c $(forebay config --cflags --libs) -o reader
 *
 * It may be started before the simulation, or after it: that one waits for it.  It knows nothing of the
 * simulation's ranks and blocks: it asks for the region that it wants.
 */
#include <stdio.h>
#include <stdlib.h>

#include <forebay.h>

enum { NZ = 4, NY = 5, NX = 6 };

static void check(int result) {
    if (result == FB_OK) return;
    fprintf(stderr, "%s: %s\n", fb_result_name(result), fb_error());
    exit(1);
}

/* Copies a box of U, or fails and says which part is missing. */
static void get(fb_step *step, const uint64_t offset[3], const uint64_t shape[3], double *values) {
    fb_selection selection = FB_SELECTION_INIT;
    selection.field = "U";
    selection.dtype = FB_F64;
    selection.ndim = 3;
    selection.offset = offset;
    selection.shape = shape;
    selection.data = values;
    check(fb_get(step, &selection));
}

int main(void) {
    /* 1. Attach to the stream, which need not exist yet, and say what is needed. */
    fb_need need = FB_NEED_INIT;
    need.field = "U";
    fb_consumer_options options = FB_CONSUMER_OPTIONS_INIT;
    fb_consumer *viewer;
    options.stream = "tutorial";
    options.name = "viewer";
    options.start = FB_START_RUN; /* all of a run, from its first step on */
    options.fields = &need;
    options.fields_count = 1;
    check(fb_consumer_open(&options, &viewer));
    printf("waiting for steps\n");
    fflush(stdout);

    /* 2. Step after step, until the simulation ends. */
    fb_step *step;
    int result;
    while ((result = fb_consumer_next(viewer, -1, &step)) == FB_OK) {
        fb_step_info info = FB_STEP_INFO_INIT;
        check(fb_step_info_get(step, &info));

        /* 3. All of the field: assembled from its blocks, whichever server holds them. */
        const uint64_t none[3] = {0, 0, 0}, all[3] = {NZ, NY, NX};
        double u[NZ][NY][NX], sum = 0;
        get(step, none, all, &u[0][0][0]);
        for (int z = 0; z < NZ; z++)
            for (int y = 0; y < NY; y++)
                for (int x = 0; x < NX; x++) sum += u[z][y][x];

        /* 4. A part of it: x from 2 to 4 of the row z = 1, y = 3. */
        const uint64_t corner[3] = {1, 3, 2}, row[3] = {1, 1, 3};
        double part[3];
        get(step, corner, row, part);

        printf("step %llu, time %4.1f\n", (unsigned long long)info.number, info.time);
        printf("  sum   %10.1f\n", sum);
        printf("  value %10.1f\n", u[2][4][1]);
        printf("  row   %10.1f%10.1f%10.1f\n", part[0], part[1], part[2]);
        check(fb_step_release(step)); /* its memory may be used again */
    }
    if (result != FB_ENDED) check(result); /* FB_CRASHED if the simulation did not close its stream */

    /* 5. Detach. */
    check(fb_consumer_close(viewer));
    return 0;
}
