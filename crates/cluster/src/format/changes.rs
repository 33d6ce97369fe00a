//! The changes an entry of the metadata log is made of.

use std::collections::BTreeMap;

use tidemill_log::format::codec::{Reader, Writer};
use tidemill_store::{FORMAT_LEVEL, PutId, envelope::EnvelopeError};
use tidemill_wire::ids::{LeaderEpoch, NodeId, PartitionId, TopicId, WriterId};

use super::malformed;

/// An address clients may use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// The listener's name, for example `PLAINTEXT`.
    pub name: String,
    /// The host as advertised.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Format levels a broker reads and writes, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerLevels {
    /// Lowest level it reads.
    pub read_min: u32,
    /// Highest level it reads.
    pub read_max: u32,
    /// Highest level it writes.
    pub write_max: u32,
}

/// One broker incarnation announces itself. The entry's number is its writer id, so an entry holds
/// at most one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerRegistration {
    /// Kafka's broker id.
    pub node: NodeId,
    /// Where clients reach it.
    pub listeners: Vec<Listener>,
    /// Rack, if it has one.
    pub rack: Option<String>,
    /// What it reads and writes.
    pub levels: BrokerLevels,
    /// When it started, Unix milliseconds of its clock; for reports only (R6).
    pub started_ms: i64,
}

impl BrokerRegistration {
    /// Of this build, with no listener and no rack.
    #[must_use]
    pub const fn new(node: NodeId, started_ms: i64) -> Self {
        Self {
            node,
            listeners: Vec::new(),
            rack: None,
            levels: BrokerLevels {
                read_min: FORMAT_LEVEL,
                read_max: FORMAT_LEVEL,
                write_max: FORMAT_LEVEL,
            },
            started_ms,
        }
    }
}

/// A writer's WAL and checkpoint log, as they were closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedWal {
    /// Number of the closing checkpoint in the writer's checkpoint log.
    pub checkpoint: u64,
    /// Put id of the closing checkpoint.
    pub checkpoint_put_id: PutId,
    /// Highest landed WAL number; none if nothing ever landed.
    pub last: Option<u64>,
}

/// A partition as a new one starts: its leader is the topic's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPartition {
    /// Its first leader epoch.
    pub epoch: LeaderEpoch,
}

/// A topic as it was created; its partitions are 0 to `partitions - 1`, all led by `leader`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// The topic's id, random.
    pub id: TopicId,
    /// Its name.
    pub name: String,
    /// Number of partitions, at least 1.
    pub partitions: u32,
    /// As asked for by the client, echoed to it (K59); data is as durable as the store whatever it
    /// is.
    pub replication_factor: i16,
    /// Configurations set explicitly.
    pub configs: BTreeMap<String, String>,
    /// The first leader of all partitions.
    pub leader: WriterId,
    /// The first epoch of all partitions.
    pub epoch: LeaderEpoch,
    /// The lowest WAL number of the leader that may hold an entry of the topic.
    pub first_wal: u64,
}

/// One partition's new tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartedTenure {
    /// The partition.
    pub partition: PartitionId,
    /// Its new leader epoch.
    pub epoch: LeaderEpoch,
    /// The new leader.
    pub writer: WriterId,
    /// The lowest WAL number of the leader that may hold an entry of the partition.
    pub first_wal: u64,
}

/// One change. Scope: the cluster. Each has a persisted kind, never renumbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Kind 1. A broker starts; the entry's number is its writer id.
    BrokerRegistered(BrokerRegistration),
    /// Kind 2. A writer is closed for ever: its WAL and its checkpoint log have been.
    WriterSealed {
        /// The writer.
        writer: WriterId,
        /// What was closed.
        closed: ClosedWal,
    },
    /// Kind 3. A topic is created.
    TopicCreated(NewTopic),
    /// Kind 4. A topic gets more partitions.
    PartitionsAdded {
        /// The topic.
        topic: TopicId,
        /// Number of partitions afterwards.
        total: u32,
        /// First leader of the added ones.
        leader: WriterId,
        /// First epoch of the added ones.
        epoch: LeaderEpoch,
        /// The lowest WAL number of the leader that may hold an entry of theirs.
        first_wal: u64,
    },
    /// Kind 5. A topic is gone for clients; its id is kept until nothing of it is left.
    TopicDeleted {
        /// The topic.
        topic: TopicId,
    },
    /// Kind 6. Nothing of a deleted topic is left.
    TopicForgotten {
        /// The topic.
        topic: TopicId,
    },
    /// Kind 7. Sets (or, with none, removes) configurations of a topic.
    TopicConfigsSet {
        /// The topic.
        topic: TopicId,
        /// Key to new value.
        configs: BTreeMap<String, Option<String>>,
    },
    /// Kind 8. Sets (or, with none, removes) dynamic broker configurations.
    BrokerConfigsSet {
        /// The broker; none for the cluster-wide default.
        node: Option<NodeId>,
        /// Key to new value.
        configs: BTreeMap<String, Option<String>>,
    },
    /// Kind 9. Partitions get a new leader, each by itself.
    TenuresStarted(Vec<StartedTenure>),
    /// Kind 10. All partitions led by a sealed writer go to another one, each with the next epoch.
    TenuresInherited {
        /// The sealed writer.
        from: WriterId,
        /// The new leader.
        to: WriterId,
        /// The lowest WAL number of the new leader that may hold an entry of theirs.
        first_wal: u64,
    },
    /// Kind 11. From here on, objects of this format level may be written.
    FinalizedLevel {
        /// The level.
        level: u32,
    },
}

