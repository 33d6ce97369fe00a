//! Replay of a sealed writer's WAL on top of its checkpoints.
//!
//! Decides by the closing checkpoint's bitmap, never by what it finds, so that every replay gives
//! one result. Reads headers and directories only; the data stays where it is until it is read.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tidemill_invariants::{Violation, log as log_rule, wal as rule};
use tidemill_store::{NumberedLog, Store, StoreError, envelope::EnvelopeError};
use tidemill_wire::{
    batch::BatchHeader,
    ids::{Offset, PartitionId, WriterId},
};

use super::RecoveredPartition;
use crate::{
    format::{
        checkpoint::ClosingCheckpoint,
        wal::{WalDirectory, WalEntry, WalPartBody},
    },
    keys,
    partition::producers::{Epochs, Producers},
    types::{TailBatch, WalPosition, WalSpan},
};

/// Directories read at once.
const READS_AT_ONCE: usize = 32;
/// First bytes asked for, where a request is cheap; most directories fit.
const PREFIX_BYTES_LOCAL: u64 = 16 << 10;
/// The same where a request costs a round trip.
const PREFIX_BYTES_REMOTE: u64 = 64 << 10;
/// A damaged answer is asked for again, so many times in all.
const READ_TRIES: u32 = 3;

/// A WAL nothing can be added to any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedWal {
    /// Whose it is.
    pub writer: WriterId,
    /// `replay_from` of the newest checkpoint below the closing one: lower numbers are in it.
    pub replay_from: u64,
    /// What landed.
    pub closing: ClosingCheckpoint,
}

impl SealedWal {
    /// True if a replay counts `number` as landed.
    #[must_use]
    pub fn landed(&self, number: u64) -> bool {
        number < self.replay_from || self.closing.landed(number)
    }

    /// The landed numbers that a replay reads.
    fn numbers(&self) -> impl Iterator<Item = u64> {
        let end = self.closing.last.map_or(0, |last| last + 1);
        (self.replay_from..end).filter(|number| self.closing.landed(*number))
    }
}

/// What a replay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayStats {
    /// Objects read.
    pub objects: u64,
    /// Bytes of these objects.
    pub bytes: u64,
    /// Entries applied.
    pub applied: u64,
    /// Entries that depend on what never landed: nobody was told of them.
    pub dropped: u64,
}

/// Why a WAL cannot be replayed.
#[derive(Debug)]
pub enum ReplayError {
    /// The store did not answer.
    Store(StoreError),
    /// A landed object is gone: the reader has been superseded; for the present leader it is loss.
    Missing {
        /// Its key.
        key: String,
    },
    /// An object is damaged or of a newer broker.
    Object {
        /// Its key.
        key: String,
        /// What is wrong.
        error: EnvelopeError,
    },
    /// Its contents contradict what went before.
    Broken {
        /// Its key.
        key: String,
        /// What is wrong.
        violation: Violation,
    },
}

impl std::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Missing { key } => write!(f, "`{key}` is gone although it landed"),
            Self::Object { key, error } => write!(f, "`{key}`: {error}"),
            Self::Broken { key, violation } => write!(f, "`{key}`: {violation}"),
        }
    }
}

impl std::error::Error for ReplayError {}

impl From<StoreError> for ReplayError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A directory and where the object's body begins.
struct Read {
    number: u64,
    directory: WalDirectory,
    body_at: u64,
    object_len: u64,
}

/// Replays `wal` onto `partitions`, which hold the state of its newest checkpoint, or of the writer
/// before it where that does not hold the partition. Entries of other partitions are passed over.
///
/// # Errors
/// [`ReplayError`]; `partitions` must not be used then.
pub async fn replay(
    store: &Store,
    cluster_id: [u8; 16],
    wal: &SealedWal,
    partitions: &mut BTreeMap<PartitionId, RecoveredPartition>,
) -> Result<ReplayStats, ReplayError> {
    let objects = NumberedLog::new(store.clone(), keys::wal_prefix(wal.writer));
    let first = wal.numbers().next().unwrap_or(0);
    // The sizes spare asking for more than there is. What a listing misses is read all the same.
    let sizes: BTreeMap<u64, u64> = match wal.numbers().next() {
        Some(_) => objects.list_from(first).await?.into_iter().collect(),
        None => BTreeMap::new(),
    };
    let mut state = Replay::new(wal, partitions);
    let reads = stream::iter(wal.numbers()).map(|number| {
        let size = sizes.get(&number).copied();
        read(&objects, cluster_id, wal.writer, number, size)
    });
    let mut reads = std::pin::pin!(reads.buffered(READS_AT_ONCE));
    let mut stats = ReplayStats::default();
    while let Some(read) = reads.next().await {
        let read = read?;
        stats.objects += 1;
        stats.bytes += read.object_len;
        let number = read.number;
        state.object(read, &mut stats).map_err(|violation| {
            let key = objects.key(number);
            ReplayError::Broken { key, violation }
        })?;
    }
    state.finish(partitions);
    Ok(stats)
}

