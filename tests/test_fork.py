"""A forked child's handles are dead, not dangerous."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from support.arrays import reference
from support.children import Child
from support.sessions import consumer, producer

import forebay


def test_fork_in_a_producer(two: forebay.LocalGroup, child: Callable[..., Child], transport: str) -> None:
    """The child's handle is dead, in and between steps; the parent's goes on as if nothing had been."""
    sim = child(
        """
        path, transport = sys.argv[1:]
        sim = forebay.Producer("s", group=path, transport=transport)
        sim.array("U", dtype="f8", shape=(200, 30))

        def forked():
            pid = os.fork()
            if pid:
                assert os.waitpid(pid, 0)[1] == 0
                return
            code = 1
            try:
                for attempt in (
                    lambda: sim.flush(),
                    lambda: sim.step(99).__enter__(),
                    lambda: sim.array("V", dtype="f8", shape=(2,)),
                    lambda: step.put("U", np.zeros((200, 30)), number=7),
                    lambda: step.alloc("U", (200, 30), number=8),
                    lambda: step.demanded("U"),
                ):
                    try:
                        attempt()
                    except forebay.Forked as error:
                        assert str(os.getppid()) in str(error)
                    except forebay.StepOrder as error:
                        # Told by the package before it asks the handle.
                        assert "not open" in str(error)
                    else:
                        raise AssertionError("it worked in the child")
                sim.close()
                code = 0
            finally:
                globals().pop("sim", None)
                import gc
                gc.collect()
                os._exit(code)

        for number in range(4):
            with sim.step(number) as step:
                if number % 2:
                    forked()
                step.put("U", reference((200, 30), "f8", number))
            forked()
        sim.close()
        """,
        two.path,
        transport,
    )
    with consumer(two, transport=transport, window=8) as reader:
        for number in range(4):
            with reader.next() as found:
                assert (found.number, found.torn) == (number, False)
                np.testing.assert_array_equal(found["U"][...], reference((200, 30), "f8", number))
        sim.ended()
        assert list(reader) == []


def test_fork_in_a_consumer(two: forebay.LocalGroup, child: Callable[..., Child], transport: str) -> None:
    reader = child(
        """
        path, transport = sys.argv[1:]
        reader = forebay.Consumer("s", group=path, transport=transport)
        space = forebay.Space(group=path, transport=transport)
        print("attached")
        for step in reader:
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    for attempt in (
                        lambda: reader.next(),
                        lambda: step["U"].blocks(),
                        lambda: step["U"][...],
                        lambda: space.get("x", step=0),
                        lambda: space.put("x", np.ones(3), step=0),
                    ):
                        try:
                            attempt()
                        except forebay.Forked:
                            pass
                        else:
                            raise AssertionError("it worked in the child")
                    step.release()
                    reader.close()
                    del step, reader
                    code = 0
                except BaseException:
                    import traceback
                    traceback.print_exc()
                finally:
                    os._exit(code)
            assert os.waitpid(pid, 0)[1] == 0, "the child failed"
            np.testing.assert_array_equal(step["U"][...], reference((200, 30), "f8", step.number))
            step["U"].blocks()
            print(step.number)
        """,
        two.path,
        transport,
    )
    reader.expect("attached")
    with producer(two, transport=transport) as sim:
        sim.array("U", dtype="f8", shape=(200, 30))
        for number in range(3):
            with sim.step(number) as step:
                step.put("U", reference((200, 30), "f8", number))
    for number in range(3):
        reader.expect(str(number))
    reader.ended()
