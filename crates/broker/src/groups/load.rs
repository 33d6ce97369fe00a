//! Reading a shard's groups back from its partition.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use tidemill_cluster::{Cluster, Image};
use tidemill_log::{
    partition::Partition,
    read::{Isolation, ReadRequest},
};
use tidemill_runtime::Instant;
use tidemill_wire::{
    Str,
    batch::{BatchIter, MAX_INFLATED_BYTES, Records},
    ids::Offset,
    records::group_metadata::GroupMetadataValue,
};
use tokio::sync::oneshot;

use super::{
    cell::{Cell, Offsets},
    coordinator::is_same,
    machine::{Group, GroupLimits},
    record::{self, Fact},
    shard::{Change, Phase, Shard, Then},
};

/// Bytes of one read.
const READ_BYTES: usize = 4 << 20;
/// Between the first two tries when the partition cannot be read; then twice as long each time ...
const RETRY: Duration = Duration::from_millis(500);
/// ... up to this: what is damaged stays so, and each try reads all that is before it.
const RETRY_MAX: Duration = Duration::from_secs(8);
/// Between two lines that say so, while the reason is the same.
const SAY_AGAIN: Duration = Duration::from_secs(600);

/// Tries that have failed.
struct Failing {
    pause: Duration,
    /// What was said last, and when.
    said: Option<(Instant, String)>,
}

impl Failing {
    /// Notes that a try has failed. Returns the pause before the next, and whether to say so.
    fn note(&mut self, now: Instant, error: &str) -> (Duration, bool) {
        let pause = self.pause;
        self.pause = (2 * pause).min(RETRY_MAX);
        let is_known = |(at, what): &(Instant, String)| {
            what == error && now.saturating_duration_since(*at) < SAY_AGAIN
        };
        let is_news = !self.said.as_ref().is_some_and(is_known);
        if is_news {
            self.said = Some((now, error.to_owned()));
        }
        (pause, is_news)
    }
}

/// What was read so far.
#[derive(Default)]
struct Loaded {
    groups: BTreeMap<Str, GroupMetadataValue>,
    offsets: BTreeMap<Str, Offsets>,
}

/// Loads a shard; afterwards it serves. Tries until it succeeds or the partition is gone.
pub(crate) async fn load(
    shard: Arc<Shard>,
    partition: Arc<Partition>,
    cluster: Arc<Cluster>,
    limits: Arc<GroupLimits>,
) {
    // All that is read was committed to topics of this image, or to topics that are gone: a name
    // that comes later is another topic.
    let before = cluster.image();
    let clock = &shard.runtime.clock;
    let mut failing = Failing {
        pause: RETRY,
        said: None,
    };
    loop {
        match read_all(&shard, &partition).await {
            Ok(loaded) => {
                install(&shard, loaded, &limits);
                for cell in shard.all() {
                    forget_deleted(&shard, &mut cell.lock(), &before, &cluster);
                }
                shard.phase.send_replace(Phase::Serving);
                if failing.said.is_some() {
                    tracing::info!(partition = %shard.partition, "groups are loaded");
                }
                return;
            }
            Err(error) if partition.is_stopped() => {
                tracing::warn!(partition = %shard.partition, %error, "group shard is gone");
                shard.phase.send_replace(Phase::Failed);
                return;
            }
            Err(error) => {
                let (pause, is_news) = failing.note(clock.monotonic(), &error);
                if is_news {
                    tracing::error!(
                        partition = %shard.partition, %error, "groups not loaded yet, trying on"
                    );
                }
                clock.sleep(pause).await;
            }
        }
    }
}

async fn read_all(shard: &Shard, partition: &Arc<Partition>) -> Result<Loaded, String> {
    let mut loaded = Loaded::default();
    let end = partition.high_watermark();
    let mut offset = partition.log_start();
    while offset < end {
        let request = ReadRequest {
            offset,
            max_bytes: READ_BYTES,
            isolation: Isolation::Uncommitted,
            at_least_one: true,
        };
        let read = partition
            .read(request)
            .await
            .map_err(|error| error.to_string())?;
        if read.next_offset <= offset {
            return Err(format!("nothing at offset {offset} below {end}"));
        }
        take(shard, &join(&read.slices), offset, &mut loaded)?;
        offset = read.next_offset;
    }
    Ok(loaded)
}

