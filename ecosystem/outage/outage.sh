#!/bin/bash
# Clients through two minutes of 503 from the bucket; `ecosystem/run outage` calls it.
# Usage: outage.sh BROKER BUCKET [CLIENT...]    BUCKET: host:port of bucket.py, the broker's store
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
HERE=$ECO/outage LOGS=$SCRATCH/outage
[ $# -ge 2 ] || die "usage: run outage BROKER BUCKET [CLIENT...]"
BROKER=$1 BUCKET=$2; shift 2
[ $# -gt 0 ] || set -- confluent-kafka kafka-python java
python_venv
mkdir -p "$LOGS"
COMMANDS=()
for c in "$@"; do
  case $c in
    java) java_program outage/Outage.java
      COMMANDS+=("java=java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        -cp '$SCRATCH/java:$JARS/*' Outage") ;;
    confluent-kafka | kafka-python)
      COMMANDS+=("$c=$SCRATCH/venv/bin/python $HERE/${c//-/_}_client.py") ;;
    *) die "no client \`$c\`: there are confluent-kafka, kafka-python, java" ;;
  esac
done
exec "$SCRATCH/venv/bin/python" "$HERE/outage.py" "$BROKER" "$BUCKET" "$LOGS" "${COMMANDS[@]}"
