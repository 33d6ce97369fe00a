//! Closing the WAL: markers, span, second look.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tidemill_log::{ckpt, format::wal::WalDirectory, types::WAL_SPAN};
use tidemill_store::{
    CreateOutcome, Envelope, ObjectKind, Payload, PutAnswer, envelope::EnvelopeError,
};

use tidemill_wire::batch::crc::crc32c;

use super::{SealError, Sealer, TornPolicy, marker};
use crate::reread::read_decoded;

/// Requests at once while sealing.
const REQUESTS_AT_ONCE: usize = 32;
/// Folder of objects that were torn and are out of the way, in a store without a place of its own.
const LOST_AND_FOUND: &str = "lost+found";

/// Which numbers landed, for good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Landed {
    /// The highest `decided_below` seen: all lower numbers landed, whatever is found there.
    pub floor: u64,
    /// Landed numbers at or above `floor`.
    pub above_floor: BTreeSet<u64>,
    /// The highest landed number.
    pub last: Option<u64>,
}

impl From<Landed> for ckpt::Landed {
    fn from(landed: Landed) -> Self {
        Self {
            decided_below: landed.floor,
            above: landed.above_floor.into_iter().collect(),
        }
    }
}

impl Landed {
    fn add(&mut self, number: u64, decided_below: u64) {
        self.floor = self.floor.max(decided_below);
        self.above_floor.insert(number);
        self.last = self.last.max(Some(number));
        self.above_floor = self.above_floor.split_off(&self.floor);
    }

    /// One past the last number that must be closed: W numbers beyond the highest landed one.
    fn end(&self) -> u64 {
        self.last.map_or(0, |last| last + 1) + WAL_SPAN
    }
}

/// What stands at a WAL number.
enum Found {
    /// One of the writer's objects.
    Real {
        decided_below: u64,
    },
    Marker,
    Nothing,
    Torn(EnvelopeError),
}

