"""Real clients while the bucket refuses for a minute: first writes, then everything.

Usage: outage.py BROKER BUCKET LOGS NAME=COMMAND...    BUCKET: host:port of bucket.py
Every client runs a group of two, a reader of old records, a patient and a hasty producer (5 s), all
otherwise with its defaults, and says what happens to them (client.py); here it is judged, and the
checks are printed as `client check PASS|FAIL seconds`, what was measured as comments. OUTAGE_S=60
"""
import collections
import os
import shlex
import subprocess
import sys
import threading
import time
import urllib.request

import confluent_kafka as ck
from confluent_kafka import admin

from client import OLD, PARTITIONS

OUTAGE_S = float(os.environ.get("OUTAGE_S", 60))
BETWEEN_S, AFTER_S = 15, 35  # what comes late must show before the next phase
READY_S = 60
GAP_S = 5  # longest time without a record for a reader that is served
RESUME_S = 30  # until everything goes on; a client's own pause between attempts is in it
TOLD_S = 8  # the hasty producer's 5 s, and time to notice on a busy machine


class Client:
    """A running client program, and its events as (time, word, rest)."""

    def __init__(self, name, command, logs):
        self.name, self.events, self.failed = name, [], False
        self.log = open(os.path.join(logs, f"{name}.log"), "w")
        self.errors = open(os.path.join(logs, f"{name}.err"), "w")
        self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.thread = threading.Thread(target=self.collect, daemon=True)
        self.thread.start()

    def collect(self):
        for line in self.process.stdout:
            self.log.write(line)
            at, word, *rest = line.split()
            self.events.append((float(at), word, rest))
        self.log.close()

    def of(self, words, since=0.0, until=float("inf")):
        return [e for e in list(self.events) if e[1] in words and since <= e[0] < until]

    def ready(self):
        owned = {}
        for _, word, (who, n) in self.of(("assigned", "revoked")):
            owned[who] = int(n) if word == "assigned" else 0
        return (len(owned) == 2 and all(owned.values()) and len(self.of(("read",))) > 2
                and len(self.of(("acked",))) > 40
                and any(e[2][1] == "ok" for e in self.of(("told",))))

    def check(self, name, ok, seconds, why=""):
        print(f"{self.name} {name} {'PASS' if ok else 'FAIL'} {seconds:.1f}", flush=True)
        if not ok:
            self.failed = True
            print(f"#   {self.name} {name}: {why}", flush=True)

    def note(self, text):
        print(f"# {self.name}: {text}", flush=True)

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(90)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.thread.join(10)


def refuse(bucket, mode):
    urllib.request.urlopen(urllib.request.Request(f"http://{bucket}/{mode}", method="POST"))
    print(f"# {time.strftime('%H:%M:%S')} the bucket refuses {mode}", flush=True)
    return time.time()


def longest_gap(times, since, until):
    times = [since, *sorted(t for t in times if since < t < until), until]
    return max(b - a for a, b in zip(times, times[1:]))


def told_in_time(c, phase, begin, end):
    """Who does not want to wait is told so, again and again, as long as it lasts."""
    # A record that was sent before it began may be told of in it.
    told = [(float(s), what) for _, _, (s, what) in c.of(("told",), begin + 1, end)]
    errors, late = [t for t in told if t[1] != "ok"], [t for t in told if t[0] > TOLD_S]
    names = collections.Counter(what for _, what in errors)
    worst = max((s for s, _ in errors), default=0)
    c.note(f"{phase}: a producer with 5 s was told {dict(names)}, after {worst:.1f} s at most")
    c.check(f"{phase}-told", len(errors) >= (end - begin) / 12 and not late, worst, told)


def went_on(c, phase, end):
    """When reading, producing and the group went on."""
    firsts = {}
    old = {e[2][0] for e in c.of(("acked",), 0, end)}
    for what, word in (("reader", "read"), ("producer", "acked"), ("group", "got")):
        at = [t for t, _, rest in c.of((word,), end)
              if word != "got" or any(v not in old for v in rest[1:])]
        firsts[what] = at[0] - end if at else float("inf")
    c.note(f"{phase}: went on after " + ", ".join(f"{s:.1f} s ({w})" for w, s in firsts.items()))
    c.check(f"{phase}-goes-on", max(firsts.values()) < RESUME_S, max(firsts.values()), firsts)


def moves(c, begin, end):
    """What happened to the group: callbacks, and new member ids or generations, by member."""
    found = collections.defaultdict(list)
    for at, word, rest in c.of(("assigned", "revoked", "member"), begin, end):
        detail = "" if word == "member" else " " + rest[1]
        found[rest[0]].append(f"{at - begin:.1f} s {word}{detail}")
    return dict(found)


def writes_refused(c, begin, end, calm_until):
    reads = c.of(("read",), begin, end)
    count, gap = sum(int(e[2][0]) for e in reads), longest_gap([e[0] for e in reads], begin, end)
    c.note(f"writes refused: {count} old records read, longest gap {gap:.1f} s")
    c.check("writes-reads", gap < GAP_S, gap, "reading stopped")
    moved = moves(c, begin, calm_until)
    c.check("writes-no-rebalance", not moved, calm_until - begin, moved)
    told_in_time(c, "writes", begin, end)
    went_on(c, "writes", end)