fn join(slices: &[Bytes]) -> Bytes {
    if let [only] = slices {
        return only.clone();
    }
    let mut joined = BytesMut::with_capacity(slices.iter().map(Bytes::len).sum());
    slices
        .iter()
        .for_each(|slice| joined.extend_from_slice(slice));
    joined.freeze()
}

fn take(shard: &Shard, bytes: &Bytes, from: Offset, loaded: &mut Loaded) -> Result<(), String> {
    for batch in BatchIter::new(bytes.clone()) {
        let batch = batch.map_err(|error| error.to_string())?;
        if batch.header.attributes.is_control() {
            continue;
        }
        let records = Records::open(&batch.bytes, MAX_INFLATED_BYTES);
        for record in records.map_err(|error| error.to_string())? {
            let record = record.map_err(|error| error.to_string())?;
            let Some(key) = record.key.filter(|_| record.offset >= from) else {
                continue;
            };
            // Copies: a slice kept for long would keep all that was read with it in memory.
            let key = Bytes::copy_from_slice(&key);
            let value = record.value.map(|value| Bytes::copy_from_slice(&value));
            let fact = record::decode(&key, value.as_ref());
            match fact.map_err(|error| error.to_string())? {
                Fact::Unknown(kind) => {
                    tracing::warn!(kind, "unknown kind of group record left out");
                    continue;
                }
                fact => loaded.note(fact),
            }
            shard.found(key, value);
        }
    }
    Ok(())
}

impl Loaded {
    fn note(&mut self, fact: Fact) {
        match fact {
            Fact::Offset(key, Some(value)) => {
                let topics = self.offsets.entry(key.group).or_default();
                topics
                    .entry(key.topic)
                    .or_default()
                    .insert(key.partition, value);
            }
            Fact::Offset(key, None) => {
                let Some(topics) = self.offsets.get_mut(&key.group) else {
                    return;
                };
                if let Some(partitions) = topics.get_mut(&key.topic) {
                    partitions.remove(&key.partition);
                }
                topics.retain(|_, partitions| !partitions.is_empty());
            }
            Fact::Group(id, Some(value)) => {
                self.groups.insert(id, value);
            }
            Fact::Group(id, None) => {
                self.groups.remove(&id);
            }
            Fact::Unknown(_) => {}
        }
    }
}

/// Forgets offsets in topics that are gone: whoever deleted them did not live to do it.
fn forget_deleted(shard: &Shard, cell: &mut Cell, before: &Image, cluster: &Cluster) {
    let now = cluster.image();
    let mut gone = cell.recorded();
    gone.retain(|(topic, _)| !is_same(&now, before, topic));
    let gone: Vec<_> = gone.into_iter().collect();
    if gone.is_empty() {
        return;
    }
    let group = &cell.machine.id;
    let change = |(topic, index): &(Str, i32)| {
        let key = record::offset_key(group, topic, *index).ok()?;
        Some(Change { key, value: None })
    };
    let changes = gone.iter().filter_map(change).collect();
    // Nobody waits; what is not stored is forgotten again by the next load.
    let (done, _) = oneshot::channel();
    let topics: BTreeSet<&str> = gone.iter().map(|(topic, _)| &**topic).collect();
    match shard.append(changes, Then::Tell(done)) {
        Ok(()) => tracing::info!(group, ?topics, "offsets in deleted topics forgotten"),
        Err(error) => tracing::debug!(group, %error, "offsets in deleted topics kept in the log"),
    }
    cell.forget(&gone);
    cell.sweep(shard);
}

fn install(shard: &Shard, loaded: Loaded, limits: &GroupLimits) {
    let Loaded {
        groups,
        mut offsets,
    } = loaded;
    let now_ms = shard.now_ms();
    let wall_ms = shard.runtime.clock.now_ms();
    for (id, value) in groups {
        let machine = record::restore(&id, &value, now_ms);
        let empty_since_ms = match value.current_state_timestamp {
            -1 => wall_ms,
            given => given,
        };
        let cell = Cell::new(
            machine,
            offsets.remove(&id).unwrap_or_default(),
            empty_since_ms,
        );
        cell.lock().settle(shard, limits);
        shard.put(id.to_string(), cell);
    }
    for (id, offsets) in offsets
        .into_iter()
        .filter(|(_, offsets)| !offsets.is_empty())
    {
        let cell = Cell::new(Group::new(id.to_string()), offsets, wall_ms);
        shard.put(id.to_string(), cell);
    }
}
