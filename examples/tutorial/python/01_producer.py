# SPDX-License-Identifier: Apache-2.0
"""Tutorial 1, in Python: a simulation that hands over its field step by step.

    forebay up -n 2              starts two servers
    python 01_producer.py &      in either order: it waits
    python 02_reader.py          for its reader

The field U has 4 x 5 x 6 points. A real simulation has many ranks and each puts its part; here one rank
puts two halves, which is the same to Forebay.
"""

import numpy as np

import forebay

NZ, NY, NX, STEPS = 4, 5, 6, 5

# 1. Join the stream. The group is found through FOREBAY_GROUP, or group=. With MPI: this rank, and how many
#    there are. The first step begins when one reader that has a name is attached, so that it sees them all;
#    without `wait_for_readers` nobody is waited for, and nothing moves while nobody looks.
with forebay.Producer("tutorial", rank=0, size=1, wait_for_readers=1) as sim:
    # 2. Say what there is: the field's name, type and global shape, slowest dimension first.
    sim.array("U", dtype="f8", shape=(NZ, NY, NX), dims=("z", "y", "x"), units="m/s")

    for number in range(STEPS):
        # 3. Compute.
        z, y, x = np.meshgrid(range(NZ), range(NY), range(NX), indexing="ij")
        u = 1000.0 * number + 100 * z + 10 * y + x

        # 4. Hand over. A block is a box of the global array; the array is yours again on return. `number`
        #    tells apart the blocks of one rank.
        with sim.step(number, time=0.5 * number) as step:
            for half in range(2):
                first = half * NZ // 2
                step.put("U", u[first : first + NZ // 2], offset=(first, 0, 0), number=half)

# 5. Leaving the block has closed the producer: readers are told that the simulation has finished.
print(f"{STEPS} steps")