def all_refused(c, begin, end, until, kept):
    reads = [e[0] for e in c.of(("read",), begin, end)]
    c.note(f"all refused: reading stopped after {max(reads, default=begin) - begin:.1f} s")
    moved = moves(c, begin, until)
    joins = {w: sum(" assigned" in m for m in ms) for w, ms in moved.items()}
    c.note("all refused: " + ("no rebalance" if not moved else f"rebalanced: {moved}"))
    # Who counts for himself may join again, once; whoever does not must still be a member.
    c.check("all-rebalances", max(joins.values(), default=0) <= 1, until - begin, moved)
    c.check("all-none-expelled", kept or bool(moved), until - begin, "other members than before")
    told_in_time(c, "all", begin, end)
    went_on(c, "all", end)


def log_of(broker, topic):
    """The values of every partition, in order."""
    c = ck.Consumer({"bootstrap.servers": broker, "group.id": "none", "enable.auto.commit": False,
                     "enable.partition.eof": True})
    c.assign([ck.TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    found, ends = [[] for _ in range(PARTITIONS)], 0
    while ends < PARTITIONS:
        m = c.poll(30)
        assert m is not None, f"{topic}: nothing came for 30 s"
        if m.error():
            ends += 1
        else:
            found[m.partition()].append(m.value().decode())
    c.close()
    return found


def nothing_lost(c, broker, prefix):
    """Acknowledged: once in the log, in order, and read by the group. Given up: at most once."""
    start, faults = time.time(), []
    acked = [e[2][0] for e in c.of(("acked",))]
    failed = {e[2][0]: e[2][1] for e in c.of(("failed",))}
    logs = log_of(broker, f"{prefix}-{c.name}-p") + log_of(broker, f"{prefix}-{c.name}-h")
    times = collections.Counter(v for log in logs for v in log)
    faults += [f"{v} acknowledged, {times[v]} times there" for v in acked if times[v] != 1]
    faults += [f"{v} given up, {times[v]} times there" for v in failed if times[v] > 1]
    for log in logs[:PARTITIONS]:
        numbers = [int(v[2:]) for v in log]
        faults += ["not in order"] if numbers != sorted(numbers) else []
    gave_up = {v: e for v, e in failed.items() if v.startswith("p-")}
    stored = sum(times[v] for v in failed)
    c.note(f"{len(acked)} acknowledged; {len(failed)} given up, of which {stored} were stored")
    c.check("nothing-lost", not faults, time.time() - start, faults[:5])
    c.check("patient", not gave_up and bool(acked), 0, list(gave_up.items())[:5])
    got = collections.Counter(v for e in c.of(("got",)) for v in e[2][1:])
    missing = [v for v in acked if v.startswith("p-") and not got[v]]
    twice = sum(n > 1 for n in got.values())
    c.note(f"the group read {len(got)}, {twice} of them twice")
    c.check("group-reads-all", not missing, 0, missing[:5])
    faults = collections.Counter((e[2][0], e[2][1]) for e in c.of(("fault",)))
    if faults:
        c.note(f"thrown: {dict(faults)}")


def members(broker, group):
    a = admin.AdminClient({"bootstrap.servers": broker, "log_level": 3})
    found = a.describe_consumer_groups([group], request_timeout=30)[group].result()
    return sorted(m.member_id for m in found.members), found.state.name


def prepare(broker, prefix, names):
    a = admin.AdminClient({"bootstrap.servers": broker, "log_level": 3})
    topics = [f"{prefix}-old"] + [f"{prefix}-{n}-{kind}" for n in names for kind in "ph"]
    for f in a.create_topics([admin.NewTopic(t, PARTITIONS, 1) for t in topics]).values():
        f.result(30)
    p = ck.Producer({"bootstrap.servers": broker, "acks": "all"})
    for i in range(OLD):
        p.produce(topics[0], b"old %d " % i * 10, partition=i % PARTITIONS)
    assert p.flush(30) == 0, "old records left in the queue"


def main(broker, bucket, logs, *commands):
    prefix = f"outage-{os.getpid()}"
    named = [c.split("=", 1) for c in commands]
    prepare(broker, prefix, [name for name, _ in named])
    clients = [Client(name, f"{command} {broker} {prefix}", logs) for name, command in named]
    start = time.time()
    while not all(c.ready() for c in clients) and time.time() - start < READY_S:
        time.sleep(0.2)
    for c in clients:
        c.check("start", c.ready(), time.time() - start, c.events[-3:])
    if any(c.failed for c in clients):
        return 1
    time.sleep(5)
    spans = []
    for mode, after in (("writes", BETWEEN_S), ("all", AFTER_S)):
        before = {c.name: members(broker, f"{prefix}-{c.name}") for c in clients}
        begin = refuse(bucket, mode)
        time.sleep(OUTAGE_S)
        end = refuse(bucket, "none")
        time.sleep(after)
        now = {c.name: members(broker, f"{prefix}-{c.name}") for c in clients}
        spans.append((begin, end, time.time(), {n: before[n] == now[n] for n in now}))
        for name in now:
            if before[name] != now[name]:
                print(f"# {name}: members before {before[name]}, after {now[name]}")
    for c in clients:
        threading.Thread(target=c.end).start()
    for t in threading.enumerate():
        if t is not threading.current_thread() and not t.daemon:
            t.join()
    for c in clients:
        writes_refused(c, *spans[0][:3])
        all_refused(c, *spans[1][:3], spans[1][3][c.name])
        nothing_lost(c, broker, prefix)
        c.check("end", c.of(("end",)) and c.process.returncode == 0, 0, c.process.returncode)
    failed = sum(c.failed for c in clients)
    print(f"# outage: {len(clients) - failed} clients passed, {failed} failed, "
          f"{time.time() - start:.1f} s")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