/// Kinds from here on may be skipped by a broker that does not know them. Below, 12 to 31 are
/// reserved: 12 ACLs added, 13 ACLs removed, 14 SCRAM user set, 15 SCRAM user removed, 16 quotas
/// set, 17 Released, 18 writer forgotten.
pub(super) const MAY_IGNORE_FROM: u16 = 0x8000;

impl Change {
    /// The persisted kind.
    #[must_use]
    pub fn kind(&self) -> u16 {
        match self {
            Self::BrokerRegistered(_) => 1,
            Self::WriterSealed { .. } => 2,
            Self::TopicCreated(_) => 3,
            Self::PartitionsAdded { .. } => 4,
            Self::TopicDeleted { .. } => 5,
            Self::TopicForgotten { .. } => 6,
            Self::TopicConfigsSet { .. } => 7,
            Self::BrokerConfigsSet { .. } => 8,
            Self::TenuresStarted(_) => 9,
            Self::TenuresInherited { .. } => 10,
            Self::FinalizedLevel { .. } => 11,
        }
    }

    pub(super) fn encode(&self, out: &mut Writer) {
        match self {
            Self::BrokerRegistered(registration) => registration.encode(out),
            Self::WriterSealed { writer, closed } => {
                out.u64(writer.0);
                closed.encode(out);
            }
            Self::TopicCreated(topic) => topic.encode(out),
            Self::PartitionsAdded {
                topic,
                total,
                leader,
                epoch,
                first_wal,
            } => {
                out.raw(&topic.0);
                out.u32(*total);
                out.u64(leader.0);
                out.i32(epoch.0);
                out.u64(*first_wal);
            }
            Self::TopicDeleted { topic } | Self::TopicForgotten { topic } => out.raw(&topic.0),
            Self::TopicConfigsSet { topic, configs } => {
                out.raw(&topic.0);
                encode_updates(configs, out);
            }
            Self::BrokerConfigsSet { node, configs } => {
                out.option(node.as_ref(), |out, node| out.i32(node.0));
                encode_updates(configs, out);
            }
            Self::TenuresStarted(tenures) => {
                out.list(tenures, |out, tenure| tenure.encode(out));
            }
            Self::TenuresInherited {
                from,
                to,
                first_wal,
            } => {
                out.u64(from.0);
                out.u64(to.0);
                out.u64(*first_wal);
            }
            Self::FinalizedLevel { level } => out.u32(*level),
        }
    }

    /// None for a kind that may be ignored.
    pub(super) fn decode(kind: u16, body: &mut Reader<'_>) -> Result<Option<Self>, EnvelopeError> {
        Ok(Some(match kind {
            1 => Self::BrokerRegistered(BrokerRegistration::decode(body)?),
            2 => Self::WriterSealed {
                writer: WriterId(body.u64()?),
                closed: ClosedWal::decode(body)?,
            },
            3 => Self::TopicCreated(NewTopic::decode(body)?),
            4 => Self::PartitionsAdded {
                topic: body.topic()?,
                total: body.u32()?,
                leader: WriterId(body.u64()?),
                epoch: LeaderEpoch(body.i32()?),
                first_wal: body.u64()?,
            },
            5 => Self::TopicDeleted {
                topic: body.topic()?,
            },
            6 => Self::TopicForgotten {
                topic: body.topic()?,
            },
            7 => Self::TopicConfigsSet {
                topic: body.topic()?,
                configs: decode_updates(body)?,
            },
            8 => Self::BrokerConfigsSet {
                node: body.option(|body| Ok(NodeId(body.i32()?)))?,
                configs: decode_updates(body)?,
            },
            9 => Self::TenuresStarted(body.list(StartedTenure::decode)?),
            10 => Self::TenuresInherited {
                from: WriterId(body.u64()?),
                to: WriterId(body.u64()?),
                first_wal: body.u64()?,
            },
            11 => Self::FinalizedLevel { level: body.u32()? },
            MAY_IGNORE_FROM.. => return Ok(None),
            _ => {
                let what = format!("metadata change kind {kind}");
                return Err(EnvelopeError::TooNew { what });
            }
        }))
    }
}

