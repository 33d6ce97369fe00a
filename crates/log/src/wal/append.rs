//! Appending: validation and assignment under the partitions' locks, into the queue under the same.

use std::sync::{Arc, atomic::Ordering};

use parking_lot::MutexGuard;
use tidemill_wire::batch::{TimestampType, ValidBatch};

use super::{
    Wal,
    queue::{Queued, QueuedBody, QueuedPart},
    ticket::{CommitTicket, Committed, Pending},
};
use crate::{
    entry::{Appended, Entry, Part, PartBody},
    error::{AppendError, AppendFailed},
    limits::Latency,
    log::Log,
    partition::{Partition, State, producers::Verdict},
};

/// Kafka's "no append time".
const NO_APPEND_TIME: i64 = -1;

struct Target<'a> {
    partition: &'a Arc<Partition>,
    state: MutexGuard<'a, State>,
    body: PartBody,
    /// Position in the caller's entry.
    position: usize,
}

impl From<AppendFailed> for AppendError {
    fn from(why: AppendFailed) -> Self {
        match why {
            AppendFailed::Fenced => Self::Fenced,
            AppendFailed::Closed => Self::Closed,
        }
    }
}

pub(crate) fn append(log: &Log, entry: Entry) -> Result<Vec<Appended>, AppendError> {
    let wal = log.wal();
    if let Some(why) = wal.stopped() {
        return Err(why.into());
    }
    let bytes = entry.size_bytes();
    let limit = wal.limits.entry_bytes_max as u64;
    if bytes > limit {
        return Err(AppendError::TooLarge { bytes, limit });
    }
    let partitions = resolve(log, &entry.parts)?;
    let mut targets = lock(&partitions, entry.parts)?;
    let oldest_ms = wal.oldest_producer_ms();
    let mut repeated = Vec::new();
    for target in &targets {
        repeated.extend(judge(target, oldest_ms)?);
    }
    if !repeated.is_empty() {
        // An atomic entry is repeated as a whole or not at all.
        return match &targets[..] {
            [_] => Ok(repeated),
            [first, ..] => Err(AppendError::Conflict(first.partition.id())),
            [] => Err(AppendError::Empty),
        };
    }
    wal.take(&mut targets, bytes, entry.latency)
}

/// The partitions of the parts, in the order of locking.
fn resolve(log: &Log, parts: &[Part]) -> Result<Vec<(usize, Arc<Partition>)>, AppendError> {
    if parts.is_empty() {
        return Err(AppendError::Empty);
    }
    let mut partitions = Vec::with_capacity(parts.len());
    for (position, part) in parts.iter().enumerate() {
        let id = part.partition;
        let partition = log.partition(id).ok_or(AppendError::UnknownPartition(id))?;
        partitions.push((position, partition));
    }
    partitions.sort_by_key(|(_, partition)| partition.id());
    let twice = partitions
        .windows(2)
        .find(|pair| pair[0].1.id() == pair[1].1.id());
    match twice {
        Some(pair) => Err(AppendError::Conflict(pair[0].1.id())),
        None => Ok(partitions),
    }
}

fn lock(
    partitions: &[(usize, Arc<Partition>)],
    parts: Vec<Part>,
) -> Result<Vec<Target<'_>>, AppendError> {
    let mut parts: Vec<Option<Part>> = parts.into_iter().map(Some).collect();
    let mut targets = Vec::with_capacity(partitions.len());
    for (position, partition) in partitions {
        let state = partition.lock();
        let id = partition.id();
        match state.stopped {
            Some(AppendFailed::Fenced) => return Err(AppendError::Fenced),
            Some(AppendFailed::Closed) => return Err(AppendError::UnknownPartition(id)),
            None => {}
        }
        let Some(part) = parts.get_mut(*position).and_then(Option::take) else {
            return Err(AppendError::Conflict(id));
        };
        let current = state.leader_epoch;
        if part.leader_epoch.is_some_and(|epoch| epoch != current) {
            return Err(AppendError::WrongEpoch {
                partition: id,
                current,
            });
        }
        targets.push(Target {
            partition,
            state,
            body: part.body,
            position: *position,
        });
    }
    Ok(targets)
}

