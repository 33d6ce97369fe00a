"""What every Python client does in the stage `outage`; each brings an adapter. See outage.py.

A line of output is a time (Unix seconds) and one of
  assigned WHO N, revoked WHO N    the callbacks of a member of the group (WHO: one, two)
  member WHO TEXT                  its member id (and generation, where the client tells), if new
  got WHO VALUE...                 what it read
  read N                           the reader of old records has read N more
  acked VALUE, failed VALUE ERROR  the fate of a record
  told SECONDS RESULT              the hasty producer's: `ok` or the error, and how long it took
  fault WHO ERROR                  an exception out of a call
It ends when its standard input does.
An adapter has `member(topic, group, said)`, `reader(topic, partitions)`, `producer(hasty)`.
"""
import sys
import threading
import time

PARTITIONS, OLD = 4, 2000  # of each topic; records that are there before
PACE_S, HASTY_S = 0.05, 0.5  # between two records of the patient, of the hasty producer
STOP = threading.Event()
LOCK = threading.Lock()


def say(*words):
    with LOCK:
        print(f"{time.time():.3f}", *words, flush=True)


def guarded(who, call):
    """The call's result; an exception is said, and the client goes on as an application would."""
    try:
        return call()
    except Exception as e:  # whatever a client throws is what the stage wants to know
        say("fault", who, type(e).__name__, str(e).replace("\n", " ")[:200])
        time.sleep(0.2)
        return None


def member(adapter, who, topic, group):
    m, last = adapter.member(topic, group, lambda what, n: say(what, who, n)), None
    while not STOP.is_set():
        if got := guarded(who, m.poll):
            say("got", who, *got)
        if (now := m.identity()) != last:
            last = now
            say("member", who, now)
    guarded(who, m.close)


def reader(adapter, topic):
    r, left, new, said = adapter.reader(topic, range(PARTITIONS)), OLD, 0, 0
    while not STOP.is_set():
        n = len(guarded("reader", r.poll) or ())
        left, new = left - n, new + n
        if new and time.monotonic() - said > 0.5:
            say("read", new)
            new, said = 0, time.monotonic()
        if left <= 0:
            time.sleep(0.3)
            r.rewind()
            left = OLD
    guarded("reader", r.close)


def patient(adapter, topic):
    p, number = adapter.producer(False), 0

    def done(value):
        return lambda error: say("failed", value, error) if error else say("acked", value)
    while not STOP.is_set():
        value = f"p-{number}"
        guarded("patient", lambda: p.send(topic, value, done(value)))
        number += 1
        time.sleep(PACE_S)
    guarded("patient", lambda: p.close(60))


def hasty(adapter, topic):
    p, number = adapter.producer(True), 0
    while not STOP.is_set():
        value, told, start = f"h-{number}", threading.Event(), time.monotonic()

        def done(error):
            say(*(("failed", value, error) if error else ("acked", value)))
            say("told", f"{time.monotonic() - start:.2f}", error or "ok")
            told.set()
        try:
            p.send(topic, value, done)
        except Exception as e:  # told at once is told as well
            done(type(e).__name__)
        while not told.wait(0.05) and not STOP.is_set():
            p.poll()
        number += 1
        STOP.wait(HASTY_S)
    guarded("hasty", lambda: p.close(10))


def main(adapter, name, prefix):
    topic = f"{prefix}-{name}"
    jobs = [(member, who, topic + "-p", topic) for who in ("one", "two")]
    jobs += [(reader, prefix + "-old"), (patient, topic + "-p"), (hasty, topic + "-h")]
    threads = [threading.Thread(target=f, args=(adapter, *args), daemon=True) for f, *args in jobs]
    for t in threads:
        t.start()
    sys.stdin.read()
    STOP.set()
    for t in threads:
        t.join(70)
    say("end")
