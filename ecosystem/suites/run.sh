#!/bin/bash
# Runs suites against a broker and judges them by Kafka's outcome; `ecosystem/run suites` calls it.
# Usage: run.sh BROKER [franz-go|kafka-python|java-tools|librdkafka|librdkafka-full ...]
#   RETRY=0   do not give a lost test its second, lonely try
#   ACLS=true the broker has ACLs (for Kafka itself)      PARTS=1  run the parts whatever happened
# A test that passes on Kafka must pass here, unless expected/SUITE.txt names it with its reason.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
HERE=$ECO/suites OUTS=$SCRATCH/outcome
[ $# -ge 1 ] || die "usage: run suites BROKER [franz-go|kafka-python|java-tools|librdkafka...]"
BROKER=$1; shift
[ $# -gt 0 ] || set -- franz-go kafka-python java-tools librdkafka
mkdir -p "$OUTS"
MOST_AGAIN=8 # with more lost than this the broker is broken, and a second try only takes time
export ACLS=${ACLS:-false}

needs() { # SUITE: what it builds with, apart from what it fetches by itself
  case $1 in
    librdkafka*) debian gcc g++ make libssl-dev zlib1g-dev libzstd-dev rapidjson-dev; kafka_libs ;;
    java-tools) kafka_libs ;;
  esac
}

suite() { # SUITE OUT [ONLY]
  case $1 in
    librdkafka) JOBS=${JOBS:-4} bash "$HERE/librdkafka.sh" "$BROKER" "${@:2}" ;;
    librdkafka-full) JOBS=${JOBS:-4} QUICK= bash "$HERE/librdkafka.sh" "$BROKER" "${@:2}" ;;
    *) bash "$HERE/$1.sh" "$BROKER" "${@:2}" ;;
  esac
}

only() { # SUITE TEST: the third argument of the suite that selects this test
  case $1 in
    librdkafka*) echo "^${2%%_*}\$" ;;
    kafka-python) local t=${2#*.}; t=${t%%\[*}; echo "$t" ;;
    franz-go) echo "^${2%%/*}\$" ;;
    *) echo "^$2\$" ;;
  esac
}

part() { # LABEL NUMBER ENVIRONMENT: runs it, and leaves its outcome in `result`
  local out=$OUTS/part-${1/\//-}.txt
  env "$3" bash "$HERE/librdkafka.sh" "$BROKER" "$out" "^$2\$" >/dev/null 2>&1 </dev/null
  result=$(awk '!/^#/ { print $2; exit }' "$out")
}

parts() { # OUT: the parts of tests that are excused as a whole, appended to OUT
  local label n env result
  while IFS='|' read -r label n env; do
    label=${label%% *}
    [ -z "$label" ] || [ "${label#\#}" != "$label" ] && continue
    if [ -z "${PARTS-}" ] && grep -q "^${n}_[a-z0-9_]* PASS" "$1"; then
      echo "$label PASS 0" >>"$1"
      continue
    fi
    part "$label" "$n" "$env"
    [ "$result" = PASS ] || [ "${RETRY:-1}" = 0 ] || {
      part "$label" "$n" "$env"
      [ "$result" != PASS ] || echo "FLAKY $label: failed, then passed by itself"
    }
    echo "$label ${result:-FAIL} 0" | tee -a "$1"
  done <"$HERE/expected/librdkafka-parts.txt"
}

judge() { # SUITE OUT: prints what was lost, excused, or passes although excused; 1 if any was lost
  local allow=$HERE/expected/${1%-full}.txt base=$OUTS/base-$1.txt
  cp "$HERE/kafka44/$1.txt" "$base"
  [[ $1 == librdkafka* ]] &&
    sed -n 's/^\([0-9][^ |]*\) *|.*/\1 PASS 0/p' "$HERE/expected/librdkafka-parts.txt" >>"$base"
  awk -v suite="$1" '
    FILENAME == ARGV[1] {
      if ($0 !~ /^#/ && NF > 1) { n = $1; $1 = ""; why[n] = substr($0, 2) }
      next
    }
    FILENAME == ARGV[2] { if ($0 !~ /^#/ && $2 == "PASS") must[$1] = 1; next }
    $0 !~ /^#/ && NF > 1 { got[$1] = $2 }
    END {
      for (t in must) {
        r = t in got ? got[t] : "MISSING"
        if (r == "PASS") { passed++; if (t in why) print "PASSES NOW " t ": " why[t] }
        else if (t in why) { excused++; print "EXCUSED " t " " r ": " why[t] }
        else { lost++; print "LOST " t " " r }
      }
      printf "# %s: %d passed, %d excused, %d lost\n", suite, passed, excused, lost
      exit lost > 0
    }' "$allow" "$base" "$2"
}

again() { # SUITE OUT: every lost test once more by itself; one that passes then is called flaky
  local t out=$OUTS/again-$1.txt tried=' '
  [ "$(judge "$1" "$2" | grep -c '^LOST')" -le "$MOST_AGAIN" ] || return
  rm -f "$out"
  for t in $(judge "$1" "$2" | awk '$1 == "LOST" && $2 !~ /^00*[0-9]*\// { print $2 }'); do
    [[ $tried == *" $(only "$1" "$t") "* ]] || {
      suite "$1" "$out" "$(only "$1" "$t")" >/dev/null 2>&1 </dev/null
      tried+="$(only "$1" "$t") "
    }
    awk -v t="$t" '$1 == t && $2 == "PASS" { found = 1 } END { exit !found }' "$out" 2>/dev/null &&
      { echo "FLAKY $t: failed, then passed by itself"; echo "$t PASS 0" >>"$2"; }
    cat "$out" >>"$OUTS/again.log"
  done
}

one() { # SUITE
  local start out=$OUTS/$1.txt; start=$(now)
  [ -f "$HERE/kafka44/$1.txt" ] || die "no suite \`$1\`"
  needs "$1"
  echo "## $1"
  suite "$1" "$out" || { echo "LOST all of $1: it did not run"; return 1; }
  [[ $1 == librdkafka* ]] && parts "$out"
  [ "${RETRY:-1}" = 0 ] || again "$1" "$out"
  judge "$1" "$out"; local rc=$?
  echo "# $1 took $(since "$start") s"
  return $rc
}

failed=0
for s in "$@"; do one "$s" || failed=$((failed + 1)); done
echo "# suites: $(($# - failed)) passed, $failed failed"
[ $failed -eq 0 ]
