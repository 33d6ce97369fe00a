//! Proof from the bucket alone that everything stored fits together, beside a live broker or
//! without.
//!
//! The newest checkpoints say what must exist; every object they name, directly or through
//! manifests, is checked against its own header, directory and (deep) every byte, and the WAL above
//! them for holes. What nobody names is garbage. What a live broker may be working on is neither.

mod data;
mod rest;
mod survey;
mod wal;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use tidemill_store::{Store, StoreError, StoreErrorKind, envelope::EnvelopeError};
use tidemill_wire::ids::{PartitionId, WriterId};

use crate::{
    ckpt::{ChainError, ChainState, read_chain},
    read::{ReadOptions, Reader},
    types::DataObjectId,
};

/// What to check.
#[derive(Clone, Debug, Default)]
pub struct FsckOptions {
    /// Read every byte, not only headers, directories and footers.
    pub deep: bool,
    /// The partitions that exist, from the metadata, if known: others in checkpoints are leftovers
    /// of deleted topics.
    pub partitions: Option<BTreeSet<PartitionId>>,
}

/// One thing that is wrong, or superfluous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The object's key.
    pub key: String,
    /// What is wrong with it, or why it is garbage.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.key, self.what)
    }
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Something acknowledged cannot be read, or does not fit.
    pub damage: Vec<Finding>,
    /// Objects that nobody lists and nobody will delete by itself.
    pub garbage: Vec<Finding>,
    /// Objects of a newer version of this program: nothing can be said of them.
    pub too_new: Vec<Finding>,
    /// Objects that nobody lists and that a writer will list or delete by itself: the live one what
    /// it is working on, the next one what the last left.
    pub pending: u64,
    /// Keys that are no objects of the log: the metadata's, and strangers.
    pub others: Vec<String>,
    /// Topics that exist, if the metadata was checked too.
    pub topics: u64,
    /// Writers that were looked at.
    pub writers: u64,
    /// Partitions that were checked.
    pub partitions: u64,
    /// Objects that were checked. With [`pending`](Self::pending), garbage and others these are all
    /// that a listing shows, each once.
    pub objects: u64,
    /// Bytes that were read (deep) or vouched for by directories.
    pub bytes: u64,
}

impl Report {
    /// True if there is neither damage nor garbage, and all could be looked at.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.damage.is_empty() && self.garbage.is_empty() && self.too_new.is_empty()
    }

    /// What cannot be decoded is damage, unless it is new.
    fn broken(&mut self, key: impl Into<String>, error: &EnvelopeError) {
        let what = error.to_string();
        match error {
            EnvelopeError::TooNew { what } => self.too_new.push(Finding {
                key: key.into(),
                what: what.clone(),
            }),
            _ => self.damage(key, what),
        }
    }

    fn damage(&mut self, key: impl Into<String>, what: impl Into<String>) {
        self.damage.push(Finding {
            key: key.into(),
            what: what.into(),
        });
    }

    fn garbage(&mut self, key: impl Into<String>, what: impl Into<String>) {
        self.garbage.push(Finding {
            key: key.into(),
            what: what.into(),
        });
    }
}

/// A check and what it works with.
struct Check<'a> {
    store: &'a Store,
    reader: Arc<Reader>,
    options: &'a FsckOptions,
    found: survey::Survey,
    report: Report,
    /// Objects that some partition lists.
    listed: BTreeSet<DataObjectId>,
    /// Numbers of WALs that have been looked at.
    wal_seen: BTreeSet<(WriterId, u64)>,
    /// Objects that a partition of a deleted topic lists.
    dropping: BTreeSet<DataObjectId>,
    progress: &'a (dyn Fn(&str) + Sync),
}

/// The chains that count.
struct Chains {
    all: BTreeMap<WriterId, ChainState>,
    /// Whose checkpoints speak for partitions.
    speakers: BTreeSet<WriterId>,
    /// Writers whose WAL a later one could not take over, as some of it is damaged, and keeps.
    kept: BTreeSet<WriterId>,
}

/// How often a check that a live writer has overtaken starts anew.
const TRIES: u32 = 3;

/// Checks everything the log has stored. `progress` is told what is being looked at.
///
/// # Errors
/// The store did not answer; nothing can be said then.
pub async fn check(
    store: &Store,
    options: &FsckOptions,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Report, StoreError> {
    let mut tries = 1;
    loop {
        let report = check_once(store, options, progress).await?;
        // A live writer deletes and trims on: what is missing may have been dropped meanwhile.
        if report.is_clean() || tries == TRIES {
            return Ok(report);
        }
        tries += 1;
    }
}

async fn check_once(
    store: &Store,
    options: &FsckOptions,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Report, StoreError> {
    let reader = Reader::new(store.clone(), store.runtime().clone(), ReadOptions::local());
    let mut check = Check {
        store,
        reader,
        options,
        found: survey::Survey::default(),
        report: Report::default(),
        listed: BTreeSet::new(),
        wal_seen: BTreeSet::new(),
        dropping: BTreeSet::new(),
        progress,
    };
    check.survey().await?;
    let chains = check.read_chains().await?;
    check.check_markers(&chains).await?;
    let wal = check.check_wals(&chains).await?;
    check.check_partitions(&chains, &wal).await?;
    check.account_for_rest(&chains).await?;
    Ok(check.report)
}

impl Check<'_> {
    fn say(&self, what: &str) {
        (self.progress)(what);
    }

    /// Reads all checkpoint logs. A closed one whose writer has been cleaned up after need not be
    /// complete.
    async fn read_chains(&mut self) -> Result<Chains, StoreError> {
        let mut all = BTreeMap::new();
        let mut published_above = false;
        let mut speakers = BTreeSet::new();
        let mut kept = BTreeSet::new();
        let mut closed_may_speak = true;
        let writers: Vec<WriterId> = self.found.writers().into_iter().rev().collect();
        for writer in writers {
            self.report.writers += 1;
            self.say(&format!("checkpoints of writer {writer}"));
            let chain = match read_chain(self.store, writer).await {
                Ok(chain) => chain,
                Err(ChainError::Store(error)) => return Err(error),
                Err(ChainError::Missing { .. }) if published_above => {
                    self.closed_without_base(writer).await?
                }
                Err(ChainError::Missing { key }) => {
                    self.report
                        .damage(key, "is missing, although another follows it");
                    continue;
                }
                Err(ChainError::Object { key, error }) => {
                    self.report.broken(key, &error);
                    continue;
                }
            };
            let is_closed = chain.closing.is_some();
            let may_speak = !is_closed || closed_may_speak || kept.contains(&writer);
            if chain.newest.is_some() && may_speak {
                speakers.insert(writer);
                // A round that holds all partitions holds at least WAL number 0.
                if chain.replay_from == 0 {
                    kept.extend(&chain.cleanup);
                }
                closed_may_speak = false;
            }
            published_above |= chain.newest.is_some();
            all.insert(writer, chain);
        }
        Ok(Chains {
            all,
            speakers,
            kept,
        })
    }

    async fn closed_without_base(&self, writer: WriterId) -> Result<ChainState, StoreError> {
        match crate::ckpt::find_closing(self.store, writer).await {
            Ok(Some(closed)) => Ok(ChainState {
                closing: Some((closed.number, closed.closing)),
                ..ChainState::default()
            }),
            Err(ChainError::Store(error)) => Err(error),
            Ok(None) | Err(_) => Ok(ChainState::default()),
        }
    }

    /// True if an object that the listing shows, or does not show, is there now.
    async fn exists(&self, key: &str) -> Result<Option<u64>, StoreError> {
        match self.store.head(key).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
