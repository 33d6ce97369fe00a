#!/bin/bash
# Builds the kill cycles once and runs them; `ecosystem/run kill` calls it.
# Usage: kill.sh [OPTIONS] -- COMMAND...     `kill.sh -h` lists the options
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
go_programs "$ECO/kill"
exec "$SCRATCH/go-bin/kill" -log "$SCRATCH/log/kill-broker.log" "$@"
