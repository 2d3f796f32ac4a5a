"""Wrong input of every kind: a clear error, and everybody else goes on."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support import FOREBAY, Child, is_given_back, open_ranks, reference, trouble, wait_until

import forebay

MAGIC = b"FOREBAY\n"
SHAPE = (8, 6)


def opened(group: object, **options: object) -> forebay.Producer:
    path = getattr(group, "path", group)
    options.setdefault("timeout", 20)
    return forebay.Producer("s", group=path, **options)  # type: ignore[arg-type]


def reading(group: object, **options: object) -> forebay.Consumer:
    path = getattr(group, "path", group)
    options.setdefault("timeout", 20)
    return forebay.Consumer("s", group=path, **options)  # type: ignore[arg-type]


def check_it_works(group: object, transport: str = "auto") -> None:
    """A step goes through, whole."""
    path = getattr(group, "path", group)
    with (
        forebay.Consumer("works", group=path, transport=transport, timeout=20) as reader,
        open_ranks(path, "works", 2, transport=transport) as sim,
    ):
        whole = reference((300, 70))
        for rank in sim:
            rank.array("U", dtype="f8", shape=(300, 70))
        with sim[0].step(0) as a, sim[1].step(0) as b:
            a.put("U", whole[:120])
            b.put("U", whole[120:], offset=(120, 0))
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], whole)


# ---- arrays -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "array, offset, error",
    [
        (np.zeros(SHAPE, "f4"), (0, 0), forebay.TypeMismatch),
        (np.zeros(SHAPE, "i8"), (0, 0), forebay.TypeMismatch),
        (np.zeros(SHAPE, "c16"), (0, 0), forebay.TypeMismatch),
        (np.full(SHAPE, None), (0, 0), forebay.TypeMismatch),
        (np.full(SHAPE, "x"), (0, 0), forebay.TypeMismatch),
        (np.zeros(SHAPE, "M8[s]"), (0, 0), forebay.TypeMismatch),
        (np.zeros(SHAPE, [("a", "f8")]), (0, 0), forebay.TypeMismatch),
        (np.zeros(8), (0, 0), forebay.OutOfBounds),
        (np.zeros((8, 6, 1)), (0, 0), forebay.OutOfBounds),
        (np.zeros((8, 6, 1)), None, forebay.OutOfBounds),
        (np.zeros(SHAPE), (0,), forebay.OutOfBounds),
        (np.zeros(SHAPE), (0, 0, 0), forebay.OutOfBounds),
        (np.zeros((6, 8)), (0, 0), forebay.OutOfBounds),
        (np.zeros(SHAPE), (1, 0), forebay.OutOfBounds),
        (np.zeros((2, 2)), (7, 0), forebay.OutOfBounds),
        (np.zeros((2, 2)), (0, -1), forebay.OutOfBounds),
        (np.zeros((2, 2)), (2**64 - 1, 0), forebay.OutOfBounds),
        (np.zeros((2, 2)), (2**64, 0), forebay.OutOfBounds),
        (np.zeros((0, 2)), (9, 0), forebay.OutOfBounds),
    ],
    ids=lambda value: f"{value.dtype}{value.shape}" if isinstance(value, np.ndarray) else str(value),
)
def test_arrays_that_do_not_fit(
    two: forebay.LocalGroup, array: np.ndarray, offset: tuple[int, ...] | None, error: type[forebay.Error]
) -> None:
    """The error names the field; the step goes on, and the next put of the same block is right."""
    whole = reference(SHAPE)
    with reading(two) as reader, opened(two) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0) as step:
            with pytest.raises(error, match="'U'"):
                step.put("U", array, offset=offset)
            assert step.put("U", whole)
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], whole)


@pytest.mark.parametrize("ghost", [-1, 4, (1,), (1, 2, 3), ((1, 1, 1), 0), ((0, -1), 0), ((5, 5), 0)])
def test_ghosts_that_do_not_fit(two: forebay.LocalGroup, ghost: object) -> None:
    with reading(two), opened(two) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0) as step, pytest.raises(forebay.OutOfBounds):
            step.put("U", np.zeros(SHAPE), ghost=ghost)  # type: ignore[arg-type]


def test_fields_that_cannot_be(two: forebay.LocalGroup) -> None:
    with opened(two) as sim:
        for options in (
            {"dtype": "O", "shape": (3,)},
            {"dtype": "U7", "shape": (3,)},
            {"dtype": "M8[s]", "shape": (3,)},
            {"dtype": np.longdouble, "shape": (3,)},
        ):
            with pytest.raises(forebay.TypeMismatch, match="known are"):
                sim.array("U", **options)  # type: ignore[arg-type]
        for options in (
            {"dtype": "no such type", "shape": (3,)},
            {"dtype": "f8"},
            {"dtype": "f8", "shape": (3, 2), "dims": ("x",)},
            {"dtype": "f8", "shape": (3, 2), "spacing": (1, 2, 3)},
            {"dtype": "f8", "shape": (3, 2), "every": 0},
            {"dtype": "f8", "shape": (1,) * 40},
            {"dtype": "f8", "ndim": 40},
            {"dtype": "f8", "shape": (-1, 2)},
            {"dtype": "f8", "shape": (2**63, 2**63)},
            {"dtype": "f8", "shape": (2**64, 2)},
            {"dtype": "f8", "shape": (3,), "association": "edge"},
        ):
            with pytest.raises((forebay.Invalid, forebay.OutOfBounds)):
                sim.array("U", **options)  # type: ignore[arg-type]
        for name in ("", "x" * 5000, "new\nline", "a b\0"):
            with pytest.raises(forebay.Invalid):
                sim.array(name, dtype="f8", shape=(3,))
        sim.array("U", dtype="f8", shape=SHAPE)
        with pytest.raises(forebay.Conflict):
            sim.array("U", dtype="f4", shape=SHAPE)
        with sim.step(0) as step:
            with pytest.raises(forebay.NotFound, match=r"'V'.*U"):
                step.put("V", np.zeros(SHAPE))
            with pytest.raises(forebay.StepOrder):
                sim.array("V", dtype="f8", shape=SHAPE)
            assert not step.put("U", np.zeros(SHAPE))


def test_an_unplaced_block_has_no_offset(two: forebay.LocalGroup) -> None:
    with reading(two), opened(two) as sim:
        sim.array("x", dtype="f8", ndim=1)
        with sim.step(0) as step:
            with pytest.raises(forebay.OutOfBounds):
                step.put("x", np.zeros(3), offset=(0,))
            with pytest.raises(forebay.OutOfBounds):
                step.put("x", np.zeros((3, 1)))


def test_regions_that_cannot_be(two: forebay.LocalGroup, transport: str) -> None:
    whole = reference(SHAPE)
    with reading(two, transport=transport) as reader, opened(two, transport=transport) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0) as step:
            step.put("U", whole)
        with reader.next() as found:
            field = found["U"]
            for index in (np.s_[8, 0], np.s_[0, -7], np.s_[0, 0, 0], np.s_[..., 0, ...]):
                with pytest.raises(forebay.OutOfBounds):
                    field[index]
            for bad in ([1, 2], np.array([True] * 8), None, "U", 1.5, (np.newaxis, 0), True, whole > 3):
                with pytest.raises(forebay.Invalid):
                    field[bad]
            np.testing.assert_array_equal(field[...], whole)


# ---- blocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2])
def test_overlapping_blocks(two: forebay.LocalGroup, transport: str, ranks: int) -> None:
    """The one who put the second block is told at a later call; a reader gets no wrong bytes."""
    shape = (80, 60)
    with reading(two, transport=transport) as reader, open_ranks(two, "s", ranks, transport=transport) as sim:
        for rank in sim:
            rank.array("U", dtype="f8", shape=shape)
        steps = [rank.step(0).__enter__() for rank in sim]
        steps[0].put("U", np.full((50, 60), 1.0), number=0)
        steps[-1].put("U", np.full((31, 60), 2.0), offset=(49, 0), number=1)
        for step in steps:
            step.__exit__(None, None, None)
        with reader.next() as found:
            with pytest.raises((forebay.NotCovered, forebay.Conflict)):
                found["U"][...]
            first = next(block for block in found["U"].blocks())
            begin = 0 if first.number == 0 else 49
            part = found["U"][begin : begin + first.shape[0]]
            assert (part == first.number + 1).all()

        problem = wait_until(lambda: trouble(sim))
        assert "overlap" in problem
        assert "'U'" in problem
        whole = reference(shape)
        with sim[0].step(1) as step:
            step.put("U", whole)
        for rank in sim[1:]:
            with rank.step(1):
                pass
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], whole)


def test_the_same_block_twice(two: forebay.LocalGroup, transport: str) -> None:
    whole = reference(SHAPE)
    with reading(two, transport=transport) as reader, opened(two, transport=transport) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0) as step:
            step.put("U", whole[:4])
            with pytest.raises(forebay.Conflict, match="number"):
                step.put("U", whole[4:], offset=(4, 0))
            step.put("U", whole[4:], offset=(4, 0), number=1)
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], whole)


@pytest.mark.parametrize("how", ["put", "alloc", "big-endian"])
def test_a_block_over_the_budget(own_place: Path, transport: str, how: str) -> None:
    """It is refused at once with the budget's size; the same block, smaller, is taken."""
    if transport == "tcp" and how == "alloc":
        pytest.skip("memory is not allocated over TCP")
    with (
        forebay.local(servers=1, budget=4 << 20) as group,
        reading(group, transport=transport) as reader,
        opened(group, transport=transport) as sim,
    ):
        for number in range(3):
            sim.array("U", dtype="f8", shape=(1024, 1024))
            with sim.step(2 * number) as step:
                uses: dict[str, Callable[[], object]] = {
                    "alloc": lambda: step.alloc("U", (1024, 1024)),
                    "put": lambda: step.put("U", np.zeros((1024, 1024))),
                    "big-endian": lambda: step.put("U", np.zeros((1024, 1024), ">f8")),
                }
                with pytest.raises(forebay.OverBudget, match="budget"):
                    uses[how]()
            sim.array("U", dtype="f8", shape=(300, 100))
            with sim.step(2 * number + 1) as step:
                if how == "alloc":
                    with pytest.raises(forebay.OverBudget):
                        step.alloc("U", (300 + 10**6, 100), ghost=((10**6, 0), (0, 0)))
                assert step.put("U", reference((300, 100)))
            for found in iter(reader.next, None):
                with found:
                    if found.number == 2 * number + 1:
                        np.testing.assert_array_equal(found["U"][...], reference((300, 100)))
                        break
        check_it_works(group, transport)


