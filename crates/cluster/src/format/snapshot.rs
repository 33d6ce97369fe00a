//! A snapshot of the image.
//!
//! Scope: the cluster. Mutability: none; named by the last entry it holds, `meta-snap/<n>`; only a
//! shortcut, the entries are never trimmed. Layout of the directory (little endian), no body: u64
//! next entry, u32 finalized level, writers, lineage nodes (each before those that follow it),
//! topics, deleted topics, broker configurations. A topic's partitions are run-length coded.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use tidemill_log::format::codec::{Reader, Writer};
use tidemill_store::{Envelope, ObjectKind, PutId, envelope::EnvelopeError};
use tidemill_wire::ids::{LeaderEpoch, NodeId, WriterId};

use super::{
    SNAPSHOT_VERSION,
    changes::{BrokerRegistration, ClosedWal, decode_configs, encode_configs},
    malformed,
};
use crate::image::{Image, Lineage, PartitionState, Topic, WriterState};

/// The bytes of a snapshot of `image`.
#[must_use]
pub fn encode_snapshot(
    image: &Image,
    put_id: PutId,
    cluster_id: [u8; 16],
    writer: WriterId,
) -> Bytes {
    let mut nodes = Nodes::default();
    let topics: Vec<_> = image.topics().collect();
    let deleted: Vec<_> = image.deleted_topics().collect();
    for topic in topics.iter().chain(&deleted) {
        for partition in topic.partitions.iter() {
            nodes.add(&partition.lineage);
        }
    }
    let mut out = Writer::default();
    out.u64(image.next());
    out.u32(image.finalized_level());
    let writers: Vec<_> = image.writers().collect();
    out.list(writers, |out, state| {
        out.u64(state.id.0);
        state.registration.encode(out);
        out.option(state.sealed.as_ref(), |out, closed| closed.encode(out));
    });
    out.list(&nodes.order, |out, node| {
        out.u64(node.writer.0);
        out.u64(node.first_wal);
        out.option(node.last_wal, Writer::u64);
        out.i32(node.epoch_step);
        let previous = node.previous().map(|previous| nodes.index(previous));
        out.option(previous, Writer::u32);
    });
    for list in [topics, deleted] {
        out.list(list, |out, topic| encode_topic(topic, &nodes, out));
    }
    let configs: Vec<_> = image.all_broker_configs().collect();
    out.list(configs, |out, (node, configs)| {
        out.option(node, |out, node| out.i32(node.0));
        encode_configs(configs, out);
    });
    let envelope = Envelope {
        kind: ObjectKind::MetadataSnapshot,
        version: SNAPSHOT_VERSION,
        must_understand: 0,
        may_ignore: 0,
        put_id,
        cluster_id,
        writer: writer.0,
    };
    envelope.encode(&out.finish(), 0)
}

/// Numbers the lineage nodes in use, each after the one before it.
#[derive(Default)]
struct Nodes {
    order: Vec<Arc<Lineage>>,
    index: BTreeMap<*const Lineage, u32>,
}

impl Nodes {
    fn add(&mut self, newest: &Arc<Lineage>) {
        let mut missing = Vec::new();
        let mut at = Some(newest);
        while let Some(node) = at
            && !self.index.contains_key(&Arc::as_ptr(node))
        {
            missing.push(node);
            at = node.previous();
        }
        for node in missing.into_iter().rev() {
            let index = u32::try_from(self.order.len()).expect("fewer than 4 G tenures");
            self.index.insert(Arc::as_ptr(node), index);
            self.order.push(Arc::clone(node));
        }
    }

    fn index(&self, node: &Arc<Lineage>) -> u32 {
        let index = self.index.get(&Arc::as_ptr(node));
        *index.expect("all nodes in use were added before")
    }
}

