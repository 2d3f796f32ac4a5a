#!/usr/bin/env bash
# Makes dist/: a wheel that runs from glibc 2.28 on, and the source archive; then looks into the wheel.
set -eu
cd "$(dirname "$0")/.."

rm -rf dist
export FOREBAY_WHEEL_GLIBC="${FOREBAY_WHEEL_GLIBC:-2.28}"
# Without isolation: the tools are those of this environment.
python -m build --no-isolation --wheel --outdir dist .
python -m build --no-isolation --sdist --outdir dist .
packaging/check_wheel.py dist/*.whl