def free_bytes() -> int:
    line = next(
        line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable")
    )
    return int(line.split()[1]) * 1024


@pytest.mark.timeout(240)
def test_a_block_over_4_gib(own_place: Path) -> None:
    if free_bytes() < 10 << 30:
        pytest.skip("needs 10 GiB of free memory")
    rows, columns = 4099, (1 << 20) + 3
    base = np.arange(rows + columns, dtype=np.uint32).view(np.uint8)[1::4].copy()
    # Row i is the base from i on: 4 GiB that occupy 1 MiB.
    whole = np.lib.stride_tricks.as_strided(base, (rows, columns), (1, 1), writeable=False)
    with (
        forebay.local(servers=1, budget=5 << 30) as group,
        reading(group, timeout=120) as reader,
        reading(group, timeout=120, transport="tcp") as remote,
        opened(group, timeout=120) as sim,
    ):
        sim.array("U", dtype="u1", shape=(rows, columns))
        with sim.step(0) as step:
            assert step.put("U", whole)
        with reader.next() as found:
            (block,) = found["U"].blocks()
            assert block.data.nbytes == rows * columns > 1 << 32
            for row in [*range(0, rows, 41), rows - 1]:
                assert (block.data[row] == base[row : row + columns]).all()
            np.testing.assert_array_equal(found["U"][-3:, ::977], whole[-3:, ::977])
            del block
        with remote.next() as found:
            np.testing.assert_array_equal(found["U"][-2:], whole[-2:])
            np.testing.assert_array_equal(found["U"][::-1000, -7:], whole[::-1000, -7:])


