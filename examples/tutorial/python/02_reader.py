# SPDX-License-Identifier: Apache-2.0
"""Tutorial 2, in Python: a reader that follows a simulation.

It may be started before the simulation, or after it: that one waits for it. It knows nothing of the
simulation's ranks and blocks: it asks for the region that it wants.
"""

import forebay

# 1. Attach to the stream, which need not exist yet, and say what is needed: here a run from its first step on.
with forebay.Consumer("tutorial", fields=["U"], name="viewer", start="run") as viewer:
    print("waiting for steps", flush=True)

    # 2. Step after step, until the simulation ends; if it crashes, the loop raises Crashed. Each is released when
    #    the next one is asked for.
    for step in viewer:
        # 3. All of the field: assembled from its blocks, whichever server holds them.
        u = step["U"][...]

        # 4. A part of it: x from 2 to 4 of the row z = 1, y = 3. Only that is fetched.
        row = step["U"][1, 3, 2:5]

        print(f"step {step.number}, time {step.time:4.1f}")
        print(f"  sum   {u.sum():10.1f}")
        print(f"  value {u[2, 4, 1]:10.1f}")
        print(f"  row   {row[0]:10.1f}{row[1]:10.1f}{row[2]:10.1f}")

# 5. Leaving the block has detached the reader.
