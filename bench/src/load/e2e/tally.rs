//! What arrived: once, in order, when.

use std::collections::BTreeMap;

use tidemill_wire::batch::Record;

use super::E2eOutcome;
use crate::load::payload::Stamp;

/// Which records of which producer have arrived.
#[derive(Debug, Default)]
pub struct Tally {
    /// One bit per sequence number.
    seen: BTreeMap<u32, Vec<u64>>,
    /// Last sequence number by producer and partition.
    last: BTreeMap<(u32, i32), u64>,
    received: u64,
    doubled: u64,
    reordered: u64,
}

impl Tally {
    /// Notes a record of a partition; those without a stamp are none of ours.
    pub fn receive(&mut self, partition: i32, record: &Record) {
        let stamp = record.value.as_deref().and_then(Stamp::read);
        if let Some(stamp) = stamp {
            self.note(partition, stamp);
        }
    }

    /// Notes a stamp; false if it came before.
    pub fn note(&mut self, partition: i32, stamp: Stamp) -> bool {
        let bits = self.seen.entry(stamp.producer).or_default();
        let (word, bit) = ((stamp.sequence / 64) as usize, 1 << (stamp.sequence % 64));
        if bits.len() <= word {
            bits.resize(word + 1, 0);
        }
        if bits[word] & bit != 0 {
            self.doubled += 1;
            return false;
        }
        bits[word] |= bit;
        self.received += 1;
        let last = self
            .last
            .insert((stamp.producer, partition), stamp.sequence);
        self.reordered += u64::from(last.is_some_and(|last| last > stamp.sequence));
        true
    }

    /// Different records so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Records received more than once.
    #[must_use]
    pub fn doubled(&self) -> u64 {
        self.doubled
    }

    /// Records received after a later one of the same producer and partition.
    #[must_use]
    pub fn reordered(&self) -> u64 {
        self.reordered
    }

    pub(super) fn finish(&self, out: &mut E2eOutcome) {
        out.doubled = self.doubled;
        out.reordered = self.reordered;
    }
}
