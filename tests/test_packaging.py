"""What is installed of Forebay, by pip from the wheel and by `make install`: it is whole, and is found by who needs it.

In CI the wheel was made by the build; elsewhere `make wheel` makes it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.native import ROOT
from support.sessions import consumer
from support.tutorial import expected

import forebay

TUTORIAL = ROOT / "examples" / "tutorial"
BUILT = ROOT / "target" / f"{os.uname().machine}-unknown-linux-gnu" / "wheel"
"""Where cargo has put what the wheel holds."""


def run(*command: object, **options: object) -> str:
    """Runs a command, which must succeed; what it prints."""
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=110,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return str(done.stdout)


@pytest.fixture(scope="session")
def wheel() -> Path:
    found = sorted((ROOT / "dist").glob("forebay-*.whl"))
    if not found and not os.environ.get("CI"):
        pytest.skip("there is no wheel in dist: run `make wheel`")
    (only,) = found
    return only


@pytest.fixture(scope="session")
def own_numpy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip finds the only package that Forebay needs: that of this environment, as a wheel."""
    import numpy

    place = tmp_path_factory.mktemp("index")
    run(
        sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", place, f"numpy=={numpy.__version__}"
    )
    return place


@pytest.fixture(scope="session")
def environment(wheel: Path, own_numpy: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment that has nothing but the wheel and what it needs, as its `activate` makes it: no compiler is used."""
    place = tmp_path_factory.mktemp("environment") / "v"
    run(sys.executable, "-m", "venv", place)
    pip = [place / "bin" / "python", "-m", "pip", "install", "-q", "--no-index", "--find-links", own_numpy]
    run(*pip, "--find-links", wheel.parent, wheel, env={"PATH": "/nowhere", "HOME": str(place)})
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FOREBAY", "VIRTUAL_ENV", "PYTHON"))
    }
    path = kept["PATH"].replace(f"{Path(sys.prefix, 'bin')}:", "")
    return {**kept, "VIRTUAL_ENV": str(place), "PATH": f"{place / 'bin'}:{path}"}


@pytest.fixture
def group(environment: dict[str, str], own_place: Path) -> Iterator[dict[str, str]]:
    """A group that the installed command has started: the environment, which names it."""
    named = {**environment, "FOREBAY_GROUP": str(own_place / "group.json")}
    run("forebay", "up", "-n", "2", env=named)
    yield named
    run("forebay", "down", env=named)


def check_pair(producer: list[object], reader: list[object], environment: dict[str, str]) -> None:
    """A tutorial's pair: the reader prints what every reader does."""
    with subprocess.Popen(
        [str(part) for part in producer], env=environment, stdout=subprocess.PIPE
    ) as producing:
        told = run(*reader, env=environment)
        producing.communicate(timeout=60)
    assert told == f"waiting for steps\n{expected()}"
    assert producing.returncode == 0


# ---- the wheel ----------------------------------------------------------------------------------


def test_the_wheel_is_whole_small_and_for_old_machines(wheel: Path) -> None:
    """Its files, its size, and which glibc its programs ask for."""
    assert wheel.name.endswith(f"-cp311-abi3-manylinux_2_28_{os.uname().machine}.whl")
    assert "MiB" in run(
        sys.executable,
        ROOT / "packaging" / "check_wheel.py",
        wheel,
        env={**os.environ, "PATH": f"{Path(sys.prefix, 'bin')}:{os.environ['PATH']}"},
    )
    with zipfile.ZipFile(wheel) as archive:
        metadata = next(name for name in archive.namelist() if name.endswith("dist-info/METADATA"))
        text = archive.read(metadata).decode()
    assert f"Version: {forebay.__version__}\n" in text
    assert re.findall(r"^Requires-Dist: ([^;]*)$", text, re.MULTILINE) == ["numpy>=1.26"]


def test_an_empty_environment(environment: dict[str, str], own_place: Path) -> None:
    """The command, the package and the library are of one version, and a group runs."""
    told = run("forebay", "doctor", env=environment)
    assert f"forebay {forebay.__version__}" in told
    config = json.loads(run("forebay", "config", "--json", env=environment))
    assert config["version"] == forebay.__version__
    assert config["prefix"] == environment["VIRTUAL_ENV"]
    code = """
import ctypes, forebay
with forebay.local() as group, forebay.Space(group=group.path) as space:
    space.put("n", 3, step=0)
    assert space.get("n", step=0) == 3
library = ctypes.CDLL(forebay.get_library())
library.fb_version.restype = ctypes.c_char_p
print(library.fb_version().decode(), forebay.__version__)
for place in (forebay.get_include(), forebay.get_cmake_dir(), forebay.get_pkgconfig_dir()):
    print(place)
"""
    lines = run("python", "-W", "error", "-c", code, env=environment, cwd=own_place).splitlines()
    assert lines[0] == f"{forebay.__version__} {forebay.__version__}"
    assert lines[1:] == [config["includedir"], config["cmakedir"], config["pkgconfigdir"]]


@pytest.mark.parametrize("how", ["--user", "--target"])
def test_the_command_is_found_wherever_pip_puts_it(
    wheel: Path, own_numpy: Path, own_place: Path, how: str
) -> None:
    """Into the user's own directory, whose `bin` is not on the PATH; and into any directory."""
    place = own_place / "place"
    base = shutil.which("python3", path="/usr/bin") if how == "--user" else sys.executable
    if base is None:
        pytest.skip("there is no Python in /usr/bin")
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONUSERBASE": str(place),
        "HOME": str(own_place),
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
    }
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        base,
        "install",
        "-q",
        "--no-index",
        "--find-links",
        own_numpy,
    ]
    if how == "--user":
        run(*pip, "--user", "--break-system-packages", wheel, env=environment)
    else:
        run(*pip, "--target", place, wheel, env=environment)
        environment["PYTHONPATH"] = str(place)
        # Not the one that is beside this Python.
        base = own_place / "python"
        base.symlink_to("/usr/bin/python3")
    code = "import forebay\nwith forebay.local() as group: print(forebay.__file__)"
    told = run(base, "-c", code, env=environment, cwd=own_place)
    assert told.startswith(str(place))


