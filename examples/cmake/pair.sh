#!/bin/sh
# Runs a producer and a reader on a group that it starts and ends:  sh pair.sh GROUP_FILE PRODUCER READER
set -eu
export FOREBAY_GROUP="$1"
forebay up -n 1
trap 'forebay down' EXIT
"$2" &
"$3"
wait $!