impl BrokerRegistration {
    pub(super) fn encode(&self, out: &mut Writer) {
        out.i32(self.node.0);
        out.list(&self.listeners, |out, listener| {
            out.string(&listener.name);
            out.string(&listener.host);
            out.u16(listener.port);
        });
        out.option(self.rack.as_ref(), |out, rack| out.string(rack));
        out.u32(self.levels.read_min);
        out.u32(self.levels.read_max);
        out.u32(self.levels.write_max);
        out.i64(self.started_ms);
    }

    pub(super) fn decode(body: &mut Reader<'_>) -> Result<Self, EnvelopeError> {
        Ok(Self {
            node: NodeId(body.i32()?),
            listeners: body.list(|body| {
                Ok(Listener {
                    name: body.string()?,
                    host: body.string()?,
                    port: body.u16()?,
                })
            })?,
            rack: body.option(Reader::string)?,
            levels: BrokerLevels {
                read_min: body.u32()?,
                read_max: body.u32()?,
                write_max: body.u32()?,
            },
            started_ms: body.i64()?,
        })
    }
}

impl ClosedWal {
    pub(super) fn encode(&self, out: &mut Writer) {
        out.u64(self.checkpoint);
        out.raw(&self.checkpoint_put_id.0);
        out.option(self.last.as_ref(), |out, last| out.u64(*last));
    }

    pub(super) fn decode(body: &mut Reader<'_>) -> Result<Self, EnvelopeError> {
        Ok(Self {
            checkpoint: body.u64()?,
            checkpoint_put_id: PutId(body.array()?),
            last: body.option(Reader::u64)?,
        })
    }
}

impl NewTopic {
    fn encode(&self, out: &mut Writer) {
        out.raw(&self.id.0);
        out.string(&self.name);
        out.u32(self.partitions);
        out.u16(self.replication_factor.cast_unsigned());
        encode_configs(&self.configs, out);
        out.u64(self.leader.0);
        out.i32(self.epoch.0);
        out.u64(self.first_wal);
    }

    fn decode(body: &mut Reader<'_>) -> Result<Self, EnvelopeError> {
        Ok(Self {
            id: body.topic()?,
            name: body.string()?,
            partitions: partition_count(body.u32()?)?,
            replication_factor: body.u16()?.cast_signed(),
            configs: decode_configs(body)?,
            leader: WriterId(body.u64()?),
            epoch: LeaderEpoch(body.i32()?),
            first_wal: body.u64()?,
        })
    }
}

impl StartedTenure {
    fn encode(&self, out: &mut Writer) {
        out.raw(&self.partition.topic.0);
        out.i32(self.partition.index);
        out.i32(self.epoch.0);
        out.u64(self.writer.0);
        out.u64(self.first_wal);
    }

    fn decode(body: &mut Reader<'_>) -> Result<Self, EnvelopeError> {
        Ok(Self {
            partition: PartitionId {
                topic: body.topic()?,
                index: body.i32()?,
            },
            epoch: LeaderEpoch(body.i32()?),
            writer: WriterId(body.u64()?),
            first_wal: body.u64()?,
        })
    }
}

/// A topic with more partitions than this is damage, not data: one object of this size would not
/// have been written.
const PARTITIONS_MAX: u32 = 1_000_000;

/// Refuses a count that would allocate what no broker ever wrote.
fn partition_count(count: u32) -> Result<u32, EnvelopeError> {
    if count == 0 || count > PARTITIONS_MAX {
        return Err(malformed(format!("a topic of {count} partitions")));
    }
    Ok(count)
}

pub(super) fn encode_configs(configs: &BTreeMap<String, String>, out: &mut Writer) {
    out.list(configs, |out, (key, value)| {
        out.string(key);
        out.string(value);
    });
}

pub(super) fn decode_configs(
    body: &mut Reader<'_>,
) -> Result<BTreeMap<String, String>, EnvelopeError> {
    let pairs = body.list(|body| Ok((body.string()?, body.string()?)))?;
    Ok(pairs.into_iter().collect())
}

fn encode_updates(configs: &BTreeMap<String, Option<String>>, out: &mut Writer) {
    out.list(configs, |out, (key, value)| {
        out.string(key);
        out.option(value.as_ref(), |out, value| out.string(value));
    });
}

fn decode_updates(
    body: &mut Reader<'_>,
) -> Result<BTreeMap<String, Option<String>>, EnvelopeError> {
    let pairs = body.list(|body| Ok((body.string()?, body.option(Reader::string)?)))?;
    Ok(pairs.into_iter().collect())
}
