//! What no partition lists: a writer's to delete or to list yet, or garbage.

use std::collections::BTreeSet;

use tidemill_store::{NumberedLog, StoreError};
use tidemill_wire::ids::WriterId;

use super::{Chains, Check, wal::WalOffsets};
use crate::{ckpt::ChainState, keys};

/// Who deletes what.
struct Duties {
    /// Sealed writers that a speaker is cleaning up after.
    cleaning: BTreeSet<WriterId>,
    /// The newest writer whose checkpoints speak for partitions.
    newest_speaker: Option<WriterId>,
}

impl Duties {
    /// True if whoever takes over next looks through what `writer` left, as nobody above it has
    /// begun to.
    fn will_be_inherited(&self, writer: WriterId) -> bool {
        self.newest_speaker.is_none_or(|newest| writer >= newest)
    }
}

impl Check<'_> {
    /// Accounts for each object of the listing that has not been checked.
    pub(super) async fn account_for_rest(&mut self, chains: &Chains) -> Result<(), StoreError> {
        let mut duties = Duties {
            cleaning: BTreeSet::new(),
            newest_speaker: chains.speakers.last().copied(),
        };
        let mut waiting = std::mem::take(&mut self.dropping);
        for writer in &chains.speakers {
            let chain = chains.all.get(writer);
            waiting.extend(chain.iter().flat_map(|chain| &chain.garbage));
            let cleaning = chain.iter().flat_map(|chain| &chain.cleanup);
            duties.cleaning.extend(cleaning);
        }
        for (object, _) in std::mem::take(&mut self.found.data) {
            if self.listed.contains(&object) {
                continue;
            }
            let chain = chains.all.get(&object.writer);
            let closed = chain.is_some_and(|chain| chain.closing.is_some());
            let in_flight = chain.is_none_or(|chain| !closed && object.seq >= chain.next_data_seq);
            if in_flight
                || (closed && duties.will_be_inherited(object.writer))
                || waiting.contains(&object)
                || duties.cleaning.contains(&object.writer)
            {
                self.report.pending += 1;
            } else {
                let key = keys::data_key(object);
                self.unless_gone(key, "no partition lists it").await?;
            }
        }
        for (writer, chain) in &chains.all {
            self.account_for_checkpoints(*writer, chain, &duties)
                .await?;
            self.account_for_wal(*writer, chain, &duties).await?;
        }
        Ok(())
    }

    /// Those of the chain have been read; the lower ones are trimmed by who leads, or by who takes
    /// over.
    async fn account_for_checkpoints(
        &mut self,
        writer: WriterId,
        chain: &ChainState,
        duties: &Duties,
    ) -> Result<(), StoreError> {
        let numbers = self.found.checkpoints.remove(&writer).unwrap_or_default();
        let is_old = is_old(writer, chain, duties);
        let begins_at = match (&chain.closing, is_old) {
            (Some((closing, _)), true) => *closing,
            _ => chain.begins_at,
        };
        for number in numbers {
            if number >= begins_at {
                self.report.objects += 1;
            } else {
                let key = format!("{}/{number:020}", keys::ckpt_prefix(writer));
                self.account_for_old(writer, key, is_old, duties).await?;
            }
        }
        Ok(())
    }

    /// Numbers that no recovery reads: trimmed by who leads, or by who takes over.
    async fn account_for_wal(
        &mut self,
        writer: WriterId,
        chain: &ChainState,
        duties: &Duties,
    ) -> Result<(), StoreError> {
        let log = NumberedLog::new(self.store.clone(), keys::wal_prefix(writer));
        let numbers = self.found.wal.remove(&writer).unwrap_or_default();
        let newest = numbers.last_key_value().map(|(number, _)| *number);
        let is_old = is_old(writer, chain, duties);
        for (number, size) in numbers {
            let is_seen = self.wal_seen.contains(&(writer, number));
            let landed = chain.closing.as_ref();
            let landed = landed.is_none_or(|(_, closing)| closing.landed(number));
            // The newest number says where a log ends, and stays; so do the markers of an old one.
            let stays = Some(number) == newest || (is_old && !landed);
            if stays && !is_seen {
                let mut elsewhere = WalOffsets::new();
                self.wal_object(&log, number, size, &mut elsewhere).await?;
            }
            let is_somebodys = !is_old || duties.cleaning.contains(&writer);
            if stays || (is_seen && is_somebodys) {
                continue;
            }
            if is_seen {
                // It is sound, and nobody's.
                self.report.objects -= 1;
            }
            self.account_for_old(writer, log.key(number), is_old, duties)
                .await?;
        }
        Ok(())
    }

    async fn account_for_old(
        &mut self,
        writer: WriterId,
        key: String,
        is_old: bool,
        duties: &Duties,
    ) -> Result<(), StoreError> {
        if !is_old || duties.cleaning.contains(&writer) {
            self.report.pending += 1;
            return Ok(());
        }
        self.unless_gone(key, "its writer was sealed and its data is elsewhere")
            .await
    }

    /// It is garbage, unless a live writer has deleted it since the listing.
    async fn unless_gone(&mut self, key: String, what: &str) -> Result<(), StoreError> {
        if self.exists(&key).await?.is_some() {
            self.report.garbage(key, what);
        }
        Ok(())
    }
}

/// True for a sealed writer whose log somebody has taken over long ago.
fn is_old(writer: WriterId, chain: &ChainState, duties: &Duties) -> bool {
    chain.closing.is_some() && !duties.will_be_inherited(writer)
}
