//! Reads of the store on behalf of Fetch requests, which they may outlive (K12).
//!
//! A request waits no longer than it said, however slow the store is. What it asked for goes on
//! being read: a request that comes for the same joins the read, or finds what came of it
//! meanwhile. So a client whose patience is shorter than a read gets its data all the same, whether
//! or not the caches have room for it, and asking again and again costs the store nothing.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt;
use parking_lot::Mutex;
use tidemill_log::{
    Partition,
    read::{Isolation, ReadRequest, ReadResult},
};
use tidemill_runtime::Runtime;
use tidemill_wire::{
    ErrorCode, Slice,
    ids::{Offset, PartitionId},
};
use tokio::sync::watch;

use super::source::read;

/// How long what nobody waited for is kept: clients that got nothing ask again at once.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// Bytes kept so, but for what was read last. Most are the block cache's own.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// What came of a read.
pub(crate) type Outcome = Result<ReadResult<Slice>, ErrorCode>;

/// A read under way.
pub(crate) struct Pending(watch::Receiver<Option<Outcome>>);

impl Pending {
    /// Waits for its end. It goes on if nobody does.
    pub async fn end(mut self) -> Outcome {
        match self.0.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(outcome)) => outcome.clone(),
            // Its task has panicked.
            _ => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
        }
    }
}

/// A read as a request finds it.
pub(crate) enum Found {
    /// It has ended, or needed no store.
    Ended(Outcome),
    /// It is under way.
    Pending(Pending),
}

/// Where a read begins, and up to where it may see.
type Place = (PartitionId, Offset, Isolation);

struct Entry {
    number: u64,
    want: ReadRequest,
    outcome: watch::Receiver<Option<Outcome>>,
}

impl Entry {
    /// Whether all that it brings is within what is wanted.
    const fn fits(&self, want: &ReadRequest) -> bool {
        let own = &self.want;
        own.max_bytes <= want.max_bytes && (want.at_least_one || !own.at_least_one)
    }
}

#[derive(Default)]
struct Inner {
    entries: HashMap<Place, Entry>,
    next: u64,
    /// Ended and not yet asked for, by number, with their bytes.
    kept: BTreeMap<u64, (Place, usize)>,
    kept_bytes: usize,
}

impl Inner {
    /// Removes a read, unless another has taken its place.
    fn remove(&mut self, place: Place, number: u64) {
        if let Some((_, bytes)) = self.kept.remove(&number) {
            self.kept_bytes -= bytes;
        }
        if self
            .entries
            .get(&place)
            .is_some_and(|entry| entry.number == number)
        {
            self.entries.remove(&place);
        }
    }

    fn keep(&mut self, place: Place, number: u64, bytes: usize) {
        while self.kept_bytes + bytes > KEPT_BYTES_MAX {
            let Some((oldest, (place, _))) = self.kept.first_key_value() else {
                break;
            };
            let (oldest, place) = (*oldest, *place);
            self.remove(place, oldest);
        }
        self.kept.insert(number, (place, bytes));
        self.kept_bytes += bytes;
    }
}

/// All reads of the store for Fetch requests.
pub(crate) struct ColdReads {
    runtime: Runtime,
    inner: Mutex<Inner>,
}

impl ColdReads {
    /// None yet.
    pub fn new(runtime: Runtime) -> Arc<Self> {
        Arc::new(Self {
            runtime,
            inner: Mutex::default(),
        })
    }

    /// Joins the read that others began, takes what they left behind, or begins one.
    pub fn join(self: &Arc<Self>, partition: &Arc<Partition>, want: ReadRequest) -> Found {
        let place = (partition.id(), want.offset, want.isolation);
        if let Some(found) = self.find(place, &want) {
            return found;
        }
        let mut read = Box::pin(read(Arc::clone(partition), want));
        // What the caches hold is had without a task, so even by who has no time left.
        if let Some(outcome) = (&mut read).now_or_never() {
            return Found::Ended(outcome);
        }
        let (sender, outcome) = watch::channel(None);
        let number = {
            let mut inner = self.inner.lock();
            inner.next += 1;
            let number = inner.next;
            let outcome = outcome.clone();
            let entry = Entry {
                number,
                want,
                outcome,
            };
            if let Some(before) = inner.entries.insert(place, entry) {
                inner.remove(place, before.number);
            }
            number
        };
        let reads = Arc::clone(self);
        let task = async move {
            let outcome = read.await;
            if reads.ended(place, number, &sender, outcome) {
                reads.runtime.clock.sleep(KEPT_FOR).await;
                reads.inner.lock().remove(place, number);
            }
        };
        self.runtime.tasks.spawn("cold read", task);
        Found::Pending(Pending(outcome))
    }

    fn find(&self, place: Place, want: &ReadRequest) -> Option<Found> {
        let mut inner = self.inner.lock();
        let entry = inner.entries.get(&place).filter(|entry| entry.fits(want))?;
        let (number, outcome) = (entry.number, entry.outcome.clone());
        let ended = outcome.borrow().clone();
        if ended.is_some() || outcome.has_changed().is_err() {
            inner.remove(place, number);
        }
        Some(match ended {
            Some(outcome) => Found::Ended(outcome),
            None => Found::Pending(Pending(outcome)),
        })
    }

    /// Tells what came of a read; true if it is kept, as nobody waits for it.
    fn ended(
        &self,
        place: Place,
        number: u64,
        sender: &watch::Sender<Option<Outcome>>,
        outcome: Outcome,
    ) -> bool {
        let bytes = outcome.as_ref().map_or(0, |got| got.size);
        let mut inner = self.inner.lock();
        let entry = inner.entries.get(&place);
        let is_known = entry.is_some_and(|entry| entry.number == number);
        // The entry's own receiver is one.
        let is_left = is_known && sender.receiver_count() == 1;
        sender.send_replace(Some(outcome));
        match is_left {
            true => inner.keep(place, number, bytes),
            false => inner.remove(place, number),
        }
        is_left
    }
}
