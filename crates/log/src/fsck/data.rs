//! Partitions, their extents and manifests, and the data objects these name.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use tidemill_store::{Envelope, ObjectKind, StoreError, envelope::EnvelopeError};
use tidemill_wire::{
    batch::{BatchHeader, HEADER_BYTES},
    ids::{Offset, PartitionId, WriterId},
};

use super::{Chains, Check, wal::WalOffsets};
use crate::{
    ckpt::PartitionState,
    format::{
        data::{DATA_VERSION, DataDirectory, Footer, Run},
        manifest,
    },
    keys,
    read::ReadError,
    types::{DataObjectId, Extent},
};

impl Check<'_> {
    /// Checks every partition that a speaker's checkpoints hold, then the objects they name.
    pub(super) async fn check_partitions(
        &mut self,
        chains: &Chains,
        wal: &WalOffsets,
    ) -> Result<(), StoreError> {
        let mut states: BTreeMap<PartitionId, (WriterId, &PartitionState)> = BTreeMap::new();
        // Newer writers come later and have the last word.
        for writer in &chains.speakers {
            let partitions = chains.all.get(writer).map(|chain| &chain.partitions);
            for (id, state) in partitions.into_iter().flatten() {
                states.insert(*id, (*writer, state));
            }
        }
        let mut wanted: BTreeMap<DataObjectId, Vec<(PartitionId, Extent)>> = BTreeMap::new();
        for (id, (writer, state)) in states {
            let exists = self
                .options
                .partitions
                .as_ref()
                .is_none_or(|known| known.contains(&id));
            if !exists {
                self.note_dropping(state).await?;
                continue;
            }
            self.report.partitions += 1;
            let place = format!("{}: partition {id}", keys::ckpt_prefix(writer));
            let extents = self.extents_of(&place, state).await?;
            self.check_list(&place, state, &extents, wal.get(&id));
            for extent in extents {
                self.listed.insert(extent.object);
                wanted.entry(extent.object).or_default().push((id, extent));
            }
        }
        for (object, extents) in wanted {
            self.check_object(object, &extents).await?;
        }
        Ok(())
    }

    /// Notes what a partition lists whose topic is deleted: the next round frees it.
    async fn note_dropping(&mut self, state: &PartitionState) -> Result<(), StoreError> {
        for manifest in &state.extents.manifests {
            self.dropping.insert(manifest.object);
            match self.reader.manifest(manifest).await {
                Ok(list) => self
                    .dropping
                    .extend(list.iter().map(|extent| extent.object)),
                Err(ReadError::Store(error)) if error.is_retriable() => return Err(error),
                // Nobody will read it any more; it may be gone already.
                Err(_) => {}
            }
        }
        let recent = state.extents.recent.iter();
        self.dropping.extend(recent.map(|extent| extent.object));
        Ok(())
    }

    /// All extents of a partition that lie above its log start.
    async fn extents_of(
        &mut self,
        place: &str,
        state: &PartitionState,
    ) -> Result<Vec<Extent>, StoreError> {
        let mut extents = Vec::new();
        for manifest in &state.extents.manifests {
            if self.listed.insert(manifest.object) {
                self.check_manifest(manifest.object).await?;
            }
            match self.reader.manifest(manifest).await {
                Ok(list) => extents.extend(list.iter().cloned()),
                Err(error) => self.unreadable(place, error).await?,
            }
        }
        extents.extend(state.extents.recent.iter().cloned());
        extents.retain(|extent| extent.end_offset > state.head.log_start);
        Ok(extents)
    }

    /// Header, directory and length; the lists that count are read beside it.
    async fn check_manifest(&mut self, object: DataObjectId) -> Result<(), StoreError> {
        let key = keys::data_key(object);
        self.report.objects += 1;
        let mut tries = 0;
        loop {
            let bytes = match self.store.get(&key).await {
                Ok(bytes) => bytes,
                // Whoever reads its lists says so.
                Err(error) if !error.is_retriable() => return Ok(()),
                Err(error) => return Err(error),
            };
            match manifest::decode_directory(&bytes) {
                Ok(_) => return Ok(()),
                Err(_) if tries == 0 => tries += 1,
                Err(error) => {
                    self.report.broken(key, &error);
                    return Ok(());
                }
            }
        }
    }

    /// The version of a data object that cannot be read, if that is why.
    async fn newer_version(&self, key: &str) -> Result<Option<EnvelopeError>, StoreError> {
        let header = match self.store.get_range(key, 0..Envelope::LEN as u64).await {
            Ok(header) => header,
            Err(error) if error.is_retriable() => return Err(error),
            Err(_) => return Ok(None),
        };
        let kind = match Envelope::decode_header(&header) {
            Ok((envelope, ..)) => envelope.kind,
            Err(error) => return Ok(Some(error).filter(is_new)),
        };
        let known = match kind {
            ObjectKind::Manifest => manifest::MANIFEST_VERSION,
            _ => DATA_VERSION,
        };
        Ok(Envelope::decode(&header, kind, known).err().filter(is_new))
    }

    /// Damage is reported; a store that does not answer ends the check.
    async fn unreadable(&mut self, place: &str, error: ReadError) -> Result<(), StoreError> {
        match error {
            ReadError::Corrupt { key, what } => {
                match self.newer_version(&key).await? {
                    Some(error) => self.report.broken(key, &error),
                    None => self
                        .report
                        .damage(key, format!("{what} (named by {place})")),
                }
                Ok(())
            }
            ReadError::Store(error) if !error.is_retriable() => {
                self.report
                    .damage(error.key.clone(), format!("{error} (named by {place})"));
                Ok(())
            }
            ReadError::Store(error) => Err(error),
            ReadError::OutOfRange | ReadError::Gone(_) => Ok(()),
        }
    }

    /// Offsets from the log start to the high watermark are in extents or in the WAL, without
    /// holes.
    fn check_list(
        &mut self,
        place: &str,
        state: &PartitionState,
        extents: &[Extent],
        wal: Option<&BTreeMap<Offset, Offset>>,
    ) {
        let head = &state.head;
        let mut next = extents.first().map(|first| first.base_offset);
        for extent in extents {
            if next != Some(extent.base_offset) {
                let what = format!("hole or overlap before offset {}", extent.base_offset);
                self.report.damage(place, what);
            }
            next = Some(extent.end_offset);
        }
        let mut end = next.unwrap_or(head.log_start).max(head.log_start);
        if end > head.next_offset {
            let what = format!("extents reach {end}, beyond offset {}", head.next_offset);
            self.report.damage(place, what);
        }
        if extents
            .first()
            .is_some_and(|first| first.base_offset > head.log_start)
        {
            let what = format!("extents begin above the log start {}", head.log_start);
            self.report.damage(place, what);
        }
        for (base, after) in wal.into_iter().flatten() {
            if *base <= end {
                end = end.max(*after);
            }
        }
        if end < head.next_offset {
            let what = format!("offsets {end} to {} are nowhere", head.next_offset);
            self.report.damage(place, what);
        }
    }

    async fn check_object(
        &mut self,
        object: DataObjectId,
        extents: &[(PartitionId, Extent)],
    ) -> Result<(), StoreError> {
        let key = keys::data_key(object);
        self.say(&key);
        let object_len = extents.first().map_or(0, |(_, extent)| extent.object_len);
        let size = match self.found.data.get(&object) {
            Some(size) => Some(*size),
            None => self.exists(&key).await?,
        };
        let Some(size) = size else {
            let id = extents
                .first()
                .map(|(id, _)| id.to_string())
                .unwrap_or_default();
            self.report
                .damage(key, format!("missing, but partition {id} lists it"));
            return Ok(());
        };
        self.report.objects += 1;
        if size != object_len {
            self.report
                .damage(&key, format!("{size} bytes, {object_len} expected"));
            return Ok(());
        }
        let directory = match self.reader.directory(object, object_len).await {
            Ok(directory) => directory,
            Err(error) => return self.unreadable(&key, error).await,
        };
        for (id, extent) in extents {
            let run = directory
                .runs
                .iter()
                .find(|run| run.partition == *id && run.base_offset == extent.base_offset);
            if run.is_none_or(|run| run.extent(object, directory.object_len) != *extent) {
                let what = format!("holds no run of {id} at {}", extent.base_offset);
                self.report.damage(&key, what);
            }
        }
        self.report.bytes += object_len;
        self.check_runs(&key, &directory, extents).await
    }

    async fn check_runs(
        &mut self,
        key: &str,
        directory: &Arc<DataDirectory>,
        extents: &[(PartitionId, Extent)],
    ) -> Result<(), StoreError> {
        for run in &directory.runs {
            let is_listed = extents
                .iter()
                .any(|(id, extent)| *id == run.partition && extent.base_offset == run.base_offset);
            // What nobody lists any more need not be intact.
            if !is_listed {
                continue;
            }
            if let Err(what) = self.check_run(key, run).await? {
                let what = format!("run of {} at {}: {what}", run.partition, run.base_offset);
                self.report.damage(key, what);
            }
        }
        Ok(())
    }

    async fn check_run(&self, key: &str, run: &Run) -> Result<Result<(), String>, StoreError> {
        let len = run.range.end - run.range.start;
        let footer = self.store.get_range(key, run.footer.clone()).await?;
        let footer = match Footer::decode(&footer, run.footer_crc, len) {
            Ok(footer) => footer,
            Err(error) => return Ok(Err(error.to_string())),
        };
        if !self.options.deep {
            return Ok(Ok(()));
        }
        let mut crc = 0;
        let mut next = run.base_offset;
        for index in 0..footer.chunks.len() {
            let range = footer.chunk_range(index, len);
            let range = run.range.start + range.start..run.range.start + range.end;
            let bytes = self.store.get_range(key, range).await?;
            crc = crc32c::crc32c_append(crc, &bytes);
            let expected = footer.chunks.get(index).map(|chunk| chunk.crc);
            if expected != Some(crc32c::crc32c(&bytes)) {
                return Ok(Err(format!("checksum of chunk {index} does not match")));
            }
            match check_batches(&bytes, next..run.end_offset) {
                Ok(after) => next = after,
                Err(what) => return Ok(Err(what)),
            }
        }
        Ok(if crc == run.crc {
            Ok(())
        } else {
            Err("checksum does not match".to_owned())
        })
    }
}

fn is_new(error: &EnvelopeError) -> bool {
    matches!(error, EnvelopeError::TooNew { .. })
}

/// Whole batches with ascending offsets inside `offsets`; returns the offset after them.
fn check_batches(bytes: &Bytes, offsets: std::ops::Range<Offset>) -> Result<Offset, String> {
    let mut next = offsets.start;
    let mut rest = bytes.clone();
    while !rest.is_empty() {
        let head = rest.get(..HEADER_BYTES).unwrap_or(&rest);
        let header = BatchHeader::parse(head).map_err(|error| error.to_string())?;
        let size = header.size_bytes();
        let batch = rest.get(..size).ok_or("a batch is cut")?;
        if header.base_offset < next || header.last_offset() >= offsets.end {
            return Err(format!("batch at {} is out of place", header.base_offset));
        }
        if !tidemill_wire::batch::verify_crc(batch).map_err(|error| error.to_string())? {
            return Err(format!(
                "CRC of the batch at {} does not match",
                header.base_offset
            ));
        }
        next = header.next_offset();
        rest = rest.slice(size..);
    }
    Ok(next)
}
