"""kafka-python. Usage: kafka_python_check.py BROKER"""
import sys

import kafka
from kafka.admin import NewTopic

import flow


def plain(r):
    return r.partition, r.offset, r.key, r.value, r.headers


class Member:
    def __init__(self, topic, **conf):
        self.c = kafka.KafkaConsumer(topic, **conf)

    def poll(self):
        return [plain(r) for rs in self.c.poll(200).values() for r in rs]

    def assignment(self):
        return [t.partition for t in self.c.assignment()]

    def commit(self):
        self.c.commit()

    def close(self):
        self.c.close(autocommit=False)


class Adapter:
    name, version = "kafka-python", kafka.__version__

    def __init__(self, broker):
        self.base = {"bootstrap_servers": broker}

    def fit(self, record):
        p, key, value, headers = record
        if key is None and value is None:  # refused by the client itself
            value = b"no key"
        return p, key, value, [(k, v) for k, v in headers if v is not None]  # a null one too

    def create(self, topic, partitions):
        a = kafka.KafkaAdminClient(**self.base)
        a.create_topics([NewTopic(topic, partitions, 1)])
        a.close()

    def produce(self, topic, records, codec=None, idempotent=None):
        conf = dict(self.base)
        if codec:
            conf["compression_type"] = codec
        if idempotent is not None:
            conf["enable_idempotence"] = idempotent
        p = kafka.KafkaProducer(**conf)
        sent = [p.send(topic, value=v, key=k, headers=h, partition=n) for n, k, v, h in records]
        p.flush(30)
        acks = [f.get(30) for f in sent]
        p.close(10)
        return [(m.partition, m.offset) for m in acks]

    def consume(self, topic, partitions, count):
        c = kafka.KafkaConsumer(auto_offset_reset="earliest", consumer_timeout_ms=15000,
                                enable_auto_commit=False, **self.base)
        parts = [kafka.TopicPartition(topic, p) for p in partitions]
        c.assign(parts)
        ends, got = c.end_offsets(parts), []
        while sum(ends.values()) > len(got):
            got.append(plain(next(c)))
        c.close()
        return got

    def member(self, group, topic):
        return Member(topic, group_id=group, auto_offset_reset="earliest", **self.base)

    def committed(self, group, topic, partitions):
        c = kafka.KafkaConsumer(group_id=group, **self.base)
        found = {p: c.committed(kafka.TopicPartition(topic, p)) for p in partitions}
        c.close()
        return found


if __name__ == "__main__":
    flow.main(Adapter(sys.argv[1]), ["gzip", "snappy", "lz4", "zstd"], plain=True)