fn encode_topic(topic: &Topic, nodes: &Nodes, out: &mut Writer) {
    out.raw(&topic.id.0);
    out.string(&topic.name);
    out.u16(topic.replication_factor.cast_unsigned());
    out.u64(topic.created);
    encode_configs(&topic.configs, out);
    let same = |a: &PartitionState, b: &PartitionState| {
        a.epoch == b.epoch && Arc::ptr_eq(&a.lineage, &b.lineage)
    };
    let runs: Vec<_> = topic.partitions.chunk_by(same).collect();
    out.list(runs, |out, run| {
        out.count(run.len());
        out.i32(run[0].epoch.0);
        out.u32(nodes.index(&run[0].lineage));
    });
}

/// Reads a snapshot; returns its cluster id, too.
///
/// # Errors
/// [`EnvelopeError`] if the bytes are damaged, foreign, or of a newer broker.
pub fn decode_snapshot(bytes: &Bytes) -> Result<([u8; 16], Image), EnvelopeError> {
    let kind = ObjectKind::MetadataSnapshot;
    let (envelope, directory) = Envelope::decode_whole(bytes, kind, SNAPSHOT_VERSION)?;
    let mut body = Reader::new(&directory, "metadata snapshot");
    let mut image = Image {
        next: body.u64()?,
        finalized_level: body.u32()?,
        ..Image::default()
    };
    for state in body.list(decode_writer)? {
        image.writers.insert(state.id, Arc::new(state));
    }
    let mut nodes = Vec::new();
    body.list(|body| decode_node(body, &mut nodes))?;
    let topics = body.list(|body| decode_topic(body, &nodes))?;
    for topic in topics {
        image.restore_topic(topic);
    }
    for topic in body.list(|body| decode_topic(body, &nodes))? {
        image.deleted.insert(topic.id, Arc::new(topic));
    }
    let configs = body.list(|body| {
        let node = body.option(|body| Ok(NodeId(body.i32()?)))?;
        Ok((node, Arc::new(decode_configs(body)?)))
    })?;
    image.broker_configs = Arc::new(configs.into_iter().collect());
    body.finish()?;
    Ok((envelope.cluster_id, image))
}

fn decode_writer(body: &mut Reader<'_>) -> Result<WriterState, EnvelopeError> {
    Ok(WriterState {
        id: WriterId(body.u64()?),
        registration: BrokerRegistration::decode(body)?,
        sealed: body.option(ClosedWal::decode)?,
    })
}

fn decode_node(body: &mut Reader<'_>, nodes: &mut Vec<Arc<Lineage>>) -> Result<(), EnvelopeError> {
    let writer = WriterId(body.u64()?);
    let first_wal = body.u64()?;
    let last_wal = body.option(Reader::u64)?;
    let epoch_step = body.i32()?;
    let previous = match body.option(Reader::u32)? {
        Some(index) => Some(node_at(nodes, index)?),
        None => None,
    };
    nodes.push(Arc::new(Lineage {
        writer,
        first_wal,
        last_wal,
        epoch_step,
        previous,
    }));
    Ok(())
}

fn node_at(nodes: &[Arc<Lineage>], index: u32) -> Result<Arc<Lineage>, EnvelopeError> {
    let node = nodes.get(index as usize).map(Arc::clone);
    node.ok_or_else(|| malformed(format!("tenure {index} of {}", nodes.len())))
}

/// See the bound of a created topic.
const PARTITIONS_MAX: usize = 1_000_000;

fn decode_topic(body: &mut Reader<'_>, nodes: &[Arc<Lineage>]) -> Result<Topic, EnvelopeError> {
    let id = body.topic()?;
    let name = body.string()?.into();
    let replication_factor = body.u16()?.cast_signed();
    let created = body.u64()?;
    let configs = Arc::new(decode_configs(body)?);
    let mut partitions = Vec::new();
    body.list(|body| {
        let total = partitions.len() + body.u32()? as usize;
        if total > PARTITIONS_MAX {
            return Err(malformed(format!("a topic of {total} partitions")));
        }
        let state = PartitionState {
            epoch: LeaderEpoch(body.i32()?),
            lineage: node_at(nodes, body.u32()?)?,
        };
        partitions.resize(total, state);
        Ok(())
    })?;
    Ok(Topic {
        id,
        name,
        replication_factor,
        configs,
        partitions: Arc::new(partitions),
        created,
    })
}