def test_the_library_says_what_it_is_and_exports(environment: dict[str, str]) -> None:
    """Its SONAME; and no symbol but those that are written down, which only become more."""
    library = Path(environment["VIRTUAL_ENV"], "lib", "libforebay.so.0")
    assert "SONAME" in run("readelf", "-d", library)
    assert re.search(r"\(SONAME\).*\[libforebay\.so\.0\]", run("readelf", "-d", library))
    defined = run("nm", "-D", "--defined-only", library).splitlines()
    symbols = sorted(line.split()[-1] for line in defined)
    assert symbols == (ROOT / "include" / "forebay.symbols").read_text().split()


def test_python_and_a_program_are_ranks_of_one_stream(group: dict[str, str], own_place: Path) -> None:
    """In one process, rank 0 by the package, rank 1 by the library and rank 2 by a copy of it: the step is whole.

    So it is where a plug-in has brought a library of its own.

    The structs have the sizes that they had first, as a program of the first release passes them.
    """
    code = """
import ctypes, shutil, struct
import numpy as np
import forebay

shutil.copy(forebay.get_library(), "another.so")
libraries = [ctypes.CDLL(forebay.get_library()), ctypes.CDLL("./another.so")]
assert libraries[0]._handle != libraries[1]._handle
kept = []

def at(array):
    kept.append(array)
    return ctypes.addressof(array)

def text(value):
    return at(ctypes.create_string_buffer(value))

def numbers(*values):
    return at((ctypes.c_uint64 * len(values))(*values))

def call(library, function, *arguments):
    library.fb_error.restype = ctypes.c_char_p
    assert getattr(library, function)(*arguments) == 0, library.fb_error()

name, u, shape = text(b"s"), text(b"U"), numbers(6)
field = struct.pack("=QQiIQiIQQQQii", 80, u, 13, 1, shape, 0, 1, 0, 0, 0, 0, 0, 0)
with forebay.Consumer("s", timeout=20) as reader, forebay.Producer("s", rank=0, size=3, timeout=20) as first:
    others = []
    for rank, library in enumerate(libraries, start=1):
        other = ctypes.c_void_p()
        options = struct.pack(
            "=QQQIIiIdQiiQQQQQIi", 112, 0, name, rank, 3, 0, 0, 20.0, 0, 0, 0, 0, 0, 0, 0, 1 << 30, 1, 0
        )
        call(library, "fb_producer_open", options, ctypes.byref(other))
        others.append(other)
    first.array("U", dtype="f8", shape=(6,))
    for library, other in zip(libraries, others):
        call(library, "fb_array", other, field)
        call(library, "fb_producer_begin", other, ctypes.c_uint64(0), ctypes.c_double(0.5))
    with first.step(0, time=0.5) as step:
        step.put("U", [0.0, 1.0], offset=(0,))
    for rank, (library, other) in enumerate(zip(libraries, others), start=1):
        values = (ctypes.c_double * 2)(2 * rank, 2 * rank + 1)
        place = numbers(2 * rank)
        block = struct.pack("=QQQQiiIIQQQQQQ", 96, u, 0, at(values), 0, 13, 1, 0, place, numbers(2), 0, 0, 0, 0)
        call(library, "fb_put", other, block)
        call(library, "fb_producer_end", other)
    found = reader.next()
    print(found["U"][...].tolist(), found.torn)
    for library, other in zip(libraries, others):
        call(library, "fb_producer_close", other)
"""
    assert (
        run("python", "-W", "error", "-c", code, env=group, cwd=own_place)
        == "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0] False\n"
    )