impl Sealer<'_> {
    /// Closes all of the span that did not land; afterwards nothing new can.
    pub(super) async fn close_wal(&mut self) -> Result<Landed, SealError> {
        loop {
            let (mut landed, mut closed) = self.find_landed().await?;
            self.close_span(&mut landed, &mut closed).await?;
            if self.look_again(&landed, &closed).await? {
                return Ok(landed);
            }
            tracing::debug!(writer = %self.writer, "sealing starts over: the log moved on");
        }
    }

    /// Reads from the top down until all below is known to have landed. Returns what landed, and
    /// what is closed already.
    async fn find_landed(&mut self) -> Result<(Landed, BTreeSet<u64>), SealError> {
        let mut listed = self.wal.list_from(0).await?;
        let mut landed = Landed::default();
        let mut closed = BTreeSet::new();
        let mut torn = BTreeMap::new();
        // Markers make up the top of a log that another sealer has begun to close.
        let mut batch = 1;
        while let Some((top, _)) = listed.last()
            && *top >= landed.floor
        {
            let needed = listed.partition_point(|(number, _)| *number < landed.floor);
            let numbers = listed.split_off(listed.len().saturating_sub(batch).max(needed));
            batch = REQUESTS_AT_ONCE;
            let numbers = numbers.iter().map(|(n, _)| *n).collect();
            for (number, found) in self.find_all(numbers).await? {
                match found {
                    Found::Real { decided_below } => landed.add(number, decided_below),
                    Found::Marker => {
                        closed.insert(number);
                    }
                    Found::Nothing => {}
                    Found::Torn(error) => {
                        torn.insert(number, error);
                    }
                }
            }
        }
        // Below the floor they landed; whoever needs them names the damage.
        for (number, error) in torn.split_off(&landed.floor) {
            self.lose(number, error).await?;
        }
        Ok((landed, closed))
    }

    async fn find_all(&self, numbers: Vec<u64>) -> Result<Vec<(u64, Found)>, SealError> {
        stream::iter(numbers)
            .map(|number| async move { Ok((number, self.find(number).await?)) })
            .buffered(REQUESTS_AT_ONCE)
            .try_collect()
            .await
    }

    async fn find(&self, number: u64) -> Result<Found, SealError> {
        match read_decoded(&self.wal, number, inspect).await? {
            Some(found) => self.judge(number, found),
            None => Ok(Found::Nothing),
        }
    }

    fn judge(&self, number: u64, found: Result<Found, EnvelopeError>) -> Result<Found, SealError> {
        match found {
            Ok(found) => Ok(found),
            // A newer broker's object is no damage.
            Err(error @ EnvelopeError::TooNew { .. }) => {
                Err(Self::object(self.wal.key(number), error))
            }
            Err(error) => Ok(Found::Torn(error)),
        }
    }

    /// Moves a torn object out of the way, or stops.
    async fn lose(&mut self, number: u64, error: EnvelopeError) -> Result<(), SealError> {
        let key = self.wal.key(number);
        if self.options.torn == TornPolicy::Corruption {
            return Err(SealError::Torn { key, error });
        }
        let store = &self.options.store;
        if !store.set_aside(&key).await? {
            let to = format!("{LOST_AND_FOUND}/{}", key.replace('/', "-"));
            // A copy from an earlier try that died here is as good.
            store.backend().copy_if_absent(&key, &to).await?;
            store.delete(&key).await?;
        }
        tracing::error!(key, %error, "torn object counts as never written; moved to `lost+found/`");
        self.lost.push(key);
        Ok(())
    }

    /// Creates a marker at every number that is neither landed nor closed, until W numbers in a row
    /// beyond the highest landed one are closed.
    async fn close_span(
        &mut self,
        landed: &mut Landed,
        closed: &mut BTreeSet<u64>,
    ) -> Result<(), SealError> {
        loop {
            let mut open: Vec<u64> = (landed.floor..landed.end())
                .filter(|n| !landed.above_floor.contains(n) && !closed.contains(n))
                .collect();
            if open.is_empty() {
                return Ok(());
            }
            if self.marker.is_none() && self.links() {
                open.truncate(1);
            }
            let this = &*self;
            let found: Vec<_> = stream::iter(open)
                .map(
                    |number| async move { Ok::<_, SealError>((number, this.close(number).await?)) },
                )
                .buffer_unordered(REQUESTS_AT_ONCE)
                .try_collect()
                .await?;
            for (number, found) in found {
                match found {
                    Found::Real { decided_below } => landed.add(number, decided_below),
                    Found::Marker => {
                        closed.insert(number);
                        self.marker.get_or_insert(number);
                    }
                    // Looked at again in the next round.
                    Found::Nothing => {}
                    Found::Torn(error) => self.lose(number, error).await?,
                }
            }
        }
    }

    /// True where all markers of a log may be one file under many names: they stay for ever, and a
    /// file takes a block of the disk however short it is.
    fn links(&self) -> bool {
        self.options.store.backend().links()
    }

    /// Tries to create a marker; says what stands there afterwards.
    async fn close(&self, number: u64) -> Result<Found, SealError> {
        if let Some(marker) = self.marker.filter(|_| self.links()) {
            let (from, to) = (self.wal.key(marker), self.wal.key(number));
            let linked = self.options.store.backend().copy_if_absent(&from, &to);
            // Whatever else came of it: a create finds out what stands there.
            if let Ok(PutAnswer::Created) = linked.await {
                return Ok(Found::Marker);
            }
        }
        let put_id = self.put_id();
        let body = marker::encode(put_id, self.options.cluster_id, self.writer);
        let created = self
            .wal
            .create(number, Payload::from(body), put_id, self.options.deadline)
            .await?;
        match created {
            CreateOutcome::Ours => Ok(Found::Marker),
            CreateOutcome::Foreign(bytes) => self.judge(number, inspect(&bytes)),
        }
    }

    /// One listing from the highest landed number on. False if it shows anything above it that is
    /// not a marker, or no longer shows it: then the log was alive, and trimmed, while we closed
    /// it.
    async fn look_again(&self, landed: &Landed, closed: &BTreeSet<u64>) -> Result<bool, SealError> {
        let from = landed.last.unwrap_or(0);
        let listed = self.wal.list_from(from).await?;
        let there = |n: u64| listed.iter().any(|(listed, _)| *listed == n);
        if landed.last.is_some_and(|last| !there(last)) {
            return Ok(false);
        }
        let above = listed.iter().map(|(n, _)| *n);
        // A marker stays what it is.
        let above =
            above.filter(|n| landed.last.is_none_or(|last| *n > last) && !closed.contains(n));
        let found = self.find_all(above.collect()).await?;
        let closed = found
            .iter()
            .all(|(_, found)| matches!(found, Found::Marker));
        if !closed || self.options.store.lists_at_once() {
            return Ok(closed);
        }
        // Pages without order may have missed what the writer did meanwhile. The first number that
        // we closed was then trimmed, so a checkpoint holds it.
        let first_closed = landed.last.map_or(0, |last| last + 1);
        let store = &self.options.store;
        Ok(ckpt::newest_replay_from(store, self.writer).await? <= first_closed)
    }
}

/// Header, directory and checksums of whatever stands at a WAL number.
fn inspect(bytes: &Bytes) -> Result<Found, EnvelopeError> {
    let (envelope, _, object_len) = Envelope::decode_header(bytes)?;
    Envelope::check_len(object_len, bytes.len() as u64)?;
    if envelope.kind == ObjectKind::ClosedMarker {
        return Ok(Found::Marker);
    }
    let (_, directory, body_at) = WalDirectory::decode_object(bytes)?;
    for entry in &directory.entries {
        let at = |position: u64| usize::try_from(body_at + position).unwrap_or(usize::MAX);
        let body = bytes.get(at(entry.range.start)..at(entry.range.end));
        if body.map(crc32c) != Some(entry.crc) {
            return Err(EnvelopeError::Checksum { part: "entry" });
        }
    }
    Ok(Found::Real {
        decided_below: directory.decided_below,
    })
}
