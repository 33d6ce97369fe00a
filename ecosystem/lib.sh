# Shared by run, ci and the kill cycles: a scratch folder outside the tree, and one function per
# kind of package that installs it there once. Sourced by bash scripts.
set -u
ECO=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export ECOSYSTEM_SCRATCH=${ECOSYSTEM_SCRATCH:-${TMPDIR:-/tmp}/tidemill-suites}
SCRATCH=$ECOSYSTEM_SCRATCH
JARS=$SCRATCH/kafka/libs
mkdir -p "$SCRATCH/log"

die() { echo "$*" >&2; exit 1; }
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }

# stamped NAME FILE... -- COMMAND: runs the command unless it has succeeded with these very files.
# The time it takes is not a client's: it is said on standard error.
stamped() {
  local name=$1 files=() sum start; shift
  while [ "$1" != -- ]; do files+=("$1"); shift; done; shift
  sum=$(cat /dev/null "${files[@]}" | sha256sum | cut -c1-16)
  (
    flock 9
    [ "$(cat "$SCRATCH/$name.stamp" 2>/dev/null)" = "$sum" ] && exit 0
    start=$(now)
    "$@" >"$SCRATCH/log/install-$name.log" 2>&1 9>&- || {
      tail -n 5 "$SCRATCH/log/install-$name.log" >&2; exit 1; }
    echo "$sum" >"$SCRATCH/$name.stamp"
    echo "# prepared $name in $(since "$start") s" >&2
  ) 9>"$SCRATCH/$name.lock" || die "cannot prepare $name: see $SCRATCH/log/install-$name.log"
}

# debian PACKAGE...: installs those that are missing; the list of packages is fetched once.
debian() {
  local missing=() p
  for p in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$p" 2>/dev/null)" = 'ii ' ] || missing+=("$p")
  done
  [ ${#missing[@]} -eq 0 ] && return
  (
    flock 9
    apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y "${missing[@]}"
  ) 9>"$SCRATCH/apt.lock" >"$SCRATCH/log/apt.log" 2>&1 ||
    die "no ${missing[*]}: see $SCRATCH/log/apt.log"
}

kafka_libs() { stamped kafka-libs "$ECO/suites/common.sh" -- bash -c '. "$0"; kafka_jars' \
  "$ECO/suites/common.sh"; }

python_venv() {
  make_venv() { python3 -m venv --clear "$SCRATCH/venv" && "$SCRATCH/venv/bin/pip" install \
    --disable-pip-version-check -q -r "$ECO/matrix/python/requirements.txt"; }
  stamped venv "$ECO/matrix/python/requirements.txt" -- make_venv
}

# node_modules NAME FOLDER: a copy of FOLDER with what its lock file names, at $SCRATCH/NAME.
node_modules() {
  copy_and_install() { mkdir -p "$SCRATCH/$1" && cp "$2/package.json" "$2/package-lock.json" \
    "$2/.npmrc" "$SCRATCH/$1/" && cd "$SCRATCH/$1" && npm ci --no-progress; }
  stamped "$1" "$2/package-lock.json" -- copy_and_install "$1" "$2"
}

# go_programs FOLDER: builds all programs of the module at FOLDER into $SCRATCH/go-bin.
go_programs() {
  build() { cd "$1" && mkdir -p "$SCRATCH/go-bin" && GOTOOLCHAIN=local GOFLAGS=-mod=readonly \
    go build -p 2 -o "$SCRATCH/go-bin/" ./...; }
  local name; name=go-$(basename "$1")
  stamped "$name" "$1"/go.mod "$1"/go.sum $(find "$1" -name '*.go' | sort) -- build "$1"
}

# java_program FILE...: compiles each, of the folder this file is in, into $SCRATCH/java.
java_program() {
  kafka_libs
  compile() { javac -d "$SCRATCH/java" -cp "$JARS/*" "$1"; }
  local file
  for file in "$@"; do
    stamped "java-$(basename "$file" .java)" "$ECO/$file" -- compile "$ECO/$file"
  done
}