OLD_PROGRAM = r"""
#include <stdio.h>
#include "forebay.h"
int main(void) {
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_consumer_options reading = FB_CONSUMER_OPTIONS_INIT;
    fb_field field = FB_FIELD_INIT;
    fb_block block = FB_BLOCK_INIT;
    fb_selection selection = FB_SELECTION_INIT;
    fb_producer *producer;
    fb_consumer *consumer;
    fb_step *step;
    const uint64_t zero[1] = {0}, shape[1] = {3};
    double values[3] = {1, 2, 3}, out[3] = {0};
    options.stream = reading.stream = "old";
    if (fb_consumer_open(&reading, &consumer) != FB_OK || fb_producer_open(&options, &producer) != FB_OK) goto failed;
    field.name = block.field = selection.field = "U";
    field.dtype = block.dtype = selection.dtype = FB_F64;
    field.ndim = block.ndim = selection.ndim = 1;
    field.shape = block.shape = selection.shape = shape;
    block.offset = selection.offset = zero;
    block.data = values;
    selection.data = out;
    if (fb_array(producer, &field) != FB_OK || fb_producer_begin(producer, 0, 0) != FB_OK) goto failed;
    if (fb_put(producer, &block) != FB_OK || fb_producer_end(producer) != FB_OK) goto failed;
    if (fb_consumer_next(consumer, -1, &step) != FB_OK || fb_get(step, &selection) != FB_OK) goto failed;
    printf("%g %g %g\n", out[0], out[1], out[2]);
    return 0;
failed:
    fprintf(stderr, "%s\n", fb_error());
    return 1;
}
"""


def test_a_program_of_an_earlier_header_runs(group: dict[str, str], own_place: Path) -> None:
    """Built against the header of before structs grew, it runs with this library."""
    (own_place / "old.c").write_text(OLD_PROGRAM)
    earlier = ROOT / "crates" / "capi" / "tests" / "earlier"
    libs = run("forebay", "config", "--libs", env=group).split()
    run("cc", "-I", earlier, own_place / "old.c", *libs, "-o", own_place / "old", env=group)
    assert run(own_place / "old", env=group) == "1 2 3\n"


# ---- compilers and build systems ----------------------------------------------------------------

COMMANDS = {
    "c": "cc {source} $(forebay config --cflags --libs) -o {program}",
    "c, pkg-config": "cc {source} $(pkg-config --cflags --libs forebay) -o {program}",
    "cpp": "c++ -std=c++17 {source} $(forebay config --cflags --libs) -o {program}",
    "fortran": "gfortran $(forebay config --fortran) {source} $(forebay config --libs) -o {program}",
}
SUFFIXES = {"c": "c", "cpp": "cpp", "fortran": "f90"}


@pytest.mark.parametrize("how", COMMANDS)
def test_programs_are_compiled_as_the_command_says(group: dict[str, str], own_place: Path, how: str) -> None:
    """The tutorial's pair in each language prints what it prints everywhere."""
    place = own_place / "programs"
    place.mkdir()
    named = {**group, "PKG_CONFIG_PATH": run("forebay", "config", "--pkgconfigdir", env=group).strip()}
    language = how.partition(",")[0]
    pair: list[list[object]] = []
    for part in ("01_producer", "02_reader"):
        source = TUTORIAL / language / f"{part}.{SUFFIXES[language]}"
        command = COMMANDS[how].format(source=source, program=place / part)
        run("bash", "-c", command, env=named, cwd=place)
        pair.append([place / part])
    check_pair(pair[0], pair[1], named)


