//! Entries on their way from the queue into objects.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use tidemill_invariants::wal as rule;
use tidemill_wire::{
    batch::{BatchHeader, Pieces, crc},
    ids::{LeaderEpoch, Offset, PartitionId},
};

use super::{
    queue::{Queued, QueuedBody},
    ticket::Pending,
};
use crate::{
    format::wal::{WalPart, WalPartBody},
    partition::Partition,
    types::BatchSlices,
};

/// What a part does, with all it needs to be stored and committed.
#[derive(Debug)]
pub(super) enum StagedBody {
    Records {
        header: BatchHeader,
        data: BatchSlices,
        /// Where it starts within the entry.
        start: u64,
        crc: u32,
        pieces: Pieces,
    },
    LogStart {
        epoch: LeaderEpoch,
        offset: Offset,
    },
}

#[derive(Debug)]
pub(super) struct StagedPart {
    pub partition: Arc<Partition>,
    pub body: StagedBody,
}

/// Where bytes of an entry lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    pub number: u64,
    /// Start within the object, header and directory included.
    pub at: u64,
    pub len: u64,
}

#[derive(Debug)]
pub(super) struct Staged {
    pub id: u64,
    pub parts: Vec<StagedPart>,
    pub bytes: u64,
    /// CRC32C of all its bytes.
    pub crc: u32,
    pub outcome: Arc<Pending>,
    pub deps: u128,
    pub fragments: Vec<Fragment>,
}

impl Staged {
    /// Gives each batch its header; checksums follow from those the batches came with.
    pub fn new(queued: Queued) -> Self {
        let mut start = 0;
        let mut entry_crc = 0;
        let stage = |part: super::queue::QueuedPart| {
            let body = match part.body {
                QueuedBody::Records { batch, base } => {
                    let header = batch.at(base, part.epoch);
                    let head = Bytes::copy_from_slice(&header.encode());
                    let data = BatchSlices {
                        head,
                        rest: batch.records(),
                    };
                    let (crc, len) = (header.stored_crc(), data.len() as u64);
                    let body = StagedBody::Records {
                        header,
                        data,
                        start,
                        crc,
                        pieces: batch.pieces,
                    };
                    start += len;
                    entry_crc = crc::combine(entry_crc, crc, len);
                    body
                }
                QueuedBody::LogStart(offset) => StagedBody::LogStart {
                    epoch: part.epoch,
                    offset,
                },
            };
            StagedPart {
                partition: part.partition,
                body,
            }
        };
        let parts = queued.parts.into_iter().map(stage).collect();
        Self {
            id: queued.id,
            parts,
            bytes: start,
            crc: entry_crc,
            outcome: queued.outcome,
            deps: 0,
            fragments: Vec::new(),
        }
    }

    /// Its bytes, in order.
    pub fn slices(&self) -> impl Iterator<Item = &Bytes> {
        self.parts
            .iter()
            .flat_map(|part| match &part.body {
                StagedBody::Records { data, .. } => [Some(&data.head), Some(&data.rest)],
                StagedBody::LogStart { .. } => [None, None],
            })
            .flatten()
    }

    /// Its bytes, with what is known of their checksums.
    fn uncut(&self) -> impl Iterator<Item = Uncut> {
        let uncut = |bytes: &Bytes, pieces| Uncut {
            bytes: bytes.clone(),
            start: 0,
            pieces,
        };
        self.parts
            .iter()
            .flat_map(move |part| match &part.body {
                StagedBody::Records { data, pieces, .. } => [
                    Some(uncut(&data.head, Pieces::default())),
                    Some(uncut(&data.rest, pieces.clone())),
                ],
                StagedBody::LogStart { .. } => [None, None],
            })
            .flatten()
    }