# ---- steps --------------------------------------------------------------------------------------


def test_step_numbers_grow(two: forebay.LocalGroup) -> None:
    with reading(two, window=16) as reader, opened(two) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)

        def one_step(number: int) -> None:
            with sim.step(number) as step:
                step.put("U", reference(SHAPE, "f8", number))

        one_step(5)
        for number in (5, 4, 0):
            with pytest.raises(forebay.StepOrder, match=f"step {number} after step 5"):
                one_step(number)
        for number in (-1, 2**64):
            with pytest.raises(forebay.Invalid):
                one_step(number)
        with sim.step(6) as step:
            with pytest.raises(forebay.StepOrder, match="6"):
                one_step(7)
            step.put("U", reference(SHAPE, "f8", 6))
        with pytest.raises(forebay.StepOrder):
            step.put("U", reference(SHAPE))
        with pytest.raises(forebay.StepOrder):
            sim.step(7).put("U", reference(SHAPE))
        one_step(8)
        for number in (5, 6, 8):
            with reader.next() as found:
                assert found.number == number
                np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", number))
    with pytest.raises(forebay.Closed):
        one_step(9)
    sim.close()


def test_a_step_left_by_an_exception(two: forebay.LocalGroup) -> None:
    """Readers are told that it is torn once the producer closes."""
    with reading(two) as reader:

        def simulation() -> None:
            with opened(two) as sim:
                sim.array("U", dtype="f8", shape=SHAPE)
                for number in range(3):
                    with sim.step(number) as step:
                        step.put("U", reference(SHAPE))
                        if number == 1:
                            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            simulation()
        seen = [(step.number, step.torn) for step in reader]
        assert seen in ([(0, False)], [(0, False), (1, True)])
    wait_until(lambda: is_given_back(two))


