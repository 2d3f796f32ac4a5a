#!/usr/bin/env bash
# Runs tests under tools that watch every access to memory: what `make sanitize` does.
#
#   scripts/sanitize.sh c           C, C++ and Fortran programs, compiled with AddressSanitizer and UBSan
#   scripts/sanitize.sh valgrind    the same programs, unchanged, under valgrind: watches the Rust library too
#   scripts/sanitize.sh address     the Rust tests with AddressSanitizer
#   scripts/sanitize.sh miri        the copies and the arithmetic of the store, interpreted by Miri
#
# The last two need a nightly Rust, for Miri with its component `miri`; TOOLCHAIN names it.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON="${PYTHON:-.venv/bin/python}"
TOOLCHAIN="${TOOLCHAIN:-nightly}"
TRIPLE="$(rustc -vV | sed -n 's/^host: //p')"
TARGET="${CARGO_TARGET_DIR:-target}"

# Crates whose tests run without Python. The bindings are exercised by the programs above.
CRATES=(-p forebay-core -p forebay-query -p forebay-wire -p forebay-store -p forebay-transport -p forebay-comm -p forebay-client
    -p forebay-cluster -p forebay-server)

needs_nightly() {
    cargo "+$TOOLCHAIN" "$@" --version >/dev/null 2>&1 || {
        echo "sanitize: there is no 'cargo +$TOOLCHAIN $*': skipped" >&2
        exit 0
    }
}

case "${1:-}" in
c)
    echo 'int main(void) { return 0; }' | cc -fsanitize=address,undefined -x c - -o /dev/null 2>/dev/null || {
        echo "sanitize: cc has no -fsanitize=address,undefined: skipped" >&2
        exit 0
    }
    FOREBAY_SANITIZE=address,undefined "$PYTHON" -m pytest -q tests/test_c_api.py tests/test_administration.py \
        tests/test_driving.py tests/test_comm.py -k "(not test_driving or test_from) and (not test_comm or same_in_c)" "${@:2}"
    ;;
valgrind)
    command -v valgrind >/dev/null || {
        echo "sanitize: there is no valgrind: skipped" >&2
        exit 0
    }
    # A child that is forked amid calls of other threads, or leaves by _exit, loses what they had allocated.
    FOREBAY_VALGRIND=1 "$PYTHON" -m pytest -q --timeout 600 tests/test_c_api.py \
        -k "not fork and not a_parent_that_dies" "${@:2}"
    ;;
address)
    needs_nightly
    RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR="$TARGET/sanitize" \
        cargo "+$TOOLCHAIN" test --target "$TRIPLE" "${CRATES[@]}" "${@:2}"
    ;;
miri)
    needs_nightly miri
    # What maps memory files is beyond it. Takes two minutes.
    CARGO_TARGET_DIR="$TARGET/miri" MIRIFLAGS="-Zmiri-disable-isolation" PROPTEST_CASES="${PROPTEST_CASES:-16}" \
        cargo "+$TOOLCHAIN" miri test -p forebay-store --lib "${@:2}" -- strided::tests allocator::tests ranges::tests stats::tests
    ;;
*)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
