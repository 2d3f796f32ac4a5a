/* SPDX-License-Identifier: Apache-2.0 */
/* The Mandelbulb, and how it is cut into blocks. */
#ifndef FRACTAL_H
#define FRACTAL_H

#include <stdint.h>

/* The domain reaches from -EDGE to EDGE in x, y and z. */
#define EDGE 1.2

/* What is known of each point: after how many iterations it has left, smoothed, which is all of them where it never does, and how near
 * to the middle it came on its way (an orbit trap), which colours it well. */
enum { ESCAPE, TRAP, FIELDS };

/* A box of points of the whole grid, the slowest dimension, z, first. */
struct block {
    uint64_t offset[3], shape[3];
    float *values[FIELDS];
};

/* Fills a block.  `shape` is that of the whole grid, whose outermost points lie on the domain's border.
 *
 * The formula is the one that Daniel White and Paul Nylander published in 2009: v becomes v^power + c, where a power of a vector
 * takes that power of its length and multiplies both of its angles.  The smoothing is the one of the Mandelbrot set. */
void fractal_fill(const struct block *block, const uint64_t shape[3], double power, int iterations);

#endif
