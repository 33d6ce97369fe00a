//! The engine: forms WAL objects, sends them, and commits what landed; one turn at a time, taken by
//! a task of its own or by whoever has just appended.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use tidemill_invariants::wal as rule;
use tidemill_runtime::Instant;

use super::{
    Progress, Wal,
    object::{Encoded, Landed, whole},
    queue::{Queue, Queued},
    stage::{Cutting, Fragment, Needs, Staged},
    ticket::Pending,
    tuning::Tuning,
    window::{Object, Ready, Window},
};
use crate::{
    error::AppendFailed, format::wal::WalEntry, partition::Partition, types::WAL_IN_FLIGHT_MAX,
};

/// The first number after the one that the start sequence wrote.
const FIRST_NUMBER: u64 = 1;

/// Longest time that a PUT waits for a request of several partitions to be appended as a whole;
/// that takes some microseconds.
const GATHER_MAX: Duration = Duration::from_millis(1);

/// Rounds of a turn, of which each may put an object in a directory, before others of the thread
/// get theirs.
const ROUNDS: u32 = 4;

/// What the engine waits for after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turned {
    /// For nothing: there is more to do.
    Unfinished,
    /// For a PUT, for an entry, or for this time.
    Waits(Option<Instant>),
}

pub(super) struct Engine {
    pub(super) wal: Arc<Wal>,
    pub(super) window: Window,
    needs: Needs,
    cutting: Option<Cutting>,
    in_flight: usize,
    bulk_in_flight: usize,
    /// Entries to be committed now.
    pub(super) ready: Vec<Ready>,
    /// The entry being committed.
    pub(super) committing: Option<Arc<Pending>>,
    /// Partitions whose waiters are to be woken.
    pub(super) touched: Vec<Arc<Partition>>,
    /// What was done when it was sent.
    at_once: VecDeque<Landed>,
}

impl Engine {
    pub fn new(wal: Arc<Wal>) -> Self {
        Self {
            wal,
            window: Window::new(FIRST_NUMBER),
            needs: Needs::default(),
            cutting: None,
            in_flight: 0,
            bulk_in_flight: 0,
            ready: Vec::new(),
            committing: None,
            touched: Vec::new(),
            at_once: VecDeque::new(),
        }
    }

    /// Takes turns until the log stops.
    pub async fn run(self) {
        let wal = self.wal.clone();
        let mut stop = wal.stop.subscribe();
        // A disk may be full from the start.
        wal.look_at_space().await;
        let _last = Seated::new(self);
        loop {
            let Some(turned) = turn(&mut wal.engine.lock()) else {
                // It panicked in somebody else's turn.
                return;
            };
            let alarm = match turned {
                Turned::Unfinished => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Turned::Waits(alarm) => alarm,
            };
            tokio::select! {
                biased;
                _ = stop.wait_for(Option::is_some) => return,
                () = wal.pushed.notified() => {}
                () = until(&wal, alarm) => {}
            }
        }
    }

    /// Sends what may be sent and commits what landed; nothing of either once the log has stopped.
    fn turn(&mut self) -> Turned {
        for _ in 0..ROUNDS {
            if self.wal.stopped().is_some() {
                return Turned::Waits(None);
            }
            let alarm = self.send_due();
            match self.next_landed() {
                Some(landed) => self.take_landed(landed),
                None => return Turned::Waits(alarm),
            }
        }
        Turned::Unfinished
    }

    fn next_landed(&mut self) -> Option<Landed> {
        let at_once = self.at_once.pop_front();
        at_once.or_else(|| self.wal.landed.lock().pop_front())
    }

    /// Sends all that may be sent now; gives the time of the next object, if time decides.
    fn send_due(&mut self) -> Option<Instant> {
        loop {
            let limits = &self.wal.limits;
            let in_flight_max = limits.puts_in_flight_max.clamp(1, WAL_IN_FLIGHT_MAX);
            if self.in_flight >= in_flight_max || !self.window.has_room() {
                // A PUT that lands wakes the engine.
                return None;
            }
            let now = self.wal.runtime.clock.monotonic();
            let mut queue = self.wal.queue.lock();
            if queue
                .refuses()
                .is_some_and(|_| self.wal.stopped().is_some())
            {
                return None;
            }
            let due = if self.gathers_on(&queue, now) {
                // A PUT that lands wakes the engine, and so does the entry that makes it enough.
                None
            } else {
                self.wal.gathered(queue.small_due(now), now)
            };
            if due.is_some_and(|due| due <= now) {
                let entries = queue.take_small(now);
                drop(queue);
                self.send_group(entries, false, now);
                continue;
            }
            if self.bulk_in_flight >= limits.bulk_in_flight_max.clamp(1, in_flight_max) {
                return due;
            }
            if self.cutting.is_some() {
                drop(queue);
                self.send_fragment(now);
            } else if queue.bulk_ready() {
                let mut entries = queue.take_bulk();
                let fragment_bytes = queue.tuning.fragment_of(entries[0].bytes);
                let cut = entries.len() == 1 && entries[0].bytes > fragment_bytes;
                if cut && let Some(entry) = entries.pop() {
                    queue.set_cutting(Some(entry.id));
                    drop(queue);
                    self.wal.note_queued(&entry, now);
                    self.cutting = Some(Cutting::new(Staged::new(entry), fragment_bytes));
                } else {
                    drop(queue);
                    self.send_group(entries, true, now);
                }
            } else {
                return due;
            }
        }
    }

