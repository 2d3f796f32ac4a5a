/* SPDX-License-Identifier: Apache-2.0 */
#include "fractal.h"

#include <math.h>
#include <stddef.h>

static const double bailout = 4;

struct orbit {
    double escape, trap;
};

static struct orbit follow(const double c[3], double power, int iterations) {
    double x = c[0], y = c[1], z = c[2], nearest = bailout;
    for (int i = 0; i < iterations; i++) {
        const double r = sqrt(x * x + y * y + z * z);
        if (r < nearest) nearest = r;
        if (r > bailout) {
            const double smoothed = i - log(log(r) / log(bailout)) / log(power);
            return (struct orbit){smoothed > 0 ? smoothed : 0, nearest};
        }
        if (r > 0) {
            const double theta = power * acos(z / r), phi = power * atan2(y, x), length = pow(r, power);
            x = length * sin(theta) * cos(phi);
            y = length * sin(theta) * sin(phi);
            z = length * cos(theta);
        }
        x += c[0];
        y += c[1];
        z += c[2];
    }
    return (struct orbit){iterations, nearest};
}

static double place(uint64_t index, uint64_t points) {
    return points > 1 ? EDGE * (2.0 * (double)index / (double)(points - 1) - 1) : 0;
}

void fractal_fill(const struct block *block, const uint64_t shape[3], double power, int iterations) {
    double c[3];
    size_t i = 0;
    for (uint64_t z = 0; z < block->shape[0]; z++) {
        c[2] = place(block->offset[0] + z, shape[0]);
        for (uint64_t y = 0; y < block->shape[1]; y++) {
            c[1] = place(block->offset[1] + y, shape[1]);
            for (uint64_t x = 0; x < block->shape[2]; x++) {
                c[0] = place(block->offset[2] + x, shape[2]);
                const struct orbit orbit = follow(c, power, iterations);
                block->values[ESCAPE][i] = (float)orbit.escape;
                block->values[TRAP][i++] = (float)orbit.trap;
            }
        }
    }
}
