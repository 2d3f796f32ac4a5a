"""Where pictures go: files, databases, the space; and what happens when they cannot, or a worker ends while it draws."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.commands import FOREBAY, run, told
from support.native import ROOT
from support.pictures import drawing_group, executed, gyroid, placed, put_blocks
from support.pipelines import pipeline_status
from support.sessions import producer
from support.waiting import wait_until

import forebay
from forebay import viz
from forebay.viz import cinema

CINEMASCI = ROOT / "target" / "cinemasci"
SLICE = 'viz.Picture(name="slice", layers=[viz.Slice("U")], **small),'
ORBIT = (
    'viz.Picture(name="orbit", layers=[viz.Slice("U")], camera=viz.orbit(2), every=2, cinema=True, **small),'
)


def put(sim: forebay.Producer, number: int) -> None:
    with sim.step(number, time=number / 4) as step:
        put_blocks(step, {"U": gyroid()[0] + np.float32(number)}, 1)


def declared(sim: forebay.Producer) -> forebay.Producer:
    u = gyroid()[0]
    sim.array("U", dtype=u.dtype, shape=u.shape)
    return sim


def test_the_latest_picture_is_in_the_space(own_place: Path) -> None:
    with drawing_group(own_place, 2, SLICE + ORBIT) as group:
        on, file = ["--group", group.path], own_place / "x.png"
        why = told("pipeline", "picture", "look", "-o", file, *on, code=1)
        assert "has drawn no picture yet" in why["text"]
        why = told("pipeline", "picture", "other", "-o", file, *on, code=1)
        assert "there is no pipeline 'other', and no picture of one; there are: look" in why["text"]
        with declared(producer(group, policy="block")) as sim:
            for number in range(2):
                put(sim, number)
                executed(group, number + 1)
                done = told("pipeline", "picture", "look", "slice", "-o", file, *on)
                assert (done["picture"], done["file"]) == ("slice", str(file))
                # It is the one in the file, to the last byte.
                assert file.read_bytes() == (own_place / "out" / f"slice-00000{number}.png").read_bytes()
        why = told("pipeline", "picture", "look", "-o", file, *on, code=1)
        assert (
            "say which one, as in `forebay pipeline picture look orbit-0`; there are: orbit-0, orbit-1, slice"
            in why["text"]
        )
        why = told("pipeline", "picture", "look", "slice", "-o", own_place / "x.jpg", *on, code=1)
        assert "x.jpg: pictures are PNG: choose a name that ends in .png" in why["text"]
        why = told("pipeline", "picture", "look", "nosuch", "-o", file, *on, code=1)
        assert "no picture 'nosuch'; there are: orbit-0" in why["text"]
        why = told("pipeline", "picture", "look", "slice", "-o", own_place / "no" / "x.png", *on, code=1)
        assert why["error"] == "Io"
        assert "x.png" in run("pipeline", "picture", "look", "orbit-1", "-o", file, *on).stdout
        with Image.open(file) as shown:
            assert shown.size == (160, 120)
        command = [FOREBAY, "pipeline", "picture", "look", "orbit-1", "-o", "-", *on]
        assert (
            subprocess.run(list(map(str, command)), capture_output=True, check=True).stdout
            == file.read_bytes()
        )


@pytest.mark.skipif(not CINEMASCI.exists(), reason="Cinema's reader is not here: run `make cinemasci`")
def test_a_database_is_opened_by_cinemas_reader(own_place: Path) -> None:
    with drawing_group(own_place, 2, ORBIT) as group, declared(producer(group, policy="block")) as sim:
        for number in range(5):
            put(sim, number)
        executed(group, 3)
    script = """
import sys
sys.path.insert(0, sys.argv[1])
import cinemasci
database = cinemasci.new("cdb", {"path": sys.argv[2]})
assert database.read_data_from_file()
database.set_extract_parameter_names(["FILE"])
for step in (0, 2, 4):
    for camera in (0, 1):
        print(*database.get_extracts({"step": str(step), "camera": str(camera)}))
