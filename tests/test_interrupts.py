"""Ctrl-C: ends what waits, is raised there and nowhere else, and breaks nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from support.children import Child
from support.processes import is_asleep, stand_still
from support.waiting import wait_until

import forebay

CALLS = {
    "close": "waiter.close()",
    "with": "with waiter: pass",
    "next": "waiter.next()",
    "status": "forebay.Admin(group=group, timeout=60).status()",
    "begin": "sim.step(1).__enter__()",
    "flush": "sim.flush()",
    "leave": "sim.close()",
    "space": "forebay.Space(group=group, timeout=60).get('x', step=1)",
    "read": "found['U'][...]",
    "threads": "wait_beside_another_thread()",
}

CODE = """
group, transport, call = sys.argv[1:]
options = {"transport": transport, "timeout": 60}
reader, sim = consumer(group, **options), producer(group, **options)
sim.array("U", dtype="f8", shape=(30000,))
with sim.step(0) as step:
    step.put("U", reference((30000,)))
found = reader.next()
waiter = consumer(group, "other", **options)

def wait_beside_another_thread():
    # Another thread reads the socket: no signal wakes this one.
    other = threading.Thread(target=lambda: waiter.next(), daemon=True)
    other.start()
    wait_until(lambda: is_asleep(other.native_id))
    waiter.next()

print("ready", flush=True)
sys.stdin.readline()
try:
    exec(call)
    print("returned")
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.readline()
for _ in range(2):
    try:
        found["nothing"]
    except forebay.NotFound:
        pass
    np.testing.assert_array_equal(found["U"][...], reference((30000,)))
    try:
        reader.next(timeout=0.01)
    except (forebay.Timeout, forebay.Ended, forebay.Crashed):  # `close` may have been cut off
        pass
print("well", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_a_wait_and_nothing_else(
    one: forebay.LocalGroup, child: Callable[..., Child], transport: str, call: str
) -> None:
    if call == "read" and transport != "tcp":
        pytest.skip("nobody is asked")
    interrupt(one, child, transport, CALLS[call])


def test_ctrl_c_ends_an_encrypted_transfer(child: Callable[..., Child]) -> None:
    """What still comes of it is skipped, record by record."""
    with forebay.local(budget_bytes=1 << 26, encrypt=True) as group:
        interrupt(group, child, "tcp", CALLS["read"])


def interrupt(group: forebay.LocalGroup, child: Callable[..., Child], transport: str, call: str) -> None:
    """Interrupts a call while the server stands still; all is well when it goes on."""
    waiting = child(CODE, group.path, transport, call)
    waiting.expect("ready")
    stand_still(group.servers[0].pid)
    try:
        waiting.say()
        wait_until(lambda: is_asleep(waiting.pid))
        waiting.kill(signal.SIGINT)
        waiting.expect("interrupted", timeout=20)
    finally:
        os.kill(group.servers[0].pid, signal.SIGCONT)
    waiting.say()
    waiting.expect("well")
    waiting.ended()