    /// Its parts as the directory has them.
    pub fn directory_parts(&self) -> Vec<WalPart> {
        let part = |part: &StagedPart| WalPart {
            partition: part.partition.id(),
            body: match &part.body {
                StagedBody::Records { header, start, .. } => WalPartBody::Records {
                    header: *header,
                    start: *start,
                },
                StagedBody::LogStart { epoch, offset } => WalPartBody::LogStart {
                    epoch: *epoch,
                    offset: *offset,
                },
            },
        };
        self.parts.iter().map(part).collect()
    }
}

/// Per partition, the object its newest entry ends in and what that depends on.
#[derive(Debug, Default)]
pub(super) struct Needs(HashMap<PartitionId, (u64, u128)>);

impl Needs {
    /// Settles the dependencies of an entry whose last bytes go into object `number`: all earlier
    /// entries of its partitions, its own fragments, and what those depend on, as far as it is
    /// `missing`, that is undecided now.
    pub fn settle(&mut self, entry: &mut Staged, number: u64, missing: u128) {
        let mut deps = 0;
        for fragment in entry
            .fragments
            .iter()
            .filter(|fragment| fragment.number < number)
        {
            deps |= rule::inherit(0, number - fragment.number);
        }
        for part in &entry.parts {
            if let Some((last, needs)) = self.0.get(&part.partition.id()) {
                deps |= rule::inherit(*needs, number - last);
            }
        }
        entry.deps = deps & missing;
        for part in &entry.parts {
            self.0.insert(part.partition.id(), (number, entry.deps));
        }
    }

    /// Forgets everything: all numbers are decided.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Bytes of an entry that no fragment has taken yet.
#[derive(Debug)]
struct Uncut {
    bytes: Bytes,
    /// Where they start within the records that the pieces are of.
    start: usize,
    pieces: Pieces,
}

impl Uncut {
    /// Takes `len` bytes, or all if there are fewer; with their checksum.
    fn take(&mut self, len: usize) -> (Bytes, u32) {
        let part = self.bytes.split_to(len.min(self.bytes.len()));
        let crc = self.pieces.crc(&part, self.start);
        self.start += part.len();
        (part, crc)
    }
}

/// An entry that is being cut into fragments.
#[derive(Debug)]
pub(super) struct Cutting {
    pub entry: Staged,
    pub fragments: u16,
    pub next: u16,
    fragment_len: usize,
    rest: VecDeque<Uncut>,
}

impl Cutting {
    /// Cuts into equal pieces of at most `target` bytes.
    pub fn new(entry: Staged, target: usize) -> Self {
        let len = usize::try_from(entry.bytes).unwrap_or(usize::MAX);
        let pieces = len.div_ceil(target.max(1)).clamp(1, usize::from(u16::MAX));
        let fragment_len = len.div_ceil(pieces).max(1);
        let pieces = len.div_ceil(fragment_len).max(1);
        let rest = entry.uncut().collect();
        let fragments = u16::try_from(pieces).unwrap_or(u16::MAX);
        Self {
            entry,
            fragments,
            next: 0,
            fragment_len,
            rest,
        }
    }

    /// The number of the first fragment's object, once it is sent.
    pub fn first(&self) -> Option<u64> {
        self.entry.fragments.first().map(|fragment| fragment.number)
    }

    /// The slices of the next fragment, their length and checksum.
    pub fn take(&mut self) -> (Vec<Bytes>, u64, u32) {
        let mut slices = Vec::new();
        let (mut len, mut crc) = (0, 0);
        while len < self.fragment_len
            && let Some(uncut) = self.rest.front_mut()
        {
            let (slice, of_slice) = uncut.take(self.fragment_len - len);
            if uncut.bytes.is_empty() {
                self.rest.pop_front();
            }
            len += slice.len();
            crc = crc::combine(crc, of_slice, slice.len() as u64);
            slices.push(slice);
        }
        self.next += 1;
        (slices, len as u64, crc)
    }

    pub fn is_done(&self) -> bool {
        self.next == self.fragments
    }
}
