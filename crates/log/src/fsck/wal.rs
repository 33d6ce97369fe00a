//! The WAL above the checkpoints: no hole, every directory readable, every entry intact.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidemill_store::{Envelope, NumberedLog, ObjectKind, StoreError, envelope::EnvelopeError};
use tidemill_wire::ids::{Offset, PartitionId, WriterId};

use super::{Chains, Check};
use crate::{
    ckpt::ChainState,
    format::wal::{WalDirectory, WalPartBody},
    keys,
};

/// The newest version of a closed marker.
const MARKER_VERSION: u8 = 1;
/// Directories of most WAL objects fit in here.
const PREFIX_BYTES: u64 = 64 << 10;

/// Batches that WALs hold: per partition, first offset to one past the last.
pub(super) type WalOffsets = BTreeMap<PartitionId, BTreeMap<Offset, Offset>>;

impl Check<'_> {
    pub(super) async fn check_wals(&mut self, chains: &Chains) -> Result<WalOffsets, StoreError> {
        let mut offsets = WalOffsets::new();
        let newest = chains.speakers.last().copied();
        for (writer, chain) in &chains.all {
            // A writer below the newest speaker has been replayed by it, unless it speaks itself.
            let replayed = newest.is_some_and(|newest| *writer < newest);
            let is_kept = chains.speakers.contains(writer) || chains.kept.contains(writer);
            if replayed && !is_kept {
                continue;
            }
            self.say(&format!("WAL of writer {writer}"));
            self.check_wal(*writer, chain, &mut offsets).await?;
        }
        Ok(offsets)
    }

    /// Numbers that never landed are closed for ever: a marker stands there, and nothing else.
    pub(super) async fn check_markers(&mut self, chains: &Chains) -> Result<(), StoreError> {
        for (writer, chain) in &chains.all {
            let Some((_, closing)) = &chain.closing else {
                continue;
            };
            let log = NumberedLog::new(self.store.clone(), keys::wal_prefix(*writer));
            let numbers = self.found.wal.get(writer).cloned().unwrap_or_default();
            for (number, size) in numbers {
                if closing.landed(number) {
                    continue;
                }
                self.report.objects += 1;
                self.report.bytes += size;
                self.wal_seen.insert((*writer, number));
                match self.marker(&log, number, size).await? {
                    Ok(()) => {}
                    Err(error @ EnvelopeError::TooNew { .. }) => {
                        self.report.broken(log.key(number), &error);
                    }
                    Err(error) => {
                        let what = format!("closed marker: {error}");
                        self.report.damage(log.key(number), what);
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks a marker of which a listing says the size; deep, by reading it.
    async fn marker(
        &self,
        log: &NumberedLog,
        number: u64,
        size: u64,
    ) -> Result<Result<(), EnvelopeError>, StoreError> {
        if let Err(error) = Envelope::check_len(Envelope::LEN as u64, size) {
            return Ok(Err(error));
        }
        if !self.options.deep {
            return Ok(Ok(()));
        }
        let mut tries = 0;
        loop {
            let Some(bytes) = log.read(number).await? else {
                return Ok(Ok(()));
            };
            let kind = ObjectKind::ClosedMarker;
            match Envelope::decode_whole(&bytes, kind, MARKER_VERSION) {
                Ok(_) => return Ok(Ok(())),
                Err(_) if tries == 0 => tries += 1,
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    async fn check_wal(
        &mut self,
        writer: WriterId,
        chain: &ChainState,
        offsets: &mut WalOffsets,
    ) -> Result<(), StoreError> {
        let log = NumberedLog::new(self.store.clone(), keys::wal_prefix(writer));
        let numbers = self.found.wal.get(&writer).cloned().unwrap_or_default();
        let mut decided_below = match &chain.closing {
            Some((_, closing)) => closing.decided_below,
            None => 0,
        };
        let from = chain.replay_from;
        let mut present = BTreeMap::new();
        for (number, size) in numbers.range(from..) {
            if let Some((_, closing)) = &chain.closing
                && !closing.landed(*number)
            {
                continue;
            }
            self.wal_seen.insert((writer, *number));
            let Some(real) = self.wal_object(&log, *number, *size, offsets).await? else {
                continue;
            };
            decided_below = decided_below.max(real);
            present.insert(*number, ());
        }
        let end = match &chain.closing {
            Some((_, closing)) => closing.last.map_or(0, |last| last + 1),
            None => decided_below,
        };
        for number in from..end {
            let must = match &chain.closing {
                Some((_, closing)) => closing.landed(number),
                None => true,
            };
            // The listing may be older than the checkpoint.
            if must && !present.contains_key(&number) {
                let key = log.key(number);
                if self.exists(&key).await?.is_none() {
                    self.report
                        .damage(key, "it landed, no checkpoint holds it, and it is missing");
                }
            }
        }
        Ok(())
    }

    /// Checks one object of which a listing says the size; returns its `decided_below`, or `None`
    /// for a marker or a damaged one.
    pub(super) async fn wal_object(
        &mut self,
        log: &NumberedLog,
        number: u64,
        size: u64,
        offsets: &mut WalOffsets,
    ) -> Result<Option<u64>, StoreError> {
        let key = log.key(number);
        self.report.objects += 1;
        let mut tries = 0;
        let (bytes, directory) = loop {
            let bytes = match self.options.deep {
                true => log.read(number).await?,
                false => self.wal_prefix(log, number).await?,
            };
            // Trimmed since the listing.
            let Some(bytes) = bytes else {
                return Ok(None);
            };
            if is_marker(&bytes) {
                return Ok(None);
            }
            match WalDirectory::decode_object(&bytes) {
                Ok((_, directory, body_at)) => break (bytes, (directory, body_at)),
                Err(_) if tries == 0 => tries += 1,
                Err(error) => {
                    self.report.broken(key, &error);
                    return Ok(None);
                }
            }
        };
        let (directory, body_at) = directory;
        if let Ok((_, _, expected)) = Envelope::decode_header(&bytes)
            && size != expected
        {
            let what = format!("{size} bytes, {expected} expected");
            self.report.damage(&key, what);
        }
        if directory.number != number {
            self.report.damage(
                &key,
                format!("it says that it is number {}", directory.number),
            );
        }
        for entry in &directory.entries {
            self.report.bytes += entry.range.end - entry.range.start;
            if self.options.deep && !intact(&bytes, body_at, &entry.range, entry.crc) {
                self.report.damage(
                    &key,
                    format!("checksum of entry {} does not match", entry.id),
                );
            }
            for part in &entry.parts {
                if let WalPartBody::Records { header, .. } = &part.body {
                    let range = offsets.entry(part.partition).or_default();
                    range.insert(header.base_offset, header.next_offset());
                }
            }
        }
        Ok(Some(directory.decided_below))
    }

    async fn wal_prefix(
        &self,
        log: &NumberedLog,
        number: u64,
    ) -> Result<Option<Bytes>, StoreError> {
        let Some(bytes) = log.read_prefix(number, PREFIX_BYTES).await? else {
            return Ok(None);
        };
        match Envelope::decode_header(&bytes) {
            Ok((_, len, _)) if (bytes.len() as u64) < Envelope::LEN as u64 + u64::from(len) => {
                log.read_prefix(number, Envelope::LEN as u64 + u64::from(len))
                    .await
            }
            _ => Ok(Some(bytes)),
        }
    }
}

fn is_marker(bytes: &Bytes) -> bool {
    matches!(
        Envelope::decode_header(bytes),
        Ok((
            Envelope {
                kind: ObjectKind::ClosedMarker,
                ..
            },
            _,
            _
        )) | Err(EnvelopeError::WrongKind {
            found: ObjectKind::ClosedMarker,
            ..
        })
    )
}

fn intact(bytes: &Bytes, body_at: u64, range: &std::ops::Range<u64>, crc: u32) -> bool {
    let at = |position: u64| usize::try_from(body_at + position).unwrap_or(usize::MAX);
    bytes
        .get(at(range.start)..at(range.end))
        .is_some_and(|bytes| crc32c::crc32c(bytes) == crc)
}
