#!/bin/bash
# Installs and builds everything that the matrix, the suites, the outage and the kill cycles need,
# and says how long each took; `ecosystem/run prepare` calls it. What is there already is left alone.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# A test's name that is in no suite: the suite builds, and runs nothing.
NOTHING='^none$' NOWHERE=127.0.0.1:1
step() { local start; start=$(now); "${@:2}" || die "cannot prepare $1"
  echo "# prepared $1: $(since "$start") s"; }
nothing() { bash "$ECO/suites/$1.sh" $NOWHERE "$SCRATCH/outcome/none.txt" "$NOTHING" >/dev/null; }

mkdir -p "$SCRATCH/outcome"
step debian debian kcat gcc g++ make libssl-dev zlib1g-dev libzstd-dev rapidjson-dev
step kafka kafka_libs
step python python_venv
step node node_modules matrix-node "$ECO/matrix/node"
step go go_programs "$ECO/matrix/go"
step java java_program matrix/java/Flow.java outage/Outage.java
step kill go_programs "$ECO/kill"
step franz-go nothing franz-go
step librdkafka nothing librdkafka
