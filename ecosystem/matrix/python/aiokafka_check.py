"""aiokafka; its event loop runs in a thread of its own. Usage: aiokafka_check.py BROKER"""
import asyncio
import sys
import threading

import aiokafka
from aiokafka import admin

import flow

LOOP = asyncio.new_event_loop()
threading.Thread(target=LOOP.run_forever, daemon=True).start()


def wait(coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, LOOP).result(60)


def plain(r):
    return r.partition, r.offset, r.key, r.value, list(r.headers)


async def make(kind, *args, **conf):
    client = kind(*args, **conf)
    await client.start()
    return client


class Member:
    def __init__(self, topic, **conf):
        self.c = wait(make(aiokafka.AIOKafkaConsumer, topic, **conf))

    def poll(self):
        return [plain(r) for rs in wait(self.c.getmany(timeout_ms=200)).values() for r in rs]

    def assignment(self):
        return [t.partition for t in self.c.assignment()]

    def commit(self):
        wait(self.c.commit())

    def close(self):
        wait(self.c.stop())


class Adapter:
    name, version = "aiokafka", aiokafka.__version__

    def __init__(self, broker):
        self.base = {"bootstrap_servers": broker}

    def fit(self, record):
        p, key, value, headers = record
        if key is None and value is None:  # refused by the client itself
            value = b"no key"
        return p, key, value, headers

    def create(self, topic, partitions):
        async def go():
            a = await make(admin.AIOKafkaAdminClient, **self.base)
            answer = await a.create_topics([admin.NewTopic(topic, partitions, 1)])
            await a.close()
            assert all(t[1] == 0 for t in answer.topic_errors), answer
        wait(go())

    def produce(self, topic, records, codec=None, idempotent=None):
        conf = dict(self.base)
        if codec:
            conf["compression_type"] = codec
        if idempotent is not None:
            conf["enable_idempotence"] = idempotent

        async def go():
            p = await make(aiokafka.AIOKafkaProducer, **conf)
            sent = [await p.send(topic, v, k, n, headers=h) for n, k, v, h in records]
            acks = [await f for f in sent]
            await p.stop()
            return [(m.partition, m.offset) for m in acks]
        return wait(go())

    def consume(self, topic, partitions, count):
        async def go():
            c = await make(aiokafka.AIOKafkaConsumer, enable_auto_commit=False, **self.base)
            parts = [aiokafka.TopicPartition(topic, p) for p in partitions]
            c.assign(parts)
            await c.seek_to_beginning(*parts)
            ends, got = await c.end_offsets(parts), []
            while sum(ends.values()) > len(got):
                got.append(plain(await asyncio.wait_for(c.getone(), 30)))
            await c.stop()
            return got
        return wait(go())

    def member(self, group, topic):
        return Member(topic, group_id=group, auto_offset_reset="earliest", **self.base)

    def committed(self, group, topic, partitions):
        async def go():
            c = await make(aiokafka.AIOKafkaConsumer, group_id=group, **self.base)
            found = {p: await c.committed(aiokafka.TopicPartition(topic, p)) for p in partitions}
            await c.stop()
            return found
        return wait(go())


if __name__ == "__main__":
    flow.main(Adapter(sys.argv[1]), ["gzip", "snappy", "lz4", "zstd"])
