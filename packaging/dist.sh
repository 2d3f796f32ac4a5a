#!/usr/bin/env bash
# Makes dist/: the source archive, and from that a wheel that runs from glibc 2.28 on; then looks into the wheel.
set -eu
cd "$(dirname "$0")/.."

rm -rf dist
export FOREBAY_WHEEL_GLIBC="${FOREBAY_WHEEL_GLIBC:-2.28}"
# The archive is unpacked elsewhere; what was compiled before is used all the same.
export CARGO_TARGET_DIR="$PWD/target"
# Without isolation: the tools are those of this environment.
python -m build --no-isolation --outdir dist .
packaging/check_wheel.py dist/*.whl
