"""The command line, by its JSON and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.commands import FOREBAY, run, told
from support.groups import open_ranks_of, stream_status
from support.sessions import consumer, open_ranks, producer, write_steps
from support.waiting import wait_until

import forebay
from forebay.bench import BENCHES

COMMANDS: list[list[str]] = [
    [],
    ["up"],
    ["down"],
    ["serve"],
    ["add"],
    ["leave"],
    ["heal"],
    ["status"],
    ["top"],
    ["ls"],
    ["get"],
    ["watch"],
    ["wait"],
    ["pipeline"],
    ["pipeline", "create"],
    ["pipeline", "destroy"],
    ["pipeline", "list"],
    ["pipeline", "log"],
    ["bench"],
    *(["bench", name] for name in BENCHES),
    ["doctor"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command) or "forebay")
def test_help_fits(command: list[str]) -> None:
    text = run(*command, "--help").stdout
    lines = text.splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= 80
    assert "Usage" in text or "usage" in text


def test_wrong_usage() -> None:
    for arguments in (
        [],
        ["no-such-command"],
        ["up", "--no-such-option"],
        ["get"],
        ["get", "s"],
        ["pipeline"],
        ["pipeline", "create", "x"],
        ["up", "-n", "many"],
        ["up", "-n", "0"],
        ["status", "--transport", "fax"],
        ["up", "--budget", "a lot"],
        ["serve", "--ports", "5"],
        ["status", "--timeout", "soon"],
        ["status", "--timeout", "-1"],
        ["status", "--timeout", "nan"],
        ["status", "--timeout", "0"],
    ):
        assert "--help" in run(*arguments, code=2).stderr, arguments


def test_what_dead_servers_knew_is_not_taken_for_nothing(two: forebay.LocalGroup) -> None:
    """A list without what a server coordinates says so; without any server there is none."""
    with producer(two, keep=1), producer(two, "other", keep=1):
        servers = forebay.Admin(group=two.path).status()
        pids = [server["pid"] for server in servers["servers"]]
        of_s = next(stream["server"] for stream in servers["streams"] if stream["name"] == "s")
        os.kill(pids[of_s], signal.SIGKILL)
        gone = f"server{of_s} (process {pids[of_s]}) was lost, with what only it held"
        wait_until(lambda: gone in run("ls", "--group", two.path).stderr)
        assert gone in run("status", "--group", two.path).stdout
        for arguments in (["ls", "unknown"], ["pipeline", "log", "p"], ["pipeline", "destroy", "p"]):
            done = run(*arguments, "--group", two.path, code=1)
            assert gone in done.stderr or arguments[1] == "destroy", arguments
        run("status", "--group", two.path)
        os.kill(pids[1 - of_s], signal.SIGKILL)
        wait_until(lambda: told_code("status", "--group", two.path) == 3)
        for arguments in (["ls"], ["ls", "s"], ["pipeline", "list"], ["pipeline", "log", "p"]):
            done = run(*arguments, "--group", two.path, code=3)
            assert "no server of the group answers" in done.stderr
            assert done.stdout == ""


def told_code(*arguments: object) -> int:
    """The exit status of a command."""
    done = subprocess.run([FOREBAY, *map(str, arguments)], capture_output=True, timeout=60, check=False)
    return done.returncode


def test_version() -> None:
    assert run("--version").stdout.split() == ["forebay", forebay.__version__]


NUMBERS: dict[str, list[Any]] = {
    "bool": [True, False],
    "int8": [-128, 127],
    "int64": [2**53 + 1, -(2**63), 2**63 - 1],
    "uint64": [2**64 - 1, 0],
    "float16": [0.1, -np.inf],
    "float32": [0.1, 16777217, 1e-40, 3e38],
    "float64": [0.1, np.inf, -np.inf, np.nan, 1e300, 5e-324, -0.0],
    "complex64": [0.1 - 2j, complex(np.nan, np.inf)],
    "complex128": [1 + 2j, 3 - 4j],
}


def test_numbers_are_printed_as_they_are(one: forebay.LocalGroup) -> None:
    """Those of JSON, which has no infinity, and those for people."""
    with producer(one, keep=1) as sim:
        for dtype, values in NUMBERS.items():
            sim.array(dtype, dtype=dtype, shape=(len(values),))
        with sim.step(0) as step:
            for dtype, values in NUMBERS.items():
                step.put(dtype, np.array(values, dtype))
        sim.flush()
        for dtype, values in NUMBERS.items():
            expected = np.array(values, dtype)
            got = told("get", "s", dtype, "--group", one.path)
            found = [complex(*map(float, v)) if isinstance(v, list) else v for v in got["values"]]
            np.testing.assert_array_equal(np.array(found, dtype), expected, strict=True)
            shown = run("get", "s", dtype, "--group", one.path).stdout.splitlines()[1].split()
            if dtype == "bool":
                assert shown == ["true", "false"]
            else:
                np.testing.assert_array_equal(np.array(shown).astype(dtype), expected, strict=True)


def test_a_group_from_up_to_down(own_place: Path) -> None:
    group = own_place / "g.json"
    up = told("up", "-n", 2, "--group", group, "--budget", "64M")
    try:
        assert up["group"] == str(group)
        assert [server["server"] for server in up["servers"]] == [0, 1]
        assert [server["budget_bytes"] for server in up["servers"]] == [64 << 20] * 2
        assert group.stat().st_mode & 0o777 == 0o600

        # A second one is refused and changes nothing.
        before = group.read_text()
        again = told("up", "-n", 2, "--group", group, code=1)
        assert again["error"] == "Conflict"
        assert group.read_text() == before

        assert told("ls", "--group", group) == []
        with open_ranks(str(group), "sim", 2, keep=2) as sim:
            whole = reference((6, 5, 4), "f4", 3)
            for rank in sim:
                rank.array("U", dtype="f4", shape=(6, 5, 4), units="m")
                rank.array("on", dtype="?", shape=(6, 5))
            with sim[0].step(3, time=0.5) as a, sim[1].step(3, time=0.5) as b:
                a.put("U", whole[:2], offset=(0, 0, 0))
                b.put("U", whole[2:], offset=(2, 0, 0))
                a.put("on", reference((6, 5), "?"))
            wait_until(lambda: told("ls", "--group", group)[0]["latest"] == 3)

            status = told("status", "--group", group, "--timeout", "1e19")
            assert [server["server"] for server in status["servers"]] == [0, 1]
            (stream,) = status["streams"]
            assert (stream["name"], stream["run"], stream["latest"]) == ("sim", 1, 3)
            assert stream["ranks"] == {"size": 2, "open": 2}
            assert [stream["name"] for stream in told("ls", "--group", group)] == ["sim"]
            fields = told("ls", "sim", "--group", group)
            assert [(f["name"], f["dtype"], f["shape"], f["units"]) for f in fields] == [
                ("U", "float32", [6, 5, 4], "m"),
                ("on", "bool", [6, 5], ""),
            ]
            shown = run("ls", "sim", "--group", group).stdout
            assert "U      float32  (6, 5, 4)  1            m" in shown
            assert told("ls", "none", "--group", group, code=1)["error"] == "NotFound"
            for command in (["status"], ["ls"], ["ls", "sim"]):
                lines = run(*command, "--group", group).stdout.splitlines()
                assert lines
                assert max(map(len, lines)) <= 80

            got = told("get", "sim", "U", "--region", "::2, 1:3, -1", "--group", group)
            assert (got["step"], got["time"], got["dtype"], got["shape"]) == (3, 0.5, "float32", [3, 2, 1])
            np.testing.assert_array_equal(np.reshape(got["values"], (3, 2)), whole[::2, 1:3, -1])
            got = told("get", "sim", "on", "--group", group)
            np.testing.assert_array_equal(np.reshape(got["values"], (6, 5)), reference((6, 5), "?"))
            for name in ("U", "on"):
                file = own_place / f"{name}.npy"
                told("get", "sim", name, "-o", file, "--group", group)
                expected = whole if name == "U" else reference((6, 5), "?")
                np.testing.assert_array_equal(np.load(file), expected, strict=True)
            for region in ("9, 0, 0", "a", "0:1:0", "0,0,0,0", "-9"):
                error = told("get", "sim", "U", "--region", region, "--group", group, code=1)
                assert error["error"] in ("Invalid", "OutOfBounds")
            assert told("get", "sim", "V", "--group", group, code=1)["error"] == "NotFound"
            waited = run("get", "none", "U", "--timeout", "0.2", "--group", group, code=1)
            assert "nobody has opened stream 'none' yet: waiting, 200ms at most" in waited.stderr
            assert (
                "the next step of stream 'none' has not come within 200ms" in waited.stderr.splitlines()[-1]
            )
    finally:
        down = told("down", "--group", group)
    assert down == {"ended": 2}
    assert not group.exists()
    assert sorted(path.name for path in own_place.iterdir() if path.is_file()) == ["U.npy", "on.npy"]
    for command in (["down"], ["status"], ["ls"], ["get", "s", "U"], ["pipeline", "list"]):
        error = told(*command, "--group", group, code=3)
        assert error["error"] in ("ConnectionFile", "Unreachable")


def test_a_group_by_name(own_place: Path) -> None:
    """A name stands for a file in the runtime directory; without one it is `default`, or FOREBAY_GROUP."""
    told("up", "--group", "mine", "--budget", "16M")
    told("up", "--budget", "16M")
    files = {path.name for path in (own_place / "run" / "forebay").iterdir() if path.suffix == ".json"}
    assert files == {"mine.json", "default.json"}
    environment = {**os.environ, "FOREBAY_GROUP": "mine"}
    assert len(json.loads(run("status", "--json", env=environment).stdout)["servers"]) == 1
    assert forebay.Admin(group="mine").status()["servers"]
    assert forebay.Admin().status()["servers"]
    # Empty is as good as none.
    run("status", env={**os.environ, "FOREBAY_GROUP": ""})
    told("down")
    told("status", code=3)
    run("down", env=environment)
    assert "up" in run("status", code=3).stderr, "the error names the remedy"


def test_servers_join_through_one_file(own_place: Path) -> None:
    """`serve` in two shells: the first founds the group, the second joins; SIGTERM and Ctrl-C end them."""
    group = own_place / "g.json"
    serve = [str(FOREBAY), "serve", "--servers", "2", "--group", str(group), "--budget", "32M"]
    shells = [subprocess.Popen(serve, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        wait_until(lambda: group.exists() and json.loads(group.read_text())["awaited"] == 0)
        status = told("status", "--group", group)
        assert {server["pid"] for server in status["servers"]} == {shell.pid for shell in shells}
        with (
            forebay.Consumer("s", group=str(group), timeout=20) as reader,
            open_ranks(str(group), "s", 4) as sim,
        ):
            for rank in sim:
                rank.array("U", dtype="f8", shape=(60, 50))
            write_steps(sim, [0], lambda _: reference((60, 50)))
            with reader.next() as found:
                np.testing.assert_array_equal(found["U"][...], reference((60, 50)))
                assert {block.server for block in found["U"].blocks()} == {0, 1}
    finally:
        shells[0].send_signal(signal.SIGTERM)
        shells[1].send_signal(signal.SIGINT)
        codes = [shell.wait(15) for shell in shells]
        for shell in shells:
            assert shell.stderr is not None
            shell.stderr.close()
    assert codes == [0, 0]
    assert not group.exists()


def test_a_server_alone_can_be_ended_while_it_waits(own_place: Path) -> None:
    group = own_place / "g.json"
    serve = [str(FOREBAY), "serve", "--servers", "2", "--group", str(group)]
    with subprocess.Popen(serve) as shell:
        wait_until(group.exists)
        with pytest.raises(forebay.Timeout, match="missing"):
            forebay.Consumer("s", group=str(group), timeout=0.2)
        shell.terminate()
        assert shell.wait(15) == 0
    assert not group.exists(), "a group that never formed leaves its file"


def test_up_that_cannot(own_place: Path) -> None:
    """A server that does not start: said why, and nothing is left."""
    group = own_place / "g.json"
    error = told("up", "-n", 2, "--group", group, "--bind", "203.0.113.77", code=1)
    assert "203.0.113.77" in error["text"] or "listen" in error["text"] or "bind" in error["text"]
    assert not group.exists()
    assert told("up", "--group", own_place / "no" / "such" / "place.json", code=1)
    assert not group.exists()


def test_pipelines(own_place: Path) -> None:
    group = own_place / "g.json"
    code = own_place / "code.py"
    code.write_text(
        "import forebay\nclass Check(forebay.Pipeline):\n"
        "    def execute(self, step, comm):\n        print('config', self.config['a'], step.number)\n"
    )
    config = own_place / "config.json"
    config.write_text('{"a": "from a file"}')
    told("up", "-n", 2, "--group", group, "--budget", "32M")
    try:
        on = ["--group", group]
        created = told(
            "pipeline", "create", "one", f"{code}:Check", "--stream", "s", "--config", '{"a": 5}', *on
        )
        assert created == {"created": "one"}
        told("pipeline", "create", "two", f"{code}:Check", "--stream", "s", "--config", f"@{config}", *on)
        told("pipeline", "create", "mine", f"{code}:Check", "--stream", "m", "--driven", *on)
        assert {p["name"]: p["driven"] for p in told("pipeline", "list", *on)} == {
            "one": False,
            "two": False,
            "mine": True,
        }
        told("pipeline", "destroy", "mine", *on)
        assert sorted(p["name"] for p in told("pipeline", "list", *on)) == ["one", "two"]
        with open_ranks(str(group), "s", 1, policy="block") as sim:
            sim[0].array("U", dtype="f8", shape=(60, 50))
            write_steps(sim, range(3), lambda _: reference((60, 50)))
        wait_until(lambda: "config 5 2" in run("pipeline", "log", "one", *on).stdout)
        wait_until(lambda: "config from a file 2" in run("pipeline", "log", "two", *on).stdout)
        assert len(told("pipeline", "log", "one", *on)) == 2
        bad = (["--config", "{"], ["--config", "[]"], ["--config", "@/none"])
        for more in bad:
            told("pipeline", "create", "three", f"{code}:Check", "--stream", "s", *more, *on, code=1)
        for name in ("code", f"{own_place / 'none.py'}:Check"):
            told("pipeline", "create", "three", name, "--stream", "s", *on, code=1)
        error = told("pipeline", "create", "three", f"{code}:None", "--stream", "s", *on, code=1)
        assert error["error"] == "PipelineFailed"
        assert "AttributeError" in error["text"]
        assert told("pipeline", "destroy", "one", *on) == {"destroyed": "one"}
        assert [p["name"] for p in told("pipeline", "list", *on)] == ["two"]
        assert told("pipeline", "destroy", "one", *on, code=1)["error"] == "NotFound"
        assert told("pipeline", "log", "one", *on, code=1)["error"] == "NotFound"
    finally:
        assert told("down", "--group", group) == {"ended": 2}


def test_the_doctor_looks_at_the_group(two: forebay.LocalGroup, own_place: Path) -> None:
    found = {check["check"]: check for check in told("doctor", "--group", two.path)}
    assert found["group"]["found"] == f"2 servers of version {forebay.__version__}"
    found = {check["check"]: check for check in told("doctor", "--group", own_place / "none.json")}
    assert not found["group"]["ok"]


def test_doctor() -> None:
    done = subprocess.run(
        [FOREBAY, "doctor", "--json"], capture_output=True, text=True, timeout=60, check=False
    )
    checks = {check["check"]: check for check in json.loads(done.stdout)}
    for check in checks.values():
        assert check.keys() == {"check", "ok", "needed", "found", "remedy"}
        assert bool(check["remedy"]) == (not check["ok"])
    assert checks["shared memory"]["ok"]
    assert checks["Python package"]["ok"]
    assert checks["versions"]["found"].startswith(
        f"command {forebay.__version__}, Python package {forebay.__version__}"
    )
    assert "glibc" in checks["system"]["found"]
    assert done.returncode == (0 if all(c["ok"] or not c["needed"] for c in checks.values()) else 1)
    text = subprocess.run([FOREBAY, "doctor"], capture_output=True, text=True, timeout=60, check=False).stdout
    assert "shared memory" in text


def test_an_error_says_which_server_it_is_about(one: forebay.LocalGroup) -> None:
    error = told("leave", "server7", "--group", one.path, code=1)
    assert (error["error"], error["server"]) == ("NotFound", 7)
    assert "server" not in told("get", "nothing", "U", "--group", one.path, "--timeout", 1, code=1)
    with pytest.raises(forebay.NotFound, match="no server7") as raised:
        forebay.Admin(group=one.path).remove_server(7)
    assert raised.value.server == 7
    with pytest.raises(forebay.Invalid) as raised:
        forebay.Producer("s", rank=2, size=1, group=one.path)
    assert raised.value.server is None


def test_down_of_a_group_that_has_lost_a_server(own_place: Path) -> None:
    group = own_place / "g.json"
    up = told("up", "-n", 2, "--group", group, "--budget", "16M")
    os.kill(up["servers"][0]["pid"], signal.SIGKILL)

    def lost() -> bool:
        """The status names the lost server with an error until the other server has it out of the group."""
        servers = told("status", "--group", group)["servers"]
        return len(servers) == 1 or any("error" in server for server in servers)

    wait_until(lost)
    assert "server" in run("status", "--group", group).stdout
    assert told("down", "--group", group) == {"ended": 1}
    assert not group.exists()


def test_output_into_a_closed_pipe(one: forebay.LocalGroup) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [FOREBAY, "status", "--group", one.path],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(write)
    assert done.returncode == 0
    assert "panic" not in done.stderr


def test_which_step_is_shown(two: forebay.LocalGroup) -> None:
    """By number, the oldest, the latest, the next; what is not kept any more is told at once."""

    def shown(step: str | int, code: int = 0) -> Any:
        return told("get", "s", "U", "--step", step, "--timeout", "20", "--group", two.path, code=code)

    with producer(two, keep=3) as sim:
        sim.array("U", dtype="f8", shape=(2,))
        for number in range(10, 60, 10):
            with sim.step(number, time=number * 0.1 + 1e-15) as step:
                step.put("U", np.full(2, float(number)))
        wait_until(lambda: (stream_status(two, "s") or {}).get("latest") == 50)
        for which, number in (("oldest", 30), ("latest", 50), (40, 40), (50, 50)):
            got = shown(which)
            assert (got["step"], got["values"]) == (number, [number, number])
        for gone in (10, 35):
            assert shown(gone, 1)["error"] == "NotFound"
        assert "is 30" in shown(20, 1)["text"]
        assert "  " not in shown(20, 1)["text"]
        asked = ["get", "s", "U", "--step", "40", "--group", two.path]
        assert run(*asked).stdout.startswith("step 40, time 4, shape [2], float64\n")
        coming = subprocess.Popen(
            [FOREBAY, "get", "s", "U", "--step", "next", "--json", "--group", two.path],
            stdout=subprocess.PIPE,
        )
        number = 60
        with coming:
            while coming.poll() is None:
                with sim.step(number) as step:
                    step.put("U", np.full(2, float(number)))
                number += 1
            assert coming.stdout is not None
            got = json.load(coming.stdout)
        assert 60 <= got["step"] < number
        assert got["values"] == [got["step"]] * 2
    with producer(two, "brief") as sim:
        sim.array("U", dtype="f8", shape=(2,))
        with sim.step(0) as step:
            step.put("U", np.zeros(2))
    wait_until(lambda: open_ranks_of(two, "brief") == 0)
    error = told("get", "brief", "U", "--group", two.path, code=1)
    assert error["error"] == "NotFound"
    assert "has finished, and keeps none of its steps" in error["text"]
    assert "  " not in error["text"]
    assert "oldest, latest, next" in run("get", "s", "U", "--step", "then", code=2).stderr


def test_the_latest_step_that_has_a_field(two: forebay.LocalGroup) -> None:
    """Where another field comes more often, and where an earlier run went farther."""
    latest = ("get", "s", "U", "--step", "latest", "--timeout", "20", "--group", two.path)
    held = forebay.Consumer("s", group=two.path, start="oldest")
    with producer(two, keep=10) as sim:
        sim.array("U", dtype="f8", shape=(2,), every=10)
        sim.array("V", dtype="f8", shape=(2,))
        for number in range(16):
            with sim.step(number) as step:
                step.put("V", np.zeros(2))
                if number % 10 == 0:
                    step.put("U", np.full(2, float(number)))
        wait_until(lambda: (stream_status(two, "s") or {}).get("latest") == 15)
        assert told(*latest)["step"] == 10
        both = ("get", "s", "U", "V", "--group", two.path)
        assert told(*both)[0]["step"] == 10
        assert run(*both).stderr == ""
        missing = run(*both, "--step", "12", code=1).stderr
        assert "fields 'U' and 'V': the last that can be read before it is 10" in missing
        assert "the first that can be read after it is 10" in run(*both, "--step", "7", code=1).stderr
        # What is shown of a field is of the newest step that has it.
        shown = run("ls", "-l", "-D", "s/U", "--group", two.path).stdout
        assert "below, step 10" in shown
        assert "[0:2]" in shown
    first = held.next()
    with producer(two, keep=10) as sim:
        sim.array("U", dtype="f8", shape=(2,))
        with sim.step(3) as step:
            step.put("U", np.ones(2))
        wait_until(lambda: (stream_status(two, "s") or {}).get("latest") == 3)
        for which in ("latest", "3"):
            got = told("get", "s", "U", "--step", which, "--timeout", "20", "--group", two.path)
            assert (got["step"], got["values"]) == (3, [1.0, 1.0])
        # The reader holds steps of the run before.
        held_steps = told("ls", "-t", "s", "--group", two.path)["held_steps"]
        assert [step["step"] for step in held_steps] == [3]
    del first
    held.close()


def test_a_step_of_a_stream_that_has_not_begun_is_waited_for(two: forebay.LocalGroup) -> None:
    """A reader, or a pipeline, may be there before the simulation."""
    with consumer(two):
        coming = subprocess.Popen(
            [FOREBAY, "get", "s", "U", "--json", "--group", two.path], stdout=subprocess.PIPE
        )
        wait_until(lambda: (stream_status(two, "s") or {}).get("attached") == 2)
        with producer(two, keep=1) as sim:
            sim.array("U", dtype="f8", shape=(2,))
            with sim.step(7) as step:
                step.put("U", np.ones(2))
            with coming:
                assert coming.stdout is not None
                assert json.load(coming.stdout)["step"] == 7


def test_streams_that_nobody_uses_do_not_fill_the_status(one: forebay.LocalGroup) -> None:
    """The latest of them stay for `forebay ls`, as much of them as has room; those in use are shown whole."""
    with producer(one, "in use") as used:
        used.array("U", dtype="f8", shape=(2,))
        used.attr("namelist", "x" * 60_000)
        for number in range(300):
            with producer(one, f"run {number:03}") as sim:
                sim.array("U", dtype="f8", shape=(2,))
                sim.attr("namelist", "x" * 60_000)
        wait_until(lambda: (stream_status(one, "run 299") or {}).get("ranks") == {"size": 1, "open": 0})
        shown = {stream["name"]: stream for stream in forebay.Admin(group=one.path).status()["streams"]}
        assert list(shown) == ["in use", *(f"run {number:03}" for number in range(44, 300))]
        assert not shown["in use"]["details_left_out"]
        left_out = [name for name, stream in shown.items() if stream["details_left_out"]]
        assert 0 < len(left_out) < len(shown)
        assert all(shown[name]["attrs"] == {} and shown[name]["fields"] == [] for name in left_out)
        assert "not shown" in run("ls", "--group", one.path).stdout
        # One that was forgotten runs again.
        with consumer(one, "run 000") as reader, producer(one, "run 000") as sim:
            sim.array("U", dtype="f8", shape=(2,))
            with sim.step(0) as step:
                assert step.put("U", np.ones(2))
            with reader.next() as found:
                assert (found["U"][...] == 1).all()