def test_ranks_that_disagree(two: forebay.LocalGroup) -> None:
    with opened(two, rank=0, size=2) as sim:
        sim.array("U", dtype="f8", shape=SHAPE, units="m")
        with pytest.raises(forebay.Conflict, match="already open"):
            opened(two, rank=0, size=2)
        with pytest.raises(forebay.Conflict, match="agree"):
            opened(two, rank=1, size=3)
        with pytest.raises(forebay.Conflict, match="agree"):
            opened(two, rank=1, size=2, policy="block")
        for rank, size in ((2, 2), (-1, 2), (0, 0), (2**32, 2)):
            with pytest.raises(forebay.Invalid):
                opened(two, rank=rank, size=size)
        with opened(two, rank=1, size=2) as other:
            assert other.run == sim.run
            for options in ({"dtype": "f4"}, {"every": 2}, {"units": "s"}, {"shape": (8, 6, 1)}):
                with pytest.raises(forebay.Conflict, match="agree"):
                    other.array("U", **{"dtype": "f8", "shape": SHAPE, "units": "m", **options})  # type: ignore[arg-type]


# ---- what nobody offers -------------------------------------------------------------------------


def test_contracts_that_cannot_be_met(two: forebay.LocalGroup) -> None:
    """Told when the reader attaches, if the offer is known, else as soon as it is."""
    early = [reading(two, fields=["V"]), reading(two, fields={"U": forebay.every(1, dtype="f4")})]
    with opened(two) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0):
            pass
        for reader, error in zip(early, (forebay.NotFound, forebay.TypeMismatch), strict=True):
            for _ in range(2):
                with pytest.raises(error, match=r"'[UV]'"):
                    reader.next()
            reader.close()
        with pytest.raises(forebay.NotFound, match=r"'V'.*U"):
            reading(two, fields=["V"])
        with pytest.raises(forebay.TypeMismatch, match="float64"):
            reading(two, fields={"U": forebay.every(1, dtype="f4")})
        for fields in ([], "U", ["U", "U"], {"U": 0}, {"U": -3}):
            with pytest.raises(forebay.Invalid):
                reading(two, fields=fields)
        with pytest.raises(forebay.Invalid):
            reading(two, start="newest")
    for name in ("", "x" * 5000):
        with pytest.raises(forebay.Invalid):
            forebay.Consumer(name, group=two.path)
        with pytest.raises(forebay.Invalid):
            forebay.Producer(name, group=two.path)


def test_a_stream_that_nobody_opens(two: forebay.LocalGroup) -> None:
    with reading(two, timeout=0.2) as reader:
        for _ in range(2):
            with pytest.raises(forebay.Timeout, match="stream 's'"):
                reader.next()


def test_options_that_cannot_be(two: forebay.LocalGroup) -> None:
    for options in ({"transport": "pigeon"}, {"policy": "hope"}, {"on_loss": "cry"}, {"keep": -1}):
        with pytest.raises(forebay.Invalid):
            opened(two, **options)
    for timeout in (-1, float("nan"), float("inf"), 1e300):
        with pytest.raises(ValueError, match="timeout"):
            opened(two, timeout=timeout)


