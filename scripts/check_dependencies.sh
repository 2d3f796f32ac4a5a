#!/usr/bin/env bash
# Checks the crates we depend on against deny.toml:  scripts/check_dependencies.sh path/to/cargo-deny
#
# Licences, bans and sources are checked always; they need no network beyond the crates themselves.
# Security advisories come from the RustSec database, a git repository of its own. Where that cannot be
# fetched, a copy fetched earlier serves; without one that check is left out, and the last line says so.
# FOREBAY_REQUIRE_ADVISORIES=1 makes that a failure.
set -eu
cd "$(dirname "$0")/.."
deny=$1

"$deny" check --hide-inclusion-graph bans licenses sources
echo "==> licences, bans, sources: checked"

if timeout 60 "$deny" fetch db; then
    "$deny" check --hide-inclusion-graph --disable-fetch advisories
    echo "==> advisories: checked against today's database"
elif compgen -G "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs/*/.git" >/dev/null; then
    "$deny" check --hide-inclusion-graph --disable-fetch advisories
    echo "==> advisories: checked against a database fetched earlier; today's could not be reached"
else
    echo "==> advisories: NOT checked, the database could not be reached"
    [ "${FOREBAY_REQUIRE_ADVISORIES:-0}" != 1 ]
fi
