#!/usr/bin/env bash
# Runs one step of the build quietly:  scripts/step.sh "title" command [argument ...]
#
# Prints one line with the title and how long it took. The full output goes to target/log; its end is
# shown if the step fails. Lines of the output that begin with "==> " are shown also when it succeeds.
set -u

title=$1
shift
name=$(printf '%s' "$title" | tr -c 'a-zA-Z0-9' '-')
log=${CARGO_TARGET_DIR:-target}/log/$name.log
mkdir -p "$(dirname "$log")"

# On a terminal the title stands there while the step runs; in a log file a line is written whole.
[ -t 1 ] && printf '  %-48s' "$title"
start=$EPOCHREALTIME
"$@" >"$log" 2>&1 </dev/null
status=$?
# Some locales write the decimal point as a comma.
seconds=$(awk -v a="${start/,/.}" -v b="${EPOCHREALTIME/,/.}" 'BEGIN { printf "%.1f s", b - a }')
[ -t 1 ] || printf '  %-48s' "$title"

if [ $status -ne 0 ]; then
    printf '%10s  FAILED\n' "$seconds"
    {
        printf '\n%s: exit status %d. The last lines of %s:\n\n' "$title" "$status" "$log"
        tail -n 80 "$log"
    } >&2
    exit "$status"
fi

# What `cargo test` says of each of its binaries, as one sum.
tests=$(awk '/^test result:/ { passed += $4; failed += $6; ignored += $8; some = 1 }
    END { if (some) printf "  %d passed, %d failed, %d ignored", passed, failed, ignored }' "$log")
printf '%10s%s\n' "$seconds" "$tests"
sed -n 's/^==> /      /p' "$log"