print(*database.get_parameter_names())
"""
    path = own_place / "out" / "orbit.cdb"
    done = subprocess.run(
        [sys.executable, "-c", script, str(CINEMASCI), str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *files, names = done.stdout.splitlines()
    wanted = [f"orbit-00000{step}-{camera}.png" for step in (0, 2, 4) for camera in (0, 1)]
    assert [Path(file).name for file in files] == wanted
    assert all((path / Path(file).name).exists() for file in files)
    assert names.split() == ["step", "time", "azimuth", "elevation", "camera"]
    table = (path / "data.csv").read_text().splitlines()
    assert table[1:3] == ["0,0,30,22,0,orbit-000000-0.png", "0,0,210,22,1,orbit-000000-1.png"]


def failed(group: forebay.LocalGroup, count: int = 1) -> dict[str, Any]:
    def done() -> dict[str, Any] | None:
        status = pipeline_status(group, "look")
        return status if status.get("failed", 0) >= count else None

    found: dict[str, Any] = wait_until(done, timeout=60)
    return found


def test_output_that_cannot_be_written_is_told(own_place: Path) -> None:
    own_place.joinpath("taken").write_text("a file, not a directory")
    config = {"output": str(own_place / "taken" / "pictures")}
    with (
        drawing_group(own_place, 1, SLICE, **config) as group,
        declared(producer(group, policy="block")) as sim,
    ):
        put(sim, 0)
        assert "NotADirectoryError" in failed(group)["last_error"]
        why = told("pipeline", "picture", "look", "-o", "-", "--group", group.path, code=1)
        assert "has drawn no picture, and failed once: NotADirectoryError" in why["text"]
        put(sim, 1)
        assert failed(group, 2)["executed"] == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_a_full_disk_leaves_no_half_of_a_picture(own_place: Path) -> None:
    from forebay.viz import files

    with pytest.raises(OSError, match="No space left"):
        Path("/dev/full").write_bytes(b"x")
    target = own_place / "pictures" / "x.png"
    target.parent.mkdir()
    target.write_bytes(b"the one before")
    partial = target.parent / f".x.png.{os.getpid()}"
    partial.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        files.write(target, b"x" * 100_000)
    assert target.read_bytes() == b"the one before"
    assert [path.name for path in target.parent.iterdir()] == ["x.png"]


def test_a_database_that_is_there_says_what_its_files_show(own_place: Path) -> None:
    """Of a second run in one directory, with fewer cameras; and after half of a line."""
    database = own_place / "x.cdb"
    table = database / "data.csv"
    eight, four = (viz.Picture(name="x", layers=[viz.Slice("U")], camera=viz.orbit(n)) for n in (8, 4))
    for made, time in ((eight, 1.0), (four, 7.5)):
        cameras = range(len(made.cameras))
        cinema.add(database, made, [cinema.Row(10, time, n, made.file_name(10, n)) for n in cameras])
    rows = [line.split(",") for line in table.read_text().splitlines()]
    assert [row[1] for row in rows] == ["time", *["7.5"] * 4, *["1"] * 4]
    assert [row[2] for row in rows] == ["azimuth", "30", "120", "210", "300", "210", "255", "300", "345"]
    with table.open("a") as half:
        half.write("20,8,30,22")
    cinema.add(database, four, [cinema.Row(30, 9.0, 0, four.file_name(30, 0))])
    assert table.read_text().splitlines()[-2:] == [",".join(rows[-1]), "30,9,30,22,0,x-000030-0.png"]
    assert [path.name for path in database.iterdir()] == ["data.csv"]


def test_another_table_is_not_written_to(own_place: Path) -> None:
    database = own_place / "out" / "orbit.cdb"
    database.mkdir(parents=True)
    (database / "data.csv").write_text("mine,FILE\n1,a.png\n")
    with drawing_group(own_place, 1, ORBIT) as group, declared(producer(group, policy="block")) as sim:
        put(sim, 0)
        assert "is no table of pictures of forebay.viz" in failed(group)["last_error"]
    assert (database / "data.csv").read_text() == "mine,FILE\n1,a.png\n"


SLOW = """
import os, sys, time
from forebay.viz import drawing

def pausing(module, name, where):
    whole = getattr(module, name)

    def paused(*given, **options):
        pause, server = os.environ["PAUSE_FILE"], sys.argv[sys.argv.index("--server") + 1]
        if os.environ["PAUSE_IN"] == where and os.path.exists(pause) and server == "1":
            open(pause + ".there", "w").close()
            while os.path.exists(pause):
                time.sleep(0.01)
        return whole(*given, **options)

    setattr(module, name, paused)