    /// True if small entries had better wait for more: enough of them are in flight.
    fn gathers_on(&self, queue: &Queue, now: Instant) -> bool {
        let limits = &self.wal.limits;
        let small_in_flight = self.in_flight - self.bulk_in_flight;
        small_in_flight >= limits.gather_from && queue.due_bytes(now) < limits.gather_bytes
    }

    /// Sends one object that holds whole entries.
    fn send_group(&mut self, entries: Vec<Queued>, is_bulk: bool, now: Instant) {
        let number = self.window.next();
        let missing = self.window.missing_before(number);
        entries
            .iter()
            .for_each(|entry| self.wal.note_queued(entry, now));
        let mut staged: Vec<_> = entries.into_iter().map(Staged::new).collect();
        let mut start = 0;
        let mut directory = Vec::with_capacity(staged.len());
        for entry in &mut staged {
            self.needs.settle(entry, number, missing);
            directory.push(whole(entry, start));
            start += entry.bytes;
        }
        let body: Vec<Bytes> = staged.iter().flat_map(Staged::slices).cloned().collect();
        let written_ms = self.wal.runtime.clock.now_ms();
        let decided_below = self.window.decided_below();
        let object = self.wal.encode(
            number,
            decided_below,
            written_ms,
            directory,
            body.into_iter(),
        );
        let mut at = object.body_at;
        for entry in &mut staged {
            entry.fragments.push(Fragment {
                number,
                at,
                len: entry.bytes,
            });
            at += entry.bytes;
        }
        self.send(
            object,
            Object {
                sent: now,
                written_ms,
                is_bulk,
                landed: None,
                entries: staged,
            },
        );
    }

    /// Sends the next fragment of the entry being cut.
    fn send_fragment(&mut self, now: Instant) {
        let Some(mut cutting) = self.cutting.take() else {
            return;
        };
        let number = self.window.next();
        let fragment = cutting.next;
        let (slices, len, crc) = cutting.take();
        let is_last = cutting.is_done();
        if is_last {
            let missing = self.window.missing_before(number);
            self.needs.settle(&mut cutting.entry, number, missing);
        }
        let entry = WalEntry {
            id: cutting.entry.id,
            fragment,
            fragments: cutting.fragments,
            length: cutting.entry.bytes,
            range: 0..len,
            crc,
            deps: cutting.entry.deps,
            parts: if is_last {
                cutting.entry.directory_parts()
            } else {
                Vec::new()
            },
        };
        let written_ms = self.wal.runtime.clock.now_ms();
        let decided_below = self.window.decided_below();
        let object = self.wal.encode(
            number,
            decided_below,
            written_ms,
            vec![entry],
            slices.into_iter(),
        );
        cutting.entry.fragments.push(Fragment {
            number,
            at: object.body_at,
            len,
        });
        let mut entries = Vec::new();
        if is_last {
            if let Some(first) = cutting.first() {
                self.window.note_straddling(first, number);
                self.wal.note_fragmented(first, number);
            }
            self.wal.queue.lock().set_cutting(None);
            entries.push(cutting.entry);
        } else {
            self.cutting = Some(cutting);
        }
        self.send(
            object,
            Object {
                sent: now,
                written_ms,
                is_bulk: true,
                landed: None,
                entries,
            },
        );
    }

    fn send(&mut self, encoded: Encoded, object: Object) {
        let number = self.window.next();
        self.in_flight += 1;
        self.bulk_in_flight += usize::from(object.is_bulk);
        self.window.push(object);
        if let Err(broken) = rule::span_kept(self.window.decided_below(), number) {
            self.broken(broken);
            return;
        }
        self.wal.progress.lock().next = number + 1;
        let done = self.wal.send(number, encoded);
        self.at_once.extend(done);
    }

    /// Commits what this PUT, and others that landed meanwhile, allow.
    fn take_landed(&mut self, first: Landed) {
        let mut next = Some(first);
        let (mut committed, mut last) = (0, None);
        while let Some(landed) = next {
            if !landed.ours {
                let (writer, number) = (self.wal.writer, landed.number);
                tracing::error!(%writer, number, "WAL number was taken by another: fenced");
                self.wal.stop(AppendFailed::Fenced);
                return;
            }
            self.in_flight -= 1;
            let mut ready = std::mem::take(&mut self.ready);
            if let Some(object) = self.window.land(landed.number, landed.at, &mut ready) {
                self.bulk_in_flight -= usize::from(object.is_bulk);
                self.wal.freshness.put_landed(object.sent);
            }
            self.ready = ready;
            committed += self.note_ready(landed.at);
            last = Some(landed.at);
            if !self.commit_ready() {
                return;
            }
            let cutting = self.cutting.as_ref().and_then(Cutting::first);
            if let Err(broken) = self.window.advance(cutting) {
                self.broken(broken);
                return;
            }
            next = self.next_landed();
        }
        if self.window.decided_below() == self.window.next() {
            self.needs.clear();
        }
        *self.wal.progress.lock() = Progress {
            next: self.window.next(),
            decided_below: self.window.decided_below(),
            roll_cut: self.window.roll_cut(),
        };
        self.wal.queue.lock().tuning = Tuning::measured(&self.wal.limits, self.wal.objects.store());
        self.wal.decided.notify_waiters();
        self.wal.settled.notify_waiters();
        self.wake_touched();
        if let Some(last) = last.filter(|_| committed > 0) {
            let took = self.wal.since(last);
            self.wal.stages.commit.observe_many(took, committed);
        }
        self.wal.budget.settle();
    }

