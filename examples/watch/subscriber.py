# SPDX-License-Identifier: Apache-2.0
"""One who waits for something in a region of the field.

python subscriber.py HOW FIRST LAST STEPS

HOW is `covered`: an event at each step at which the region is there, then its data are read. `fires`: the same where its minimum is above
a threshold, which it always is. `silent`: the same with a threshold that it never reaches. Or `fetches`: no subscription, but a
reader that gets the region of each step and computes the minimum itself. Prints, as JSON, the means in seconds: of submitting a
subscription, of reading the region after the notice, and of computing its minimum here.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

import forebay


def watch(how: str, first: int, last: int, steps: int) -> dict[str, float]:
    """Has the servers watch."""
    region = f"domain.U[{first}:{last}]"
    texts = {"covered": f"covered({region})", "fires": f"min({region}) > 0", "silent": f"min({region}) < 0"}
    name = f"{how} {first}:{last}"
    began = time.perf_counter()
    subscription = forebay.subscribe(texts[how], name=name, timeout=120)
    submitting = time.perf_counter() - began
    # The next ones cost no connection: that is what submitting costs.
    for number in range(20):
        began = time.perf_counter()
        one = forebay.subscribe(texts[how], name=f"extra {name} {number}", timeout=120)
        submitting = min(submitting, time.perf_counter() - began)
        one.remove()
        one.close()
    subscription.wait_active()
    print("ready", flush=True)
    reading = 0.0
    for _ in range(0 if how == "silent" else steps):
        with subscription.next(timeout=120) as event:
            began = time.perf_counter()
            values = event["U"][first:last]
            reading += time.perf_counter() - began
            assert values.min() > event.step
    return {"submitting": submitting, "reading": reading / steps, "computing": 0.0}


def fetch(first: int, last: int) -> dict[str, float]:
    """Gets the region of every step, and computes its minimum."""
    wanted = {"U": forebay.every(1, region=np.s_[first:last])}
    reading = computing = 0.0
    steps = 0
    with forebay.Consumer("domain", fields=wanted, timeout=120, start="run") as reader:
        print("ready", flush=True)
        for step in reader:
            began = time.perf_counter()
            values = step["U"][first:last]
            read = time.perf_counter()
            assert values.min() > step.number
            computing += time.perf_counter() - read
            reading += read - began
            steps += 1
    return {"submitting": 0.0, "reading": reading / steps, "computing": computing / steps}


if __name__ == "__main__":
    if len(sys.argv) != 5:
        raise SystemExit(__doc__)
    how, first, last, steps = sys.argv[1], *map(int, sys.argv[2:5])
    print(json.dumps(fetch(first, last) if how == "fetches" else watch(how, first, last, steps)), flush=True)
    # The subscription stays until what it has cost was asked for.
    sys.stdin.readline()
