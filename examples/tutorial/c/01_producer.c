/* Tutorial 1, in C: a simulation that hands over its field step by step.
 *
 *     cc 01_producer.c $(forebay config --cflags --libs) -o producer
 *     forebay up -n 2          starts two servers
 *     ./producer &             in either order: it waits
 *     ./reader                 for its reader, see 02_reader.c
 *
 * The field U has 4 x 5 x 6 points.  A real simulation has many ranks and each puts its part; here one rank
 * puts two halves, which is the same to Forebay.
 */
#include <stdio.h>
#include <stdlib.h>

#include <forebay.h>

enum { NZ = 4, NY = 5, NX = 6, STEPS = 5 };

/* A simulation may go on without Forebay; this one stops and says why. */
static void check(int result) {
    if (result == FB_OK) return;
    fprintf(stderr, "%s: %s\n", fb_result_name(result), fb_error());
    exit(1);
}

int main(void) {
    /* 1. Join the stream.  The group is found through FOREBAY_GROUP, or options.group. */
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_producer *sim;
    options.stream = "tutorial";
    options.rank = 0; /* with MPI: this rank, */
    options.size = 1; /* and how many there are */
    /* The first step begins when one reader that has a name is attached, so that it sees them all.  Without this
     * nobody is waited for, and nothing moves while nobody looks. */
    options.wait_for_readers = 1;
    check(fb_producer_open(&options, &sim));

    /* 2. Say what there is: the field's name, type and global shape, slowest dimension first. */
    const uint64_t global[3] = {NZ, NY, NX};
    const char *const dims[3] = {"z", "y", "x"};
    fb_field field = FB_FIELD_INIT;
    field.name = "U";
    field.dtype = FB_F64;
    field.ndim = 3;
    field.shape = global;
    field.dims = dims;
    field.units = "m/s";
    check(fb_array(sim, &field));

    for (uint64_t number = 0; number < STEPS; number++) {
        /* 3. Compute. */
        double u[NZ][NY][NX];
        for (int z = 0; z < NZ; z++)
            for (int y = 0; y < NY; y++)
                for (int x = 0; x < NX; x++) u[z][y][x] = 1000.0 * (double)number + 100 * z + 10 * y + x;

        /* 4. Hand over.  A block is a box of the global array; the array is yours again on return. */
        check(fb_producer_begin(sim, number, 0.5 * (double)number));
        for (uint64_t half = 0; half < 2; half++) {
            const uint64_t offset[3] = {half * NZ / 2, 0, 0}, shape[3] = {NZ / 2, NY, NX};
            fb_block block = FB_BLOCK_INIT;
            block.field = "U";
            block.number = half; /* tells apart the blocks of one rank */
            block.data = u[offset[0]];
            block.dtype = FB_F64;
            block.ndim = 3;
            block.offset = offset;
            block.shape = shape;
            check(fb_put(sim, &block));
        }
        check(fb_producer_end(sim));
    }

    /* 5. Leave: readers are told that the stream has ended. */
    check(fb_producer_close(sim));
    printf("%d steps\n", STEPS);
    return 0;
}