    /// Counts how long entries waited for what they depend on; gives how many there are.
    fn note_ready(&self, released: Instant) -> u64 {
        for ready in &self.ready {
            let waited = released.saturating_duration_since(ready.landed);
            self.wal.stages.order.observe(waited);
        }
        self.ready.len() as u64
    }

    /// A broken invariant: nothing more may be acknowledged.
    pub(super) fn broken(&self, broken: tidemill_invariants::Violation) {
        tracing::error!(writer = %self.wal.writer, %broken, "stopping the writer");
        self.wal.stop(AppendFailed::Fenced);
    }

    /// Ends everything: there is no rollback, the whole state goes (R4).
    fn fail_all(&mut self, why: AppendFailed) {
        let queued = self.wal.queue.lock().clear();
        let cutting = self.cutting.take().map(|cutting| cutting.entry);
        let staged = self.window.clear().into_iter().chain(cutting);
        let staged = staged.chain(self.ready.drain(..).map(|ready| ready.entry));
        let outcomes = staged
            .map(|entry| entry.outcome)
            .chain(self.committing.take());
        for outcome in outcomes.chain(queued.into_iter().map(|entry| entry.outcome)) {
            outcome.resolve(Err(why));
        }
        self.wal.pending_bytes.store(0, Ordering::Release);
        self.wal.unsettled.store(0, Ordering::Release);
        let partitions = std::mem::take(&mut *self.wal.partitions.write());
        partitions
            .values()
            .for_each(|partition| partition.stop(why));
        self.wal.decided.notify_waiters();
        self.wal.settled.notify_waiters();
    }
}

/// However the engine ends, a panic included, nobody is left waiting.
impl Drop for Engine {
    fn drop(&mut self) {
        let panicked = std::thread::panicking();
        let why = if panicked {
            AppendFailed::Fenced
        } else {
            AppendFailed::Closed
        };
        self.wal.stop(why);
        let why = self.wal.stopped().unwrap_or(why);
        self.fail_all(why);
    }
}

/// The engine in its place among what is shared, from which it goes when its task ends.
struct Seated(Arc<Wal>);

impl Seated {
    fn new(engine: Engine) -> Self {
        let wal = engine.wal.clone();
        *wal.engine.lock() = Some(Box::new(engine));
        Self(wal)
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        let engine = self.0.engine.lock().take();
        // Fails what waits: not under the lock.
        drop(engine);
    }
}

/// `None` if the engine has ended. It is out of its place meanwhile, so that a panic ends it,
/// whoever's turn it was.
fn turn(place: &mut Option<Box<Engine>>) -> Option<Turned> {
    let mut engine = place.take()?;
    let turned = engine.turn();
    *place = Some(engine);
    Some(turned)
}

async fn until(wal: &Wal, alarm: Option<Instant>) {
    match alarm {
        Some(alarm) => wal.runtime.clock.sleep_until(alarm).await,
        None => std::future::pending().await,
    }
}

impl Wal {
    /// The turn of somebody who has appended, and who holds no lock. A directory without syncs has
    /// then committed the entry before he asks for it; the engine's task would have to be woken,
    /// and to wake him and the readers, for which Tokio wakes another thread each time.
    pub(super) fn turn_of_appender(&self) {
        if self.objects.store().is_local()
            && let Some(mut place) = self.engine.try_lock()
            && turn(&mut place) == Some(Turned::Waits(None))
        {
            return;
        }
        self.pushed.notify_one();
    }

    /// When small entries that are `due` may leave, while a request still adds to them.
    fn gathered(&self, due: Option<Instant>, now: Instant) -> Option<Instant> {
        let is_gathering = self.gathering.load(Ordering::Acquire) > 0;
        let grace = if is_gathering {
            GATHER_MAX
        } else {
            Duration::ZERO
        };
        due.map(|due| if due + grace > now { due + grace } else { due })
    }

    fn since(&self, then: Instant) -> Duration {
        let now = self.runtime.clock.monotonic();
        now.saturating_duration_since(then)
    }

    fn note_queued(&self, entry: &Queued, now: Instant) {
        let waited = now.saturating_duration_since(entry.appended);
        self.stages.queue.observe(waited);
    }
}