def hurry(self, step, comm, execute=viz.Pictures.execute):
    comm.set_timeout(3)
    try:
        execute(self, step, comm)
    except forebay.Error as error:
        print("told:", error)
        raise

viz.Pictures.execute = hurry
pausing(drawing, "shape", "filters")
pausing(drawing.Window, "draw", "draws")
pausing(forebay.Comm, "Composite_nearest", "composites")
pausing(drawing, "_caption", "finishes")
"""


def told_to_others(group: forebay.LocalGroup) -> str:
    """What the pipeline's workers have printed."""
    return "\n".join(line for worker in pipeline_status(group, "look")["workers"] for line in worker["log"])


@pytest.mark.parametrize(
    ("where", "how"),
    [(where, signal.SIGKILL) for where in ("filters", "draws", "composites", "finishes")]
    + [(where, signal.SIGSTOP) for where in ("draws", "composites")],
)
def test_a_worker_that_ends_or_stops_while_it_draws(
    own_place: Path, monkeypatch: pytest.MonkeyPatch, where: str, how: signal.Signals
) -> None:
    """The step is drawn again, or fails and says why; none hangs, and the next ones are drawn by all."""
    pause = own_place / "pause"
    monkeypatch.setenv("PAUSE_IN", where)
    monkeypatch.setenv("PAUSE_FILE", str(pause))
    # The second picture is finished by the second worker.
    pictures = SLICE + SLICE.replace("slice", "second")
    with (
        drawing_group(own_place, 2, pictures, header=SLOW) as group,
        declared(producer(group, policy="block", placement=placed(2))) as sim,
    ):
        put(sim, 0)
        executed(group, 1)
        pause.touch()
        put(sim, 1)
        wait_until(Path(f"{pause}.there").exists, timeout=30)
        workers = pipeline_status(group, "look")["workers"]
        victim = next(worker["pid"] for worker in workers if worker["server"] == 1)
        os.kill(victim, how)
        pause.unlink()
        if how == signal.SIGSTOP:
            wait_until(lambda: "rank 1" in told_to_others(group), timeout=20)
            os.kill(victim, signal.SIGCONT)
        put(sim, 2)
        out = own_place / "out"
        wait_until(
            lambda: all((out / f"{name}-000002.png").exists() for name in ("slice", "second")), timeout=60
        )
        status = pipeline_status(group, "look")
    assert (out / "slice-000002.png").read_bytes() == (out / "second-000002.png").read_bytes()
    if status["failed"]:
        assert any(word in status["last_error"] for word in ("rank", "worker")), status["last_error"]


def test_servers_come_and_go_between_pictures(own_place: Path) -> None:
    """Each step is drawn by those that are there, and looks the same."""
    plain = SLICE.replace("**small", "caption=False, legend=False, **small")
    with (
        drawing_group(own_place, 1, plain) as group,
        declared(producer(group, policy="block", replicas=1)) as sim,
    ):
        numbers, u = range(4), gyroid()[0]
        for number in numbers:
            with sim.step(number) as step:
                put_blocks(step, {"U": u}, 1)
            executed(group, number + 1)
            if number == 0:
                joined = group.add_servers(2)
                wait_until(lambda: len(pipeline_status(group, "look")["workers"]) == 3, timeout=30)
            elif number == 2:
                group.remove_server(joined[0])
    pictures = {(own_place / "out" / f"slice-00000{number}.png").read_bytes() for number in numbers}
    assert len(pictures) == 1


def test_two_pipelines_draw_at_once(own_place: Path) -> None:
    with drawing_group(own_place, 2, SLICE) as group, forebay.Admin(group=group.path) as admin:
        admin.create_pipeline(
            "second", f"{own_place / 'look.py'}:Look", config={"output": str(own_place / "other")}
        )
        with declared(producer(group, policy="block")) as sim:
            for number in range(4):
                put(sim, number)
            executed(group, 4)
            executed(group, 4, "second")
    names = [f"slice-00000{number}.png" for number in range(4)]
    for name in names:
        assert (own_place / "out" / name).read_bytes() == (own_place / "other" / name).read_bytes()