async fn read(
    objects: &NumberedLog,
    cluster_id: [u8; 16],
    writer: WriterId,
    number: u64,
    size: Option<u64>,
) -> Result<Read, ReplayError> {
    let is_local = objects.store().is_local();
    let prefix = if is_local {
        PREFIX_BYTES_LOCAL
    } else {
        PREFIX_BYTES_REMOTE
    };
    let mut wanted = size.map_or(prefix, |size| size.min(prefix));
    let mut tries = 0;
    loop {
        let bytes = objects.read_prefix(number, wanted).await?;
        let missing = || ReplayError::Missing {
            key: objects.key(number),
        };
        let bytes = bytes.ok_or_else(missing)?;
        match decode(&bytes, cluster_id, writer, number) {
            Ok(read) => return Ok(read),
            Err(EnvelopeError::Truncated { needed, found })
                if needed > found && wanted < needed =>
            {
                wanted = needed;
            }
            // A late copy of a marker in a number that was trimmed.
            Err(EnvelopeError::WrongKind { .. }) => return Err(missing()),
            Err(error) => {
                tries += 1;
                if tries == READ_TRIES || matches!(error, EnvelopeError::TooNew { .. }) {
                    let key = objects.key(number);
                    return Err(ReplayError::Object { key, error });
                }
            }
        }
    }
}

fn decode(
    bytes: &Bytes,
    cluster_id: [u8; 16],
    writer: WriterId,
    number: u64,
) -> Result<Read, EnvelopeError> {
    let (envelope, directory, body_at) = WalDirectory::decode_object(bytes)?;
    let is_right = envelope.cluster_id == cluster_id
        && envelope.writer == writer.0
        && directory.number == number;
    if !is_right {
        let what = "WAL object of another cluster, writer or number".to_owned();
        return Err(EnvelopeError::Malformed { what });
    }
    let body_len = directory.entries.last().map_or(0, |last| last.range.end);
    Ok(Read {
        number,
        directory,
        body_at,
        object_len: body_at + body_len,
    })
}

/// A partition while it is rebuilt.
#[derive(Debug)]
struct Rebuilt {
    next: Offset,
    log_start: Offset,
    epochs: Epochs,
    producers: Producers,
    /// Batches from here on are in no extent.
    tail_from: Offset,
    tail: Vec<TailBatch>,
}

#[derive(Debug)]
struct Replay<'a> {
    wal: &'a SealedWal,
    partitions: BTreeMap<PartitionId, Rebuilt>,
    /// Fragments whose last one has not been met yet, by entry.
    fragments: BTreeMap<u64, Vec<(WalSpan, u16)>>,
}

impl<'a> Replay<'a> {
    fn new(wal: &'a SealedWal, partitions: &mut BTreeMap<PartitionId, RecoveredPartition>) -> Self {
        let rebuilt = partitions.iter_mut().map(|(id, recovered)| {
            let tail = std::mem::take(&mut recovered.tail);
            let above_tail = tail.last().map(|batch| batch.last_offset.plus(1));
            let rebuilt = Rebuilt {
                next: recovered.head.next_offset,
                log_start: recovered.head.log_start,
                epochs: Epochs(std::mem::take(&mut recovered.head.epoch_starts)),
                producers: Producers::restored(std::mem::take(&mut recovered.head.producers)),
                tail_from: above_tail.unwrap_or_else(|| recovered.extents.end_offset()),
                tail,
            };
            (*id, rebuilt)
        });
        Self {
            wal,
            partitions: rebuilt.collect(),
            fragments: BTreeMap::new(),
        }
    }

