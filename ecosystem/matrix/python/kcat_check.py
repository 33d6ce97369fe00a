"""kcat, the command line of Debian with its old librdkafka. Usage: kcat_check.py BROKER"""
import itertools
import json
import queue
import re
import signal
import subprocess
import sys
import threading
import time

import flow


def text(b):
    return None if b is None else b.encode()


def plain(line):
    m = json.loads(line)
    h = m.get("headers", [])
    headers = [(h[i], text(h[i + 1])) for i in range(0, len(h), 2)]
    return m["partition"], m["offset"], text(m["key"]), text(m["payload"]), headers


class Member:
    def __init__(self, command):
        self.p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True)
        self.records, self.owned = queue.Queue(), set()
        threading.Thread(target=self.read, daemon=True).start()
        threading.Thread(target=self.watch, daemon=True).start()

    def read(self):
        for line in self.p.stdout:
            self.records.put(plain(line))

    def watch(self):  # "... rebalanced (memberid ...): assigned: topic [0], topic [1]"
        for line in self.p.stderr:
            if found := re.search(r"rebalanced .*: (assigned|revoked): (.*)", line):
                parts = {int(n) for n in re.findall(r"\[(\d+)\]", found[2])}
                self.owned = parts if found[1] == "assigned" else set()

    def poll(self):
        out = []
        try:
            out.append(self.records.get(timeout=0.2))
            while True:
                out.append(self.records.get_nowait())
        except queue.Empty:
            return out

    def assignment(self):
        return self.owned

    def commit(self):  # kcat commits by itself, at the latest when it ends
        pass

    def close(self):
        self.p.send_signal(signal.SIGINT)
        self.p.wait(20)


class Adapter:
    name = "kcat"

    def __init__(self, broker):
        self.base = ["kcat", "-b", broker]
        out = subprocess.run(["kcat", "-V"], capture_output=True, text=True).stdout
        self.version = "%s (librdkafka %s)" % (re.search(r"Version (\S+)", out)[1],
                                               re.search(r"librdkafka (\S+)", out)[1])

    def fit(self, record):
        """A command line has no NUL; -Z makes all that is empty null, keys and values alike."""
        p, key, value, headers = record
        if key is None and value == b"":
            value = b"no key"
        if value is None and key == b"":
            key = b"no value"
        return p, key, value, [(k, v and v.replace(b"\x00\xff", b"two")) for k, v in headers]

    def call(self, *args, stdin=b""):
        return subprocess.run([*self.base, *args], input=stdin, check=True, timeout=40,
                              stdout=subprocess.PIPE).stdout

    def create(self, topic, partitions):
        """Asking for the metadata of a topic makes the broker create it."""
        for _ in range(50):
            about = json.loads(self.call("-L", "-J", "-t", topic))["topics"][0]
            if len(about["partitions"]) >= partitions:
                return
            time.sleep(0.1)
        raise AssertionError(f"topic is not created: {about}")

    def produce(self, topic, records, codec=None, idempotent=None):
        """One call for records in a row that agree in partition, headers and nulls. kcat does
        not tell offsets: the acknowledged ones are counted, so that order is checked."""
        options = ["-z", codec] if codec else []
        if idempotent is not None:
            options += ["-X", f"enable.idempotence={str(idempotent).lower()}"]

        def alike(i):
            p, key, value, headers = records[i]
            return p, headers, (None if b"" in (key, value) else key is None or value is None)
        order = sorted(range(len(records)), key=lambda i: repr(alike(i)))
        acks, last = [None] * len(records), {}
        for (p, headers, null), run in itertools.groupby(order, alike):
            run = list(run)
            lines = [(records[i][1] or b"") + b"\t" + (records[i][2] or b"") for i in run]
            flags = ["-Z"] if null else []
            for k, v in headers:
                flags += ["-H", k if v is None else f"{k}={v.decode()}"]
            self.call("-P", "-t", topic, "-p", str(p), "-K", "\t", *flags, *options,
                      stdin=b"\n".join(lines) + b"\n")
            for i in run:
                acks[i] = p, last.get(p, 0)
                last[p] = last.get(p, 0) + 1
        return acks

    def consume(self, topic, partitions, count):
        out = self.call("-C", "-q", "-J", "-e", "-o", "beginning", "-t", topic)
        return [plain(line) for line in out.splitlines()]

    def member(self, group, topic):
        earliest = ["-X", "auto.offset.reset=earliest"]
        return Member([*self.base, "-u", "-J", *earliest, "-G", group, topic])


if __name__ == "__main__":
    # kcat cannot ask for committed offsets; that a new member goes on from them is checked.
    flow.main(Adapter(sys.argv[1]), ["gzip", "snappy", "lz4", "zstd"], without=("commit",))
