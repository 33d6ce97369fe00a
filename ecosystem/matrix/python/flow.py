"""The checks every Python client goes through; each client brings an adapter.

An adapter has `name`, `version`, and
  fit(record)                       -> the record, changed to what this client can send at all
  create(topic, partitions)
  produce(topic, records, **mode)   -> [(partition, offset)] in the order of the records;
                                       mode: codec=NAME, idempotent=True|False
  consume(topic, partitions, count) -> [(partition, offset, key, value, headers)]
  member(group, topic)              -> object with poll(), assignment(), commit(), close()
  committed(group, topic, partitions) -> {partition: offset}
A record is (partition, key, value, headers).
"""
import os
import sys
import threading
import time
import traceback

PARTITIONS = 3
PER_PARTITION = 40
GROUP_PARTITIONS = 4
WAIT = 45  # seconds for one step of the group checks


def sample():
    """Records with null, empty and plain keys and values, and headers of every shape."""
    out = []
    for i in range(PER_PARTITION):
        for p in range(PARTITIONS):
            long = b"value-%d-%d " % (p, i) * (i * i)
            key = None if i % 5 == 0 else b"" if i % 5 == 1 else b"key-%d-%d" % (p, i)
            value = None if i % 7 == 0 else b"" if i % 7 == 1 else long
            many = [("h", b"1"), ("h", b"\x00\xff"), ("empty", b""), ("none", None)]
            headers = [] if i % 3 == 0 else [("h", b"v")] if i % 3 == 1 else many
            out.append((p, key, value, headers))
    return out


def same(sent, acks, got):
    """Every record once, in order, at the offset its acknowledgement named, no gap."""
    assert len(acks) == len(sent), f"{len(acks)} acknowledgements for {len(sent)} records"
    want = {}
    for (p, *rest), (ap, offset) in zip(sent, acks):
        assert p == ap, f"sent to {p}, acknowledged in {ap}"
        want[(p, offset)] = tuple(rest)
    for p in {r[0] for r in sent}:
        offsets = sorted(o for q, o in want if q == p)
        assert offsets == list(range(len(offsets))), f"acked offsets of {p}: {offsets}"
    assert len(got) == len(sent), f"read {len(got)} of {len(sent)} records"
    seen = {}
    for p, offset, key, value, headers in got:
        assert seen.get(p, 0) == offset, f"partition {p}: offset {offset} after {seen.get(p, 0)}"
        seen[p] = offset + 1
        have, wanted = (key, value, list(headers)), want[(p, offset)]
        assert have == (wanted[0], wanted[1], list(wanted[2])), f"{p}/{offset}: {have!r}"


class Member(threading.Thread):
    """One group member: polls, commits what it has read, keeps what it has seen."""

    def __init__(self, adapter, group, topic):
        super().__init__(daemon=True)
        self.inner = adapter.member(group, topic)
        self.assigned, self.seen, self.error, self.done = set(), [], None, threading.Event()
        self.start()

    def run(self):
        try:
            while not self.done.is_set():
                records = self.inner.poll()
                self.assigned = set(self.inner.assignment())
                self.seen += [r[3] for r in records]
                if records:
                    try:
                        self.inner.commit()
                    except Exception:  # a rebalance came first: the next owner reads it again
                        pass
            self.inner.commit()
        except Exception as e:
            self.error = e
        finally:
            self.inner.close()

    def stop(self):
        self.done.set()
        self.join(WAIT)
        assert not self.is_alive(), "member does not end"
        if self.error:
            raise self.error


def until(what, condition, members):
    end = time.time() + WAIT
    while not condition():
        for m in members:
            if m.error:
                raise m.error
        state = [(sorted(m.assigned), len(set(m.seen))) for m in members]
        assert time.time() < end, f"{what}: not within {WAIT} s; members {state}"
        time.sleep(0.05)


