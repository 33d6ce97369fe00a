#!/bin/bash
# Runs a command beside an Azure emulator (azurite) on loopback; `ecosystem/run azure` calls it.
# Usage: azure.sh COMMAND...      PORT=10000
# The command finds TIDEMILL_TEST_AZURE_URL (a container that exists and is empty) and the
# AZURE_STORAGE_* variables that lead to the emulator.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
[ $# -ge 1 ] || die "usage: run azure COMMAND..."
PORT=${PORT:-10000} CONTAINER=tidemill-test
node_modules azure-node "$ECO/azure"
AZURITE=$SCRATCH/azure-node/node_modules/azurite/dist/src/blob
# The account and key that every azurite has: no secret.
constant() { node -p "require('$AZURITE/utils/constants').$1"; }
ACCOUNT=$(constant EMULATOR_ACCOUNT_NAME) KEY=$(constant EMULATOR_ACCOUNT_KEY_STR)
(exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && die "port $PORT is in use: set PORT"
DATA=$(mktemp -d "$SCRATCH/azurite.XXXX")
node "$AZURITE/main.js" --blobHost 127.0.0.1 \
  --blobPort "$PORT" --location "$DATA" --silent --skipApiVersionCheck --disableTelemetry \
  >"$SCRATCH/log/azurite.log" 2>&1 &
PID=$!
trap 'kill $PID 2>/dev/null; wait $PID 2>/dev/null; rm -rf "$DATA"' EXIT
for _ in $(seq 150); do
  (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && break
  kill -0 $PID 2>/dev/null || die "azurite ended: $(tail -n 3 "$SCRATCH/log/azurite.log")"
  sleep 0.2
done
python3 "$ECO/azure/container.py" "http://127.0.0.1:$PORT" $ACCOUNT $KEY $CONTAINER ||
  die "no container in azurite"

export TIDEMILL_TEST_AZURE_URL=az://$CONTAINER/conformance
export AZURE_STORAGE_ACCOUNT_NAME=$ACCOUNT AZURE_STORAGE_ACCOUNT_KEY=$KEY
export AZURE_STORAGE_USE_EMULATOR=true AZURE_ALLOW_HTTP=true
export AZURITE_BLOB_STORAGE_URL=http://127.0.0.1:$PORT
export AZURE_STORAGE_ENDPOINT=http://127.0.0.1:$PORT/$ACCOUNT
"$@"
