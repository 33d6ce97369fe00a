//! Stored metadata objects as text; everything else is the log's to show.

use std::fmt::Write as _;

use bytes::Bytes;
use tidemill_store::{Envelope, ObjectKind, Root, envelope::EnvelopeError};

use crate::{
    format::{decode_entry, decode_snapshot},
    image::Image,
};

pub use tidemill_log::inspect::bytes_needed;

/// Any stored object as lines of text; `bytes` are at least [`bytes_needed`].
///
/// # Errors
/// The bytes are short, damaged, foreign or newer than this broker.
pub fn render(bytes: &Bytes) -> Result<String, EnvelopeError> {
    let (envelope, _, _) = Envelope::decode_header(bytes)?;
    let mut out = tidemill_log::inspect::render(bytes)?;
    // Writing to a string never fails.
    match envelope.kind {
        ObjectKind::Root => {
            let root = Root::decode(bytes)?;
            let _ = writeln!(out, "format level: {}", root.format_level);
            let _ = writeln!(
                out,
                "created: {} (Unix ms) by {}",
                root.created_ms, root.created_by
            );
        }
        ObjectKind::Metadata => {
            for change in decode_entry(bytes)?.changes {
                let _ = writeln!(out, "kind {}: {change:?}", change.kind());
            }
        }
        ObjectKind::MetadataSnapshot => {
            let (_, image) = decode_snapshot(bytes)?;
            snapshot(&mut out, &image);
        }
        _ => {}
    }
    Ok(out)
}

fn snapshot(out: &mut String, image: &Image) {
    let _ = writeln!(out, "next entry: {}", image.next());
    let _ = writeln!(out, "finalized level: {}", image.finalized_level());
    for writer in image.writers() {
        let node = writer.registration.node;
        let _ = match writer.sealed {
            Some(closed) => writeln!(out, "writer {} (node {node}): {closed:?}", writer.id),
            None => writeln!(out, "writer {} (node {node})", writer.id),
        };
    }
    for topic in image.topics().chain(image.deleted_topics()) {
        let deleted = if image.topic(topic.id).is_none() {
            ", deleted"
        } else {
            ""
        };
        let (name, count) = (&topic.name, topic.partitions.len());
        let _ = writeln!(
            out,
            "topic {name} ({}): {count} partitions{deleted}",
            topic.id
        );
        for (key, value) in topic.configs.iter() {
            let _ = writeln!(out, "  {key} = {value}");
        }
    }
}