# ---- connection files ---------------------------------------------------------------------------


def everyone(path: str) -> Iterator[Callable[[], object]]:
    """Every way to use a connection file."""
    yield lambda: forebay.Producer("s", group=path, timeout=3)
    yield lambda: forebay.Consumer("s", group=path, timeout=3)
    yield lambda: forebay.Admin(group=path, timeout=3).shutdown()
    yield lambda: forebay.Space(group=path, timeout=3).put("x", np.ones(3), step=0)


def edited(group: forebay.LocalGroup, path: Path, **changes: object) -> str:
    """A copy of the group's connection file with changes."""
    content = json.loads(Path(group.path).read_text())
    content.update(changes)
    path.write_text(json.dumps(content))
    path.chmod(0o600)
    return str(path)


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [FOREBAY, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_missing_connection_file(own_place: Path) -> None:
    path = str(own_place / "none.json")
    for use in everyone(path):
        with pytest.raises(forebay.ConnectionFile, match=r"none\.json"):
            use()
    with pytest.raises(forebay.ConnectionFile, match="unheard-of"):
        forebay.Consumer("s", group="unheard-of")
    assert command("status", "--group", path).returncode == 3


def test_a_connection_file_that_others_may_read(one: forebay.LocalGroup) -> None:
    for mode in (0o644, 0o640, 0o606):
        os.chmod(one.path, mode)
        for use in everyone(one.path):
            with pytest.raises(forebay.ConnectionFile, match="chmod 600"):
                use()
        assert command("status", "--group", one.path).returncode == 3
    os.chmod(one.path, 0o600)
    check_it_works(one)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_connection_file_of_somebody_else(one: forebay.LocalGroup) -> None:
    os.chown(one.path, 12345, 12345)
    for use in everyone(one.path):
        with pytest.raises(forebay.ConnectionFile, match="belongs to user 12345"):
            use()
    assert command("status", "--group", one.path).returncode == 3
    os.chown(one.path, 0, 0)
    check_it_works(one)


def test_a_stale_connection_file(own_place: Path) -> None:
    """Its servers are gone: said at once, and `forebay up` replaces it."""
    path = str(own_place / "stale.json")
    with forebay.local(servers=2) as group:
        edited(group, Path(path))
    started = time.monotonic()
    for use in (use for index, use in enumerate(everyone(path)) if index != 2):
        with pytest.raises(forebay.Unreachable, match="server"):
            use()
    assert time.monotonic() - started < 10
    up = command("up", "-n", 2, "--group", path, "--budget", "64M")
    assert up.returncode == 0, up.stderr
    check_it_works(path)
    assert command("down", "--group", path).returncode == 0


@pytest.mark.parametrize("text", ["", "{}", "no json", '{"forebay": 1}', "[1, 2]", "\0" * 100, "{" * 100000])
def test_a_damaged_connection_file(own_place: Path, text: str) -> None:
    path = own_place / "bad.json"
    path.write_text(text)
    path.chmod(0o600)
    for use in everyone(str(path)):
        with pytest.raises(forebay.ConnectionFile, match=r"bad\.json"):
            use()
    assert command("up", "--group", path).returncode == 3
    assert path.read_text() == text


def test_a_wrong_secret(two: forebay.LocalGroup, own_place: Path, transport: str) -> None:
    """Refused at once, never retried, and nobody else notices."""
    for changes in ({"secret": "ab" * 32}, {"lineage": "cd" * 16}):
        path = edited(two, own_place / "wrong.json", **changes)
        started = time.monotonic()
        with pytest.raises(forebay.WrongSecret, match="stale"):
            opened(path, transport=transport)
        with pytest.raises(forebay.WrongSecret):
            reading(path, transport=transport)
        with pytest.raises(forebay.WrongSecret):
            forebay.Space(group=path, transport=transport).get("x", step=0)
        assert time.monotonic() - started < 5
    check_it_works(two, transport)


def test_the_text_of_a_connection_file(two: forebay.LocalGroup) -> None:
    check_it_works(Path(two.path).read_text())


# ---- bytes on sockets ---------------------------------------------------------------------------


def addresses(group: forebay.LocalGroup) -> dict[str, list[object]]:
    """Where the servers listen: abstract names of Unix sockets, and TCP addresses."""
    found: dict[str, list[object]] = {"shm": [], "tcp": []}
    for server in json.loads(Path(group.path).read_text())["servers"]:
        for address in server["addresses"]:
            kind, _, rest = address.partition(":")
            if kind == "shm":
                found["shm"].append("\0" + rest.partition("/")[2])
            else:
                host, _, port = rest.rpartition(":")
                found["tcp"].append((host, int(port)))
    return found


def dial(group: forebay.LocalGroup, transport: str, server: int = 0) -> socket.socket:
    family = socket.AF_UNIX if transport == "shm" else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.settimeout(15)
    made.connect(addresses(group)[transport][server])
    return made


def receive(made: socket.socket, length: int) -> bytes:
    """So many bytes, or what came before the end."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while len(data) < length:
            part = made.recv(length - len(data))
            if not part:
                break
            data += part
    return data


def opening(version: int = 1, body: bytes = bytes(48)) -> bytes:
    return MAGIC + struct.pack("<HH", version, len(body)) + body


def test_another_version_is_told(two: forebay.LocalGroup, transport: str) -> None:
    for version in (0, 2, 99, 65535):
        with dial(two, transport) as made:
            made.sendall(opening(version))
            head = receive(made, 13)
            assert head[:8] == MAGIC
            assert head[10] == forebay.WrongVersion.code
    check_it_works(two, transport)


@pytest.mark.parametrize(
    "answer, error",
    [
        (MAGIC + struct.pack("<HBH", 99, 0, 48) + bytes(48), forebay.WrongVersion),
        (MAGIC + struct.pack("<HBH", 99, 13, 2) + b"no", forebay.WrongVersion),
        (MAGIC + struct.pack("<HBH", 1, 0, 48) + bytes(48), forebay.WrongSecret),
        (MAGIC + struct.pack("<HBH", 1, 12, 2) + b"no", forebay.WrongSecret),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", forebay.Protocol),
        (MAGIC + struct.pack("<HBH", 1, 200, 2) + b"no", forebay.Protocol),
        (MAGIC + struct.pack("<HBH", 1, 0, 65535), forebay.Error),
        (MAGIC[:5], forebay.Error),
        (b"", forebay.Error),
    ],
    ids=["version", "refused", "secret", "refused secret", "http", "unknown", "long", "cut", "closed"],
)
def test_a_server_that_is_none(
    two: forebay.LocalGroup, own_place: Path, answer: bytes, error: type[forebay.Error]
) -> None:
    """What answers in the place of a server is told by kind, and asked once."""
    calls = 0
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        stop = threading.Event()

        def serve() -> None:
            nonlocal calls
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    made, _ = listener.accept()
                    calls += 1
                    with made:
                        made.settimeout(5)
                        receive(made, 60)
                        made.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        server = {"id": 0, "pid": 1, "addresses": [f"tcp:127.0.0.1:{port}"]}
        path = edited(two, own_place / "fake.json", servers=[server], size=1)
        try:
            with pytest.raises(error):
                reading(path, timeout=5)
            assert calls == 1
        finally:
            stop.set()
            thread.join()


def test_a_server_that_never_answers(two: forebay.LocalGroup, own_place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = {"id": 0, "pid": 4242, "addresses": [f"tcp:127.0.0.1:{port}"]}
        path = edited(two, own_place / "fake.json", servers=[server], size=1)
        started = time.monotonic()
        with pytest.raises(forebay.Timeout, match=r"server0 \(process 4242\)"):
            reading(path, timeout=0.5)
        assert time.monotonic() - started < 10


def test_openings_cut_anywhere(two: forebay.LocalGroup, transport: str) -> None:
    """Handshakes that end early, are garbage, or stay open: servers go on with everybody else."""
    whole = opening()
    waiting = []
    for length in range(len(whole)):
        made = dial(two, transport)
        made.sendall(whole[:length])
        if length % 3 == 0:
            waiting.append(made)
        else:
            made.close()
    for data in (
        os.urandom(2000),
        opening(1, b""),
        MAGIC + struct.pack("<HH", 1, 65535) + bytes(70000),
        MAGIC + struct.pack("<HH", 1, 65535),
        opening() * 20,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ):
        with dial(two, transport) as made, contextlib.suppress(ConnectionError):
            made.sendall(data)
            receive(made, 1 << 16) if len(data) > 60 else None
    check_it_works(two, transport)
    for made in waiting:
        made.close()


class Proxy:
    """Sits between clients and a server and spoils what passes."""

    def __init__(self, group: forebay.LocalGroup, path: Path, transport: str) -> None:
        """`spoil(bytes, position, direction)` returns what is passed on instead, or None to cut the line."""
        self.spoil: Callable[[bytes, int, str], bytes | None] = lambda data, _position, _direction: data
        self.group = group
        self.transport = transport
        self.stop = threading.Event()
        self.threads: list[threading.Thread] = []
        self.listeners = []
        content = json.loads(Path(group.path).read_text())
        for index, server in enumerate(content["servers"]):
            if transport == "tcp":
                listener = socket.create_server(("127.0.0.1", 0))
                server["addresses"] = [f"tcp:127.0.0.1:{listener.getsockname()[1]}"]
            else:
                listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                name = f"forebay-proxy-{os.getpid()}-{id(self)}-{index}"
                listener.bind("\0" + name)
                listener.listen()
                old = next(address for address in server["addresses"] if address.startswith("shm:"))
                server["addresses"] = [old.partition("/")[0] + "/" + name]
            listener.settimeout(0.05)
            self.listeners.append(listener)
            self._start(self._accept, listener, index)
        path.write_text(json.dumps(content))
        path.chmod(0o600)
        self.path = str(path)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket, index: int) -> None:
        while not self.stop.is_set():
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            server = dial(self.group, self.transport, index)
            self._start(self._pass_on, client, server, "up")
            self._start(self._pass_on, server, client, "down")

    def _pass_on(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        source.settimeout(0.05)
        position = 0
        files: list[int] = []
        while not self.stop.is_set():
            try:
                if self.transport == "shm":
                    data, files, _, _ = socket.recv_fds(source, 1 << 16, 8)
                else:
                    data = source.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                break
            passed = self.spoil(data, position, direction) if data else None
            position += len(data)
            try:
                if passed is None:
                    break
                if files:
                    socket.send_fds(target, [passed], files)
                else:
                    target.sendall(passed)
                if len(passed) < len(data):
                    break
            except OSError:
                break
            finally:
                for file in files:
                    os.close(file)
                files = []
        for made in (source, target):
            with contextlib.suppress(OSError):
                made.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(5)
        for listener in self.listeners:
            listener.close()


@pytest.fixture
def proxy(one: forebay.LocalGroup, own_place: Path, transport: str) -> Iterator[Proxy]:
    made = Proxy(one, own_place / "proxy.json", transport)
    yield made
    made.close()
    # The sockets are closed by their threads' frames only when collected.
    made.threads.clear()


def small_session(path: str, transport: str, values: list[float]) -> None:
    """A producer and a reader of blocks that travel inside control messages."""
    with (
        contextlib.closing(reading(path, transport=transport, timeout=1)) as reader,
        contextlib.closing(opened(path, transport=transport, timeout=1, on_loss="fail")) as sim,
    ):
        sim.array("U", dtype="f8", shape=SHAPE)
        for number in range(3):
            with sim.step(number) as step:
                step.put("U", reference(SHAPE, "f8", number))
            with reader.next() as found:
                np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", found.number))
                values.append(found.number)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_flipped_bit_in_a_control_message(
    proxy: Proxy, one: forebay.LocalGroup, transport: str, direction: str
) -> None:
    """It is noticed by one side or the other; never a wrong byte, and the server goes on."""
    for place in (*range(0, 62, 7), *range(70, 400, 23), *range(500, 1500, 161)):

        def spoil(data: bytes, position: int, where: str, place: int = place) -> bytes:
            if where == direction and position <= place < position + len(data):
                changed = bytearray(data)
                changed[place - position] ^= 1 << place % 8
                return bytes(changed)
            return data

        proxy.spoil = spoil
        seen: list[float] = []
        with contextlib.suppress(forebay.Error):
            small_session(proxy.path, transport, seen)
        assert seen == sorted(seen)
    check_it_works(one, transport)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("direction", ["up", "down"])
def test_lines_cut_at_any_byte(proxy: Proxy, one: forebay.LocalGroup, transport: str, direction: str) -> None:
    """Told as an error that names the server; the server forgets what was half done."""
    for place in (*range(0, 62, 5), *range(65, 300, 17), *range(300, 3000, 331), 10**9):

        def spoil(data: bytes, position: int, where: str, place: int = place) -> bytes | None:
            if where == direction and position + len(data) > place:
                return data[: max(0, place - position)] or None
            return data

        proxy.spoil = spoil
        seen: list[float] = []
        if place == 10**9:
            small_session(proxy.path, transport, seen)
            assert seen == [0, 1, 2]
        else:
            with contextlib.suppress(forebay.Error):
                small_session(proxy.path, transport, seen)
            assert seen == sorted(seen)
    check_it_works(one, transport)
    wait_until(lambda: is_given_back(one))


def frame(length: int, payload: int = 0, descriptors: int = 0, flags: int = 0, body: bytes = b"") -> bytes:
    """A frame's header, with a right checksum, and its body."""
    head = struct.pack("<IBBHQQQ", length, descriptors, flags, 0, 1, 1, payload)
    return head + struct.pack("<I", zlib.crc32(head + body)) + body


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("transport", ["shm"])
def test_frames_with_absurd_lengths(proxy: Proxy, one: forebay.LocalGroup) -> None:
    """From a peer that knows the secret: after its handshake it sends nonsense."""
    nonsense = [
        frame(0xFFFFFFFF),
        frame((16 << 20) + 1),
        frame(16 << 20),
        frame(0, payload=2**64 - 1),
        frame(0, payload=2**63),
        frame(1, payload=2**40, body=b"\7"),
        frame(0, descriptors=255),
        frame(0, flags=255),
        frame(1, body=b"\xff"),
        frame(3, body=b"\0\xff\xff"),
        frame(20, body=b"\xff" * 20),
        bytes(36),
        os.urandom(5000),
    ]
    before = sum(server["rss_bytes"] for server in forebay.Admin(group=one.path).status()["servers"])
    for extra in nonsense:

        def spoil(data: bytes, position: int, where: str, extra: bytes = extra) -> bytes:
            # The opening is one piece; what follows it is replaced.
            return extra if where == "up" and position > 0 else data

        proxy.spoil = spoil
        with pytest.raises(forebay.Error):
            reading(proxy.path, transport="shm", timeout=0.5)
    check_it_works(one)
    after = sum(server["rss_bytes"] for server in forebay.Admin(group=one.path).status()["servers"])
    assert after - before < 100 << 20


def test_many_connections_that_say_nothing(one: forebay.LocalGroup, transport: str) -> None:
    idle = [dial(one, transport) for _ in range(300)]
    check_it_works(one, transport)
    for made in idle:
        made.close()


# ---- fork ---------------------------------------------------------------------------------------


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
    with reading(two, transport=transport, window=8) as reader:
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
    with opened(two, transport=transport) as sim:
        sim.array("U", dtype="f8", shape=(200, 30))
        for number in range(3):
            with sim.step(number) as step:
                step.put("U", reference((200, 30), "f8", number))
    for number in range(3):
        reader.expect(str(number))
    reader.ended()


# ---- two groups on one path ---------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 2])
def test_two_groups_race_for_one_path(own_place: Path, servers: int) -> None:
    """One of them wins and works; the other says why it did not start, and leaves the winner alone."""
    for attempt in range(4):
        path = own_place / f"race{attempt}.json"
        up = [
            str(FOREBAY),
            "up",
            "-n",
            str(servers),
            "--group",
            str(path),
            "--budget",
            "32M",
            "--timeout",
            "15",
        ]
        racing = [
            subprocess.Popen(up, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
        ]
        told = [process.communicate(timeout=60) for process in racing]
        codes = sorted(process.returncode for process in racing)
        try:
            assert codes == [0, 1], told
            assert path.exists(), "the winner's connection file is gone"
            check_it_works(str(path))
            status = forebay.Admin(group=str(path)).status()["servers"]
            assert len(status) == servers
        finally:
            down = command("down", "--group", path)
            if down.returncode != 0:
                kill_servers_of(path)
        assert down.returncode == 0, down.stderr
        assert not path.exists()


def kill_servers_of(path: Path) -> None:
    """Ends what a lost race left running, so that one failure does not make others."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            line = (entry / "cmdline").read_bytes().split(b"\0")
            if b"serve" in line and str(path).encode() in line:
                os.kill(int(entry.name), 9)
