"""Compiling and running programs in C, C++ and Fortran against Forebay as it is installed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ROOT / "crates" / "capi" / "tests"
"""Programs that hold their own checks."""

CASE_NAMES = {
    "c": r"^CASE\((\w+)\)",
    "cpp": r"^static void (\w+)\(const std::string &stream\)",
    "fortran": r"^ *case \('(\w+)'\)",
}
"""How the cases of a program are found in its source."""

LIBRARIES = Path(os.environ.get("FOREBAY_LIBRARIES", Path(sys.prefix, "lib")))
"""Where libforebay.so is: by default where `make build` puts it."""

COMPILERS = {"c": ("cc", "gcc", "clang"), "cpp": ("c++", "g++", "clang++"), "fortran": ("gfortran",)}
FLAGS = {
    "c": ["-std=c99", "-D_XOPEN_SOURCE=700", "-Wpedantic"],
    "cpp": ["-std=c++17", "-Wpedantic"],
    # Numbers are compared that were only copied, and guarded by a condition that -Wdo-subscript overlooks.
    "fortran": ["-std=f2018", "-Wno-compare-reals", "-Wno-do-subscript"],
}


SANITIZE = os.environ.get("FOREBAY_SANITIZE", "")
"""Sanitizers that programs are compiled with, as for `-fsanitize=`."""

VALGRIND = [
    "valgrind",
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
]
"""What programs are run under if `FOREBAY_VALGRIND` is set."""


def compiler(language: str) -> str:
    """The compiler for a language; without one the test is skipped."""
    found = next((path for name in COMPILERS[language] if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no compiler for {language}: none of {', '.join(COMPILERS[language])} is installed")
    return found


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled programs are kept for the session: of all processes that run its tests, if there are several."""
    base = tmp_path_factory.getbasetemp()
    programs = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "programs"
    programs.mkdir(exist_ok=True)
    return programs


def build(language: str, source: Path, directory: Path, library: str = "-lforebay") -> Path:
    """Compiles a program; a warning is an error. What is built once is used again, by all processes that run tests."""
    linked = "" if library == "-lforebay" else "_static"
    program = directory / f"{source.stem}_{language}{linked}"
    with open(directory / f"{program.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            compile_into(program, language, source, library)
    return program


def compile_into(program: Path, language: str, source: Path, library: str) -> None:
    """Compiles a program."""
    if not (LIBRARIES / "libforebay.so").exists():
        pytest.skip(f"there is no libforebay.so in {LIBRARIES}: run `make build`")
    place = program.with_name(f"{program.name}.build")
    place.mkdir(exist_ok=True)
    sources = [str(source)]
    if language == "fortran":
        sources = [str(ROOT / "fortran" / "forebay.f90"), str(source), "-J", str(place)]
    command = [compiler(language), *FLAGS[language], "-Wall", "-Wextra", "-Werror", "-g", "-pthread"]
    command += ["-O0" if SANITIZE and language == "cpp" else "-O1"]
    if SANITIZE:
        # Its checks lead GCC to think that an empty std::optional is read. What gfortran itself makes of
        # optional arrays that are absent is undefined by the letter of C.
        command += [f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=all", "-Wno-maybe-uninitialized"]
        command += ["-fno-sanitize=undefined"] if language == "fortran" else []
    command += [f"-I{ROOT / 'include'}", *sources, f"-L{LIBRARIES}", library, f"-Wl,-rpath,{LIBRARIES}"]
    unfinished = place / program.name
    command += ["-ldl", "-lm", "-o", str(unfinished)]
    # Compilers want the directory that the test must leave empty.
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(place)})
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    unfinished.rename(program)


class Program:
    """A running program that talks by lines."""

    def __init__(self, command: list[str], group: str) -> None:
        environment = {**os.environ, "FOREBAY_GROUP": group, "PYTHONUNBUFFERED": "1"}
        if os.environ.get("FOREBAY_VALGRIND"):
            command = [*VALGRIND, *command]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self._name = " ".join(command)

    def line(self) -> str:
        """Its next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"{self._name} ended: {self._process.communicate(timeout=30)[1]}"
        return line.rstrip("\n")

    def rest(self, timeout: float = 60) -> str:
        """Waits for its good end; what it printed since."""
        try:
            output, errors = self._process.communicate(timeout=timeout)
        finally:
            self.close()
        assert self._process.returncode == 0, f"{self._name} ended with {self._process.returncode}: {errors}"
        assert errors == "", f"{self._name}: {errors}"
        return output

    def close(self) -> None:
        """Ends it, if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
