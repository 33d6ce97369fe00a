"""kafka-python through an outage. Usage: ... BROKER PREFIX"""
import sys

import kafka

import client


class Listener(kafka.ConsumerRebalanceListener):
    def __init__(self, said):
        self.said = said

    def on_partitions_assigned(self, assigned):
        self.said("assigned", len(assigned))

    def on_partitions_revoked(self, revoked):
        # Called before the first assignment too, with nothing.
        if revoked:
            self.said("revoked", len(revoked))


class Member:
    def __init__(self, topic, said, **conf):
        self.c = kafka.KafkaConsumer(**conf)
        self.c.subscribe([topic], listener=Listener(said))

    def poll(self):
        return [r.value.decode() for rs in self.c.poll(200).values() for r in rs]

    def identity(self):
        g = self.c.group_metadata()
        return f"{g.member_id} {g.generation_id}"

    def close(self):
        self.c.close(autocommit=False)


class Reader:
    def __init__(self, topic, partitions, **conf):
        self.c = kafka.KafkaConsumer(**conf)
        self.parts = [kafka.TopicPartition(topic, p) for p in partitions]
        self.c.assign(self.parts)
        self.rewind()

    def rewind(self):
        for part in self.parts:
            self.c.seek(part, 0)

    def poll(self):
        return [r for rs in self.c.poll(200).values() for r in rs]

    def close(self):
        self.c.close(autocommit=False)


class Producer:
    def __init__(self, **conf):
        self.p = kafka.KafkaProducer(**conf)

    def send(self, topic, value, done):
        future = self.p.send(topic, value.encode())
        future.add_callback(lambda _: done(None))
        future.add_errback(lambda e: done(type(e).__name__))

    def poll(self):
        pass

    def close(self, seconds):
        self.p.flush(seconds)
        self.p.close(5)


class Adapter:
    def __init__(self, broker):
        self.base = {"bootstrap_servers": broker}

    def member(self, topic, group, said):
        return Member(topic, said, group_id=group, auto_offset_reset="earliest", **self.base)

    def reader(self, topic, partitions):
        return Reader(topic, partitions, enable_auto_commit=False, **self.base)

    def producer(self, hasty):
        # With idempotence 3.0.12 drops its producer id when a record that was sent times out, asks
        # for no new one and never sends again, on any broker; without it, a second try is a copy.
        short = {"request_timeout_ms": 5000, "delivery_timeout_ms": 6000, "retries": 0,
                 "enable_idempotence": False}
        return Producer(**(short if hasty else {}), **self.base)


if __name__ == "__main__":
    client.main(Adapter(sys.argv[1]), "kafka-python", sys.argv[2])
