#!/usr/bin/env bash
# Makes .venv with the Python packages of scripts/requirements.txt; `make` runs it when that file changes.
#
# What it needs from the machine is looked for first. Where something is missing and we are root on a
# Debian or Ubuntu, apt fills the gap; else the message says what to install. PYTHON=... chooses another
# interpreter than the first that is new enough.
set -eu
cd "$(dirname "$0")/.."

fail() {
    printf '\nforebay: %s\n' "$@" >&2
    exit 1
}

# A package manager is asked only for what is missing, and only if it may help.
apt_fill() {
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null || return 1
    scripts/step.sh "Debian packages: $*" scripts/apt.sh "$@"
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
makes_venvs() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

find_python() {
    for python in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if is_new_enough "$python"; then
            echo "$python"
            return
        fi
    done
    return 1
}

# ---- the machine

command -v cc >/dev/null || apt_fill gcc libc6-dev ||
    fail "there is no C compiler (cc). Remedy: apt-get install gcc libc6-dev"

command -v cargo >/dev/null ||
    fail "there is no Rust (cargo). Remedy: install the stable toolchain as rust-lang.org/tools/install says"

python=$(find_python) || { apt_fill python3 python3-venv && python=$(find_python); } ||
    fail "there is no Python 3.11 or newer. Remedy: install one, or name it: make build PYTHON=python3.12"

if ! makes_venvs "$python"; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    apt_fill "python$version-venv" && makes_venvs "$python" ||
        fail "$python cannot make virtual environments. Remedy: apt-get install python$version-venv"
fi

# ---- the environment

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    scripts/step.sh "virtual environment .venv" "$python" -m venv --clear .venv
fi
# Wheels only: a package that had to be compiled would need more of the machine than is promised.
scripts/step.sh "Python packages" .venv/bin/python -m pip install --disable-pip-version-check --no-input \
    --only-binary :all: --requirement scripts/requirements.txt

# ---- drawing

# Pictures need an OpenGL that draws without a screen. Only trying tells: without one VTK crashes. (The
# braces keep the shell from reporting that.)
can_draw() { { .venv/bin/python scripts/check_render.py; } >/dev/null 2>&1; }

if ! can_draw && ! { apt_fill libegl1 libgl1-mesa-dri && can_draw; }; then
    echo "  Note: VTK cannot draw here, so pipelines that render will fail."
    echo "        Remedy: apt-get install libegl1 libgl1-mesa-dri"
fi
