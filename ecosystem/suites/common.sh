# Shared by the suites: scratch folder, Kafka's jars, one outcome line per test ("name PASS|FAIL|SKIP seconds").
set -u
SUITES=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
SCR=${ECOSYSTEM_SCRATCH:-${TMPDIR:-/tmp}/tidemill-suites}; W=$SCR/suites; mkdir -p "$W"
JARS=$SCR/kafka/libs
die() { echo "$*" >&2; exit 1; }
args() { [ $# -ge 2 ] || die "usage: $(basename "$0") BROKER OUT"; BROKER=$1 OUT=$(realpath -m "$2"); LOGS=$W/logs/$(basename "$0" .sh)-$(basename "$OUT" .txt); mkdir -p "$(dirname "$OUT")" "$LOGS"; : >"$OUT"; }
kafka_jars() { # Apache Kafka 4.4.0 and its tools from the Maven registry
  [ -d "$JARS" ] && return; mkdir -p "$SCR/kafka"
  { echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging><dependencies>'
    for d in org.apache.kafka:kafka_2.13:4.4.0 org.apache.kafka:kafka-tools:4.4.0 org.apache.logging.log4j:log4j-core:2.25.4 org.apache.logging.log4j:log4j-slf4j-impl:2.25.4; do
      IFS=: read -r g a v <<<"$d"; echo "<dependency><groupId>$g</groupId><artifactId>$a</artifactId><version>$v</version></dependency>"; done
    echo '</dependencies></project>'; } >"$SCR/kafka/pom.xml"
  (cd "$SCR/kafka" && mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=libs >mvn.log 2>&1) || { rm -rf "$JARS"; die "no Kafka jars"; }; }
outcome() { printf '%s %s %s\n' "$1" "$2" "$3" | tee -a "$OUT"; }            # NAME PASS|FAIL|SKIP SECONDS
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN{printf "%.1f", b-a}'; }
totals() { awk -v w="$SECONDS" '{n[$2]++} END{printf "# %d tests: %d pass, %d fail, %d skip, %d s\n", NR, n["PASS"], n["FAIL"], n["SKIP"], w}' "$OUT"; }