class Flow:
    def __init__(self, adapter):
        self.a, self.failed = adapter, 0
        self.records = [adapter.fit(r) for r in sample()]
        self.prefix = f"m-{adapter.name}-{os.getpid()}-{int(time.time())}"
        self.serial = 0

    def check(self, name, f, *args, **kw):
        start, r = time.time(), "PASS"
        try:
            f(*args, **kw)
        except BaseException:
            traceback.print_exc()
            self.failed, r = self.failed + 1, "FAIL"
        print(f"{self.a.name} {name} {r} {time.time() - start:.1f}", flush=True)

    def create(self):
        self.a.create(f"{self.prefix}-t", PARTITIONS)

    def produce(self):
        self.acks = self.a.produce(f"{self.prefix}-t", self.records)
        assert len(self.acks) == len(self.records)

    def consume(self):
        got = self.a.consume(f"{self.prefix}-t", range(PARTITIONS), len(self.records))
        same(self.records, self.acks, got)

    def round(self, topic, create=True, **mode):
        topic = f"{self.prefix}-{topic}"
        if create:
            self.a.create(topic, PARTITIONS)
        acks = self.a.produce(topic, self.records, **mode)
        same(self.records, acks, self.a.consume(topic, range(PARTITIONS), len(self.records)))

    def more(self, count):
        """Produces `count` records of unique value, spread evenly; returns the values."""
        values = [b"g-%d" % (self.serial + i) for i in range(count)]
        self.serial += count
        self.a.produce(self.topic, [(i % GROUP_PARTITIONS, None, v, [])
                                    for i, v in enumerate(values)])
        return set(values)

    def group(self):
        self.topic, self.gid = f"{self.prefix}-g", f"{self.prefix}-group"
        self.a.create(self.topic, GROUP_PARTITIONS)
        first = self.more(200)
        a = Member(self.a, self.gid, self.topic)
        until("first member reads all", lambda: first <= set(a.seen), [a])
        b = Member(self.a, self.gid, self.topic)
        both = [a, b]
        until("both have partitions", lambda: a.assigned and b.assigned and not
              a.assigned & b.assigned and len(a.assigned | b.assigned) == GROUP_PARTITIONS, both)
        second = self.more(200)
        until("both read the second lot", lambda: second <= set(a.seen) | set(b.seen), both)
        assert second & set(a.seen) and second & set(b.seen), "one member read everything"
        b.stop()
        until("the first has all again", lambda: len(a.assigned) == GROUP_PARTITIONS, [a])
        third = self.more(100)
        until("the first reads the third lot", lambda: third <= set(a.seen), [a])
        a.stop()

    def commit(self):
        got = self.a.committed(self.gid, self.topic, range(GROUP_PARTITIONS))
        want = {p: self.serial // GROUP_PARTITIONS for p in range(GROUP_PARTITIONS)}
        assert got == want, f"committed {got}, end offsets {want}"

    def resume(self):
        fresh = self.more(40)
        c = Member(self.a, self.gid, self.topic)
        until("new records are read", lambda: fresh <= set(c.seen), [c])
        time.sleep(0.5)
        c.stop()
        assert sorted(c.seen) == sorted(fresh), f"read {len(c.seen)} records, not {len(fresh)}"


def main(adapter, codecs, plain=False, without=()):
    print(f"# {adapter.name} {adapter.version}", flush=True)
    f = Flow(adapter)
    for name in "create", "produce", "consume":
        f.check(name, getattr(f, name))
    f.check("auto", f.round, "auto", create=False)
    for codec in codecs:
        f.check(codec, f.round, codec, codec=codec)
    f.check("idempotent", f.round, "idem", idempotent=True)
    if plain:  # idempotence is this client's default: once without it
        f.check("plain", f.round, "plain", idempotent=False)
    for name in "group", "commit", "resume":
        if name not in without:
            f.check(name, getattr(f, name))
    sys.stdout.flush()
    os._exit(1 if f.failed else 0)  # no client's threads may hold up the end
