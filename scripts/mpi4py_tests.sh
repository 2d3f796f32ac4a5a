#!/usr/bin/env bash
# mpi4py's own tests, from its source archive, into a directory: mpi4py_tests.sh PYTHON DIRECTORY
set -eu
python=$1 directory=$2
rm -rf "$directory"
mkdir -p "$directory"
"$python" -m pip download --disable-pip-version-check --no-input --quiet --no-deps --no-binary mpi4py \
    --require-hashes --requirement scripts/requirements-mpi4py.txt --dest "$directory"
tar --extract --gzip --file "$directory"/mpi4py-*.tar.gz --directory "$directory" --strip-components 1 --wildcards '*/test/*'
