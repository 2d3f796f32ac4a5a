"""Forks while other threads are inside calls: the child waits for no lock that nobody will release."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.children import Child

import forebay

FORKS = """
def fork_amid(uses, ends, times=60):
    import gc, warnings
    warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads, which is the point
    for _ in range(times):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.alarm(10)  # a hang is a failure
                for use in uses:
                    try:
                        use()
                    except forebay.Forked:
                        pass
                    else:
                        raise AssertionError("it worked in the child")
                ends()
                gc.collect()
                code = 0
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0, "the child failed"
"""


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_readers(one: forebay.LocalGroup, child: Callable[..., Child], transport: str) -> None:
    """Steps, arrays of them and the space, while other threads read, release and ask all the time."""
    reader = child(
        FORKS
        + """
path, transport = sys.argv[1:]
reader = forebay.Consumer("s", group=path, transport=transport, timeout=20)
space = forebay.Space(group=path, transport=transport, timeout=20)
space.put("x", np.arange(9.0), step=0)
print("attached")
held = reader.next()
array = held["U"].blocks()[0].data
going = True

def read():
    while going:
        for step in reader:
            step["U"][...], step["U"].blocks()
            if not going:
                break

def ask():
    while going:
        space.get("x", step=0)
        held["U"][...], held["U"].blocks()

threads = [threading.Thread(target=read), threading.Thread(target=ask)]
for thread in threads:
    thread.start()

def ends():
    global held, array, space, reader
    held.release()
    reader.close()
    space.close()
    del held, array, space, reader

fork_amid([
    lambda: reader.next(),
    lambda: held["U"][...],
    lambda: held["U"].blocks(),
    lambda: space.get("x", step=0),
    lambda: space.remove("x", step=0),
], ends)
going = False
print("done")
for thread in threads:
    thread.join()
""",
        one.path,
        transport,
    )
    reader.expect("attached")
    with forebay.Producer("s", group=one.path, transport=transport, timeout=20, policy="latest") as sim:
        sim.array("U", dtype="f8", shape=(40, 50))
        number = 0
        done = False
        while not done:
            with sim.step(number) as step:
                step.put("U", np.full((40, 50), float(number)))
            number += 1
            done = reader.process.poll() is not None or not reader._lines.empty()
        reader.expect("done")
        for last in range(number, number + 3):
            with sim.step(last) as step:
                step.put("U", np.zeros((40, 50)))
    reader.ended()


def test_a_producer(one: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    """All of its calls, also the one that only looks, while a thread puts step after step."""
    sim = child(
        FORKS
        + """
sim = forebay.Producer("s", group=sys.argv[1], keep=1, timeout=20)
sim.array("U", dtype="f8", shape=(40, 50))
going = True

def put():
    number = 0
    while going:
        with sim.step(number) as step:
            step.put("U", np.zeros((40, 50)), wait=False)
            step.wait()
        number += 1

thread = threading.Thread(target=put)
thread.start()

def look():
    why, skipped = sim.lost
    raise forebay.Forked(why)

fork_amid([
    look,
    lambda: sim.flush(),
    lambda: sim.attr("dt", 0.5),
    lambda: sim.array("V", dtype="f8", shape=(2,)),
], lambda: sim.close())
going = False
thread.join()
assert sim.lost is None
sim.close()
""",
        one.path,
    )
    sim.ended(60)
