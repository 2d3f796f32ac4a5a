"""One declaration for all languages: what is committed is what scripts/generate_faces.py makes of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.native import ROOT

import forebay
from forebay import _forebay

# What the generator reads, and what it writes.
PARTS = (
    "interface",
    "include",
    "fortran",
    "python/forebay",
    "crates/core/src/error",
    "crates/client/src/declared",
    "crates/client/src/admin/status",
)
MORE = ("crates/capi/src", "crates/python/src", "docs", "rustfmt.toml", "pyproject.toml")


def generate(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "generate_faces.py"), "--root", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


@pytest.fixture
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the declaration and of all that is made of it."""
    if shutil.which("rustfmt") is None:
        pytest.skip("there is no rustfmt, which formats what is made")
    root = tmp_path_factory.mktemp("faces")
    for part in (*PARTS, *MORE):
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            shutil.copy(ROOT / part, root / part)
    return root


def changed(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_a_difference_is_noticed(copy: Path) -> None:
    done = generate(copy, "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    # By hand, in what is generated: it is not what the declaration says any more.
    changed(copy / "include" / "forebay.h", "FB_TIMEOUT = 3,", "FB_TIMEOUT = 4,")
    changed(copy / "python" / "forebay" / "_producer.py", "keep: int = 0,", "keep: int = 1,")
    done = generate(copy, "--check")
    assert done.returncode == 1
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "include/forebay.h",
        "python/forebay/_producer.py",
    ]
    assert generate(copy).returncode == 0
    assert generate(copy, "--check").returncode == 0


def add_option(root: Path, lines: str) -> None:
    """Adds an option `haste` to those of a producer."""
    table = f'[options.producer.members.haste]\n{lines}\ndoc = "How much haste there is."\n\n'
    before = "# A rank that drives a pipeline"
    changed(root / "interface" / "forebay.toml", before, table + before)
    done = generate(root)
    assert done.returncode == 0, done.stderr


def test_an_option_reaches_all_languages(copy: Path) -> None:
    """Adding one is a table of the declaration."""
    add_option(copy, 'type = "u32"\ndefault = 3')
    expected = {
        "include/forebay.h": "uint32_t haste;             /* how much haste there is (default 3) */",
        "include/forebay.hpp": "std::uint32_t haste = 3;",
        "fortran/forebay_open.inc": "integer, intent(in), optional :: haste",
        "fortran/forebay_c.inc": "integer(c_int32_t) :: haste = 3",
        "python/forebay/_producer.py": "haste: int = 3,",
        "python/forebay/_pipeline_handle.py": "haste=haste",
        "python/forebay/_options.py": '"haste": _arrays.integer(haste, "haste", bits=32)',
        "crates/client/src/declared/options.rs": "pub haste: u32,",
        "crates/capi/src/abi/declared.rs": "haste: u32 = 3,",
        "crates/capi/src/options.rs": "haste: given.haste,",
        "crates/python/src/options.rs": "haste: self.haste,",
    }
    for where, line in expected.items():
        assert line in (copy / where).read_text(encoding="utf-8"), where
    # The struct is whole again: a member to come takes the place of what fills it up.
    assert "int32_t reserved;" in (copy / "include" / "forebay.h").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "lines, keyword, client",
    [
        ('type = "text"', "haste: str | None = None,", "pub haste: Option<String>,"),
        ('type = "bool"\ndefault = true', "haste: bool = True,", "pub haste: bool,"),
        ('type = "bytes"\ndefault = 4096', "haste: int = 1 << 12,", "pub haste: u64,"),
        (
            'type = "on_loss"\ndefault = "fail"',
            'haste: _choices.OnLoss = "fail",',
            "pub haste: OnLoss,",
        ),
    ],
)
def test_an_option_of_any_type(copy: Path, lines: str, keyword: str, client: str) -> None:
    add_option(copy, lines)
    assert keyword in (copy / "python" / "forebay" / "_producer.py").read_text(encoding="utf-8")
    assert client in (copy / "crates" / "client" / "src" / "declared" / "options.rs").read_text(
        encoding="utf-8"
    )
    if shutil.which("cc"):
        header = copy / "include" / "forebay.h"
        subprocess.run(["cc", "-std=c99", "-Wall", "-Werror", "-fsyntax-only", str(header)], check=True)


def test_an_option_of_a_field_reaches_all_languages(copy: Path) -> None:
    changed(
        copy / "interface" / "forebay.toml",
        "[structs.attribute]",
        '[structs.field.members.mood]\noption = true\ntype = "text"\ndoc = "How it feels."\n\n[structs.attribute]',
    )
    done = generate(copy)
    assert done.returncode == 0, done.stderr
    expected = {
        "include/forebay.h": "const char *mood;",
        "include/forebay.hpp": "std::string mood = {};",
        "fortran/forebay_open.inc": "character(*), intent(in), optional :: mood",
        "python/forebay/_producer.py": 'mood: str = "",',
        "crates/capi/src/options.rs": "field.mood =",
        "crates/python/src/options.rs": "field.mood = self.mood;",
    }
    for where, line in expected.items():
        assert line in (copy / where).read_text(encoding="utf-8"), where


@pytest.mark.parametrize(
    "old, new, told",
    [
        ("number = 3\n", "number = 30\n", "numbered from 1"),
        ("{policy.block} (puts", "{policy.sometimes} (puts", "no value 'sometimes'"),
        ('type = "seconds"', 'type = "minutes"', "no type 'minutes'"),
        ("first = 112", "first = 4000", "first is 4000"),
    ],
)
def test_a_declaration_that_cannot_be(copy: Path, old: str, new: str, told: str) -> None:
    changed(copy / "interface" / "forebay.toml", old, new)
    done = generate(copy)
    assert done.returncode == 1
    assert told in done.stderr


def test_error_kinds_are_the_same_in_rust_and_python() -> None:
    assert [
        (kind.__name__, kind.code, kind.retryable) for kind in forebay.Error.__subclasses__()
    ] == _forebay.error_kinds()