    fn object(&mut self, read: Read, stats: &mut ReplayStats) -> Result<(), Violation> {
        let missing = rule::missing_before(read.number, |number| self.wal.landed(number));
        let written_ms = read.directory.written_ms;
        for entry in read.directory.entries {
            let position = WalPosition {
                writer: self.wal.writer,
                number: read.number,
            };
            let at = read.body_at;
            let range = at + entry.range.start..at + entry.range.end;
            let fragments = self.fragments.entry(entry.id).or_default();
            fragments.push((WalSpan { position, range }, entry.fragment));
            if !entry.is_last() {
                continue;
            }
            let fragments = self.fragments.remove(&entry.id).unwrap_or_default();
            if !rule::applies(true, entry.deps, missing) {
                stats.dropped += 1;
                continue;
            }
            stats.applied += 1;
            let spans = whole(&entry, fragments)?;
            self.apply(&entry, &spans, written_ms)?;
        }
        Ok(())
    }

    fn apply(
        &mut self,
        entry: &WalEntry,
        spans: &[WalSpan],
        written_ms: i64,
    ) -> Result<(), Violation> {
        for part in &entry.parts {
            let Some(partition) = self.partitions.get_mut(&part.partition) else {
                continue;
            };
            match &part.body {
                WalPartBody::LogStart { offset, .. } => {
                    partition.log_start = partition.log_start.max(*offset);
                }
                WalPartBody::Records { header, start } => {
                    let end = start + header.size_bytes() as u64;
                    partition.records(header, written_ms, || cut(spans, *start, end))?;
                }
            }
        }
        Ok(())
    }

    fn finish(self, partitions: &mut BTreeMap<PartitionId, RecoveredPartition>) {
        for (id, mut rebuilt) in self.partitions {
            let Some(recovered) = partitions.get_mut(&id) else {
                continue;
            };
            rebuilt.epochs.trim(rebuilt.log_start);
            let log_start = rebuilt.log_start;
            rebuilt.tail.retain(|batch| batch.last_offset >= log_start);
            recovered.head.next_offset = rebuilt.next;
            recovered.head.log_start = log_start;
            recovered.head.epoch_starts = rebuilt.epochs.0;
            recovered.head.producers = rebuilt.producers.snapshot();
            recovered.tail = rebuilt.tail;
        }
    }
}

impl Rebuilt {
    fn records(
        &mut self,
        header: &BatchHeader,
        written_ms: i64,
        spans: impl FnOnce() -> Vec<WalSpan>,
    ) -> Result<(), Violation> {
        let (base, last) = (header.base_offset, header.last_offset());
        // A checkpoint's head may be newer than the data it lists: effects are skipped, data is
        // not.
        if base >= self.next {
            log_rule::offsets_are_dense(self.next.0, base.0, last.0)?;
            self.next = header.next_offset();
            self.epochs.note(header.partition_leader_epoch, base);
            if header.has_producer() {
                self.producers.apply(header, written_ms);
            }
        }
        if base >= self.tail_from {
            self.tail.push(TailBatch {
                base_offset: base,
                last_offset: last,
                leader_epoch: header.partition_leader_epoch,
                max_timestamp: header.max_timestamp,
                size_bytes: u32::try_from(header.size_bytes()).unwrap_or(u32::MAX),
                crc: header.stored_crc(),
                attributes: header.attributes.0,
                producer_id: header.producer_id,
                committed_ms: written_ms,
                spans: spans(),
                data: None,
            });
            self.tail_from = header.next_offset();
        }
        Ok(())
    }
}

/// Checks that all fragments are there, in order.
fn whole(entry: &WalEntry, fragments: Vec<(WalSpan, u16)>) -> Result<Vec<WalSpan>, Violation> {
    let in_order = fragments
        .iter()
        .map(|(_, index)| *index)
        .eq(0..entry.fragments);
    let bytes: u64 = fragments
        .iter()
        .map(|(span, _)| span.range.end - span.range.start)
        .sum();
    if in_order && bytes == entry.length {
        Ok(fragments.into_iter().map(|(span, _)| span).collect())
    } else {
        Err(Violation {
            invariant: "I18",
            what: "a committed entry lacks fragments",
        })
    }
}

/// Bytes `start` to `end` of an entry that lies in `spans`.
fn cut(spans: &[WalSpan], start: u64, end: u64) -> Vec<WalSpan> {
    let mut out = Vec::with_capacity(1);
    let mut at = 0;
    for span in spans {
        let len = span.range.end - span.range.start;
        let (from, to) = (start.max(at), end.min(at + len));
        if from < to {
            let begin = span.range.start + from - at;
            out.push(WalSpan {
                position: span.position,
                range: begin..begin + (to - from),
            });
        }
        at += len;
    }
    out
}