def test_the_python_tutorial(group: dict[str, str]) -> None:
    pair = (
        ["python", "-W", "error", TUTORIAL / "python" / f"{part}.py"] for part in ("01_producer", "02_reader")
    )
    check_pair(*pair, group)


def test_cmake_finds_all_of_it(environment: dict[str, str], own_place: Path) -> None:
    """Without a variable that says where: C, C++, Fortran and MPI are built, and run as ctest says."""
    mpicc = Path(sys.prefix, "bin", "mpicc")
    built = own_place / "build"
    named = {**environment, "TMPDIR": str(own_place)}
    run("cmake", "-S", ROOT / "examples" / "cmake", "-B", built, f"-DMPI_C_COMPILER={mpicc}", env=named)
    run("cmake", "--build", built, "-j", "2", env=named)
    assert "100% tests passed" in run("ctest", "--test-dir", built, env=named)
    assert environment["VIRTUAL_ENV"] in run("ldd", built / "c_01_producer")


@pytest.mark.parametrize(
    "asked, told",
    [
        ("9.9", "9.9"),
        ("0.1 COMPONENTS Rust", "no component Rust"),
        ("0.1 COMPONENTS Fortran", "enable the language"),
    ],
)
def test_cmake_is_told_what_there_is_not(
    environment: dict[str, str], own_place: Path, asked: str, told: str
) -> None:
    (own_place / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.18)\nproject(p C)\nfind_package(forebay {asked} REQUIRED)\n"
    )
    done = subprocess.run(
        ["cmake", "-S", str(own_place), "-B", str(own_place / "b")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert told in " ".join(done.stderr.split())


def test_what_is_installed_can_be_moved(wheel: Path, environment: dict[str, str], own_place: Path) -> None:
    """`make install`, and another place afterwards: CMake, pkg-config and the command find what is there."""
    staged = own_place / "staged"
    make = [
        "make",
        "-C",
        ROOT,
        "install",
        f"DESTDIR={staged}",
        "PREFIX=/opt/f",
        f"INSTALL_FROM={BUILT}",
        f"PYTHON={sys.executable}",
    ]
    run(*make)
    prefix = own_place / "elsewhere"
    (staged / "opt" / "f").rename(prefix)
    named = {
        **environment,
        "PATH": f"{prefix / 'bin'}:/usr/bin:/bin",
        "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig"),
    }
    flags = run("pkg-config", "--cflags", "--libs", "forebay", env=named).split()
    where = {
        os.path.realpath(re.sub(r"^-(Wl,-rpath,|[IL])", "", flag)) for flag in flags if flag != "-lforebay"
    }
    assert where == {str(prefix / "include"), str(prefix / "lib")}
    assert run("forebay", "config", "--prefix", env=named).strip() == str(prefix)
    program = own_place / "producer"
    for library in ("-lforebay", f"{prefix / 'lib' / 'libforebay.a'} -lpthread -ldl -lm"):
        command = (
            f"cc {TUTORIAL / 'c' / '01_producer.c'} $(forebay config --cflags --libs) {library} -o {program}"
        )
        run("bash", "-c", command, env=named)
    (own_place / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(p C)\nfind_package(forebay REQUIRED)\n"
        f"add_executable(p {TUTORIAL / 'c' / '01_producer.c'})\ntarget_link_libraries(p forebay::forebay)\n"
    )
    run("cmake", "-S", own_place, "-B", own_place / "b", env=named)
    run("cmake", "--build", own_place / "b", env=named)
    assert str(prefix) in run("ldd", own_place / "b" / "p")
    assert "forebay" in (prefix / "share" / "man" / "man1" / "forebay.1").read_text()


def test_completion_knows_the_streams(group: dict[str, str]) -> None:
    """`forebay ls g<TAB>` in bash: the names of streams."""
    named = {**group, "TERM": "dumb"}
    with consumer(group["FOREBAY_GROUP"]):
        pass
    with forebay.Producer("grayscott", group=group["FOREBAY_GROUP"], timeout=20):
        script = """
eval "$(forebay completion bash)"
complete -p forebay >/dev/null
COMP_WORDS=(forebay ls g) COMP_CWORD=2 COMP_TYPE=9 COMP_LINE="forebay ls g" COMP_POINT=12
function=$(complete -p forebay | sed -n 's/.*-F \\([^ ]*\\).*/\\1/p')
$function forebay g ls
printf '%s\\n' "${COMPREPLY[@]}"
"""
        assert "grayscott" in run("bash", "-c", script, env=named).split()