/// Checks a part; gives its outcome if it is a repetition.
fn judge(target: &Target<'_>, oldest_ms: i64) -> Result<Option<Appended>, AppendError> {
    let (partition, state) = (target.partition.id(), &target.state);
    let batch = match &target.body {
        PartBody::Records(batch) => batch,
        PartBody::LogStart(offset) if *offset > state.high_watermark => {
            let high_watermark = state.high_watermark;
            return Err(AppendError::OffsetOutOfRange {
                partition,
                offset: *offset,
                high_watermark,
            });
        }
        PartBody::LogStart(offset) if *offset <= state.log_start => {
            return Ok(Some(Appended::DuplicateCommitted(Committed {
                base_offset: *offset,
                last_offset: *offset,
                log_start: state.log_start,
                log_append_time: NO_APPEND_TIME,
            })));
        }
        PartBody::LogStart(_) => return Ok(None),
    };
    let header = &batch.header;
    if header.record_count <= 0 || header.last_offset_delta < 0 {
        return Err(AppendError::Empty);
    }
    if !header.has_producer() || header.attributes.is_control() {
        return Ok(None);
    }
    let producer_id = header.producer_id;
    match state.producers.judge(header, oldest_ms) {
        Verdict::New => Ok(None),
        Verdict::DuplicatePending(twin, pending) => {
            let partition = target.partition.clone();
            Ok(Some(Appended::DuplicatePending(CommitTicket {
                pending,
                partition,
                base_offset: twin.base_offset,
                last_offset: twin.last_offset,
                log_append_time: append_time(batch, twin.timestamp),
            })))
        }
        Verdict::DuplicateCommitted(twin) => Ok(Some(Appended::DuplicateCommitted(Committed {
            base_offset: twin.base_offset,
            last_offset: twin.last_offset,
            log_start: state.log_start,
            log_append_time: append_time(batch, twin.timestamp),
        }))),
        Verdict::OutOfOrder { expected } => {
            let found = header.base_sequence;
            Err(AppendError::OutOfOrderSequence {
                partition,
                producer_id,
                expected,
                found,
            })
        }
        Verdict::StaleEpoch { current } => {
            let found = header.producer_epoch;
            Err(AppendError::InvalidProducerEpoch {
                partition,
                producer_id,
                current,
                found,
            })
        }
    }
}

fn append_time(batch: &ValidBatch, timestamp: i64) -> i64 {
    match batch.header.attributes.timestamp_type() {
        TimestampType::CreateTime => NO_APPEND_TIME,
        TimestampType::LogAppendTime => timestamp,
    }
}

impl Wal {
    fn oldest_producer_ms(&self) -> i64 {
        let age = i64::try_from(self.limits.producer_expiration.as_millis()).unwrap_or(i64::MAX);
        self.runtime.clock.now_ms().saturating_sub(age)
    }

    /// Assigns offsets and queues the entry; the partitions stay locked, so that the order of the
    /// WAL is the order of offsets.
    fn take(
        &self,
        targets: &mut [Target<'_>],
        bytes: u64,
        latency: Latency,
    ) -> Result<Vec<Appended>, AppendError> {
        let now = self.runtime.clock.monotonic();
        let outcome = Arc::new(Pending::default());
        let mut queue = self.queue.lock();
        if let Some(why) = queue.refuses() {
            return Err(why.into());
        }
        let id = queue.next_id();
        let mut parts = Vec::with_capacity(targets.len());
        let mut appended = Vec::with_capacity(targets.len());
        for target in &mut *targets {
            let (part, ticket) = assign(target, &outcome);
            parts.push(part);
            appended.push((target.position, Appended::New(ticket)));
        }
        let bytes_len = usize::try_from(bytes).unwrap_or(usize::MAX);
        let states = targets.iter_mut().map(|target| &mut *target.state);
        let entry = Queued::new(id, parts, bytes_len, outcome, now);
        self.pending_bytes.fetch_add(bytes, Ordering::AcqRel);
        self.unsettled.fetch_add(1, Ordering::AcqRel);
        let due = queue.push(entry, states, (latency, now), &self.limits);
        drop(queue);
        // The end of gathering wakes the engine as well.
        if due && self.gathering.load(Ordering::Acquire) == 0 {
            self.pushed.notify_one();
        }
        appended.sort_by_key(|(position, _)| *position);
        Ok(appended.into_iter().map(|(_, ticket)| ticket).collect())
    }
}

fn assign(target: &mut Target<'_>, outcome: &Arc<Pending>) -> (QueuedPart, CommitTicket) {
    let partition = target.partition.clone();
    let state = &mut *target.state;
    let epoch = state.leader_epoch;
    let (body, base, last, log_append_time) = match &target.body {
        PartBody::Records(batch) => {
            let base = state.log_end;
            let header = batch.at(base, epoch);
            if header.has_producer() && !header.attributes.is_control() {
                state.producers.push_pending(&header, outcome.clone());
            }
            state.log_end = header.next_offset();
            let time = append_time(batch, header.max_timestamp);
            let batch = batch.clone();
            (
                QueuedBody::Records { batch, base },
                base,
                header.last_offset(),
                time,
            )
        }
        PartBody::LogStart(offset) => (
            QueuedBody::LogStart(*offset),
            *offset,
            *offset,
            NO_APPEND_TIME,
        ),
    };
    let ticket = CommitTicket {
        pending: outcome.clone(),
        partition: partition.clone(),
        base_offset: base,
        last_offset: last,
        log_append_time,
    };
    (
        QueuedPart {
            partition,
            epoch,
            body,
        },
        ticket,
    )
}
