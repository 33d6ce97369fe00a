#!/bin/bash
# Apache Kafka in the foreground on a folder that survives it, for proving the kill cycles.
# Usage: kafka.sh PORT FOLDER
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
PORT=$1 D=$2
kafka_libs
mkdir -p "$D"
cat >"$D/s.properties" <<X
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$((PORT + 1))
listeners=PLAINTEXT://127.0.0.1:$PORT,CONTROLLER://127.0.0.1:$((PORT + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$PORT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=$D/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
group.initial.rebalance.delay.ms=0
X
printf '%s\n' rootLogger=warn,c appender.c.type=Console appender.c.name=c \
  appender.c.layout.type=PatternLayout 'appender.c.layout.pattern=%d %p %c{1} %m%n' \
  >"$D/log4j2.properties"
log=-Dlog4j2.configurationFile=$D/log4j2.properties
[ -f "$D/data/meta.properties" ] || java "$log" -cp "$JARS/*" kafka.tools.StorageTool format \
  --config "$D/s.properties" --cluster-id AAAAAAAAQAKAAAAAAAAAAA --standalone || exit 1
exec java -Xmx512m "$log" -Dkafka.logs.dir="$D" -cp "$JARS/*" kafka.Kafka "$D/s.properties"
