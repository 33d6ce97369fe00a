"""confluent-kafka (librdkafka inside) through an outage. Usage: ... BROKER PREFIX"""
import sys

import confluent_kafka as ck

import client


def values(messages):
    faults = [m.error() for m in messages if m.error()]
    if faults:
        raise ck.KafkaException(faults[0])
    return [m.value().decode() for m in messages]


class Member:
    def __init__(self, conf, topic, said):
        self.c = ck.Consumer(conf)
        self.c.subscribe([topic], on_assign=lambda c, parts: said("assigned", len(parts)),
                         on_revoke=lambda c, parts: said("revoked", len(parts)))

    def poll(self):
        return values(self.c.consume(500, timeout=0.2))

    def identity(self):
        return self.c.memberid()

    def close(self):
        self.c.close()


class Reader:
    def __init__(self, conf, topic, partitions):
        self.c, self.parts = ck.Consumer(conf), [ck.TopicPartition(topic, p, 0) for p in partitions]
        self.rewind()

    def rewind(self):
        self.c.assign(self.parts)

    def poll(self):
        return values(self.c.consume(500, timeout=0.2))

    def close(self):
        self.c.close()


class Producer:
    def __init__(self, conf):
        self.p = ck.Producer(conf)

    def send(self, topic, value, done):
        def report(error, _):
            done(error.name() if error else None)
        self.p.produce(topic, value.encode(), on_delivery=report)
        self.poll()

    def poll(self):
        self.p.poll(0)

    def close(self, seconds):
        self.p.flush(seconds)


class Adapter:
    def __init__(self, broker):
        self.base = {"bootstrap.servers": broker}

    def member(self, topic, group, said):
        conf = {**self.base, "group.id": group, "auto.offset.reset": "earliest"}
        return Member(conf, topic, said)

    def reader(self, topic, partitions):
        conf = {**self.base, "group.id": "none", "enable.auto.commit": False}
        return Reader(conf, topic, partitions)

    def producer(self, hasty):
        conf = {**self.base, "enable.idempotence": True}  # not its default
        return Producer({**conf, "message.timeout.ms": 5000} if hasty else conf)


if __name__ == "__main__":
    client.main(Adapter(sys.argv[1]), "confluent-kafka", sys.argv[2])
