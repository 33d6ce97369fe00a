#!/bin/bash
# Apache Kafka's console and admin tools as a client of the matrix: round trips of the java-tools
# suite under the names of the matrix. Usage: kafka-tools.sh BROKER
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
kafka_libs
echo "# kafka-tools $(basename "$JARS"/kafka-tools-[0-9]*.jar .jar | sed 's/kafka-tools-//')"
# suite's check -> check of the matrix; those without a name must pass too. The verifiable producer
# is idempotent by default; group_classic reads in a group, finds its lag 0, moves it back, reads
# again and deletes it.
declare -A NAMES=([topic_create]=create [verifiable_producer]="produce idempotent" [verifiable_classic]=consume
  [keys_headers]= [auto_create]=auto [codec_gzip]=gzip [codec_snappy]=snappy [codec_lz4]=lz4
  [codec_zstd]=zstd [verifiable_two_members]=group [group_classic]=commit)
OUT=$(mktemp -d)/kafka-tools.txt failed=0
trap 'rm -rf "$(dirname "$OUT")"' EXIT
only=$(IFS='|'; echo "${!NAMES[*]}")
while read -r check result seconds; do
  name=${NAMES[$check]-}
  [ "$result" = PASS ] || {
    failed=1; tail -n 20 "$SCRATCH/suites/logs/java-tools-kafka-tools/$check.log" >&2; }
  for one in $name; do echo "kafka-tools $one $result $seconds"; done
done < <(N=2000 bash "$ECO/suites/java-tools.sh" "$1" "$OUT" "^($only)\$" | grep -v '^#')
exit $failed
