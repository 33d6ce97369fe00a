"""confluent-kafka (librdkafka inside). Usage: confluent_kafka_check.py BROKER"""
import sys

import confluent_kafka as ck
from confluent_kafka import admin

import flow


def plain(m):
    if m.error():
        raise ck.KafkaException(m.error())
    return m.partition(), m.offset(), m.key(), m.value(), m.headers() or []


class Member:
    def __init__(self, conf, topic):
        self.c = ck.Consumer(conf)
        self.c.subscribe([topic])

    def poll(self):
        return [plain(m) for m in self.c.consume(500, timeout=0.2)]

    def assignment(self):
        return [t.partition for t in self.c.assignment()]

    def commit(self):
        try:
            self.c.commit(asynchronous=False)
        except ck.KafkaException as e:
            if e.args[0].code() != ck.KafkaError._NO_OFFSET:
                raise

    def close(self):
        self.c.close()


class Adapter:
    name = "confluent-kafka"
    version = f"{ck.version()} (librdkafka {ck.libversion()[0]})"

    def __init__(self, broker):
        self.base = {"bootstrap.servers": broker}

    def fit(self, record):
        return record

    def create(self, topic, partitions):
        a = admin.AdminClient(self.base)
        a.create_topics([admin.NewTopic(topic, partitions, 1)])[topic].result(30)

    def produce(self, topic, records, codec=None, idempotent=None):
        conf = dict(self.base)
        if codec:
            conf["compression.type"] = codec
        if idempotent is not None:
            conf["enable.idempotence"] = idempotent
        p, acks, errors = ck.Producer(conf), [None] * len(records), []

        def report(i):
            def done(err, m):
                if err:
                    errors.append(err)
                else:
                    acks[i] = (m.partition(), m.offset())
            return done
        for i, (part, key, value, headers) in enumerate(records):
            p.produce(topic, value, key, part, headers=headers, on_delivery=report(i))
        assert p.flush(30) == 0, "records left in the queue"
        assert not errors, errors[0]
        return acks

    def consume(self, topic, partitions, count):
        c = ck.Consumer({**self.base, "group.id": "none", "enable.auto.commit": False,
                         "enable.partition.eof": True})
        c.assign([ck.TopicPartition(topic, p, 0) for p in partitions])
        got, open_ends = [], len(list(partitions))
        while open_ends:
            m = c.poll(30)
            assert m is not None, "nothing came for 30 s"
            if m.error() and m.error().code() == ck.KafkaError._PARTITION_EOF:
                open_ends -= 1
            else:
                got.append(plain(m))
        c.close()
        return got

    def member(self, group, topic):
        return Member({**self.base, "group.id": group, "auto.offset.reset": "earliest"}, topic)

    def committed(self, group, topic, partitions):
        c = ck.Consumer({**self.base, "group.id": group})
        found = c.committed([ck.TopicPartition(topic, p) for p in partitions], 30)
        c.close()
        return {t.partition: t.offset for t in found}


if __name__ == "__main__":
    flow.main(Adapter(sys.argv[1]), ["gzip", "snappy", "lz4", "zstd"])
