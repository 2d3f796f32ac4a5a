#!/usr/bin/env bash
# Installs those of the named Debian packages that are missing:  scripts/apt.sh package ...
#
# Needs root. Without it, or without apt, it says what to install and fails.
set -eu

missing=()
for package in "$@"; do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "==> missing; please install: ${missing[*]}" >&2
    exit 1
fi

export DEBIAN_FRONTEND=noninteractive
options=(-y -q --no-install-recommends -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
# An index that cannot be renewed may still do.
apt-get update -q || true
apt-get install "${options[@]}" "${missing[@]}"
echo "==> installed Debian packages: ${missing[*]}"
