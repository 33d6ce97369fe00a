//! `tidemill inspect`: stored objects as text.

use std::io::Write;

use bytes::Bytes;
use tidemill_cluster::format::{decode_entry, decode_snapshot};
use tidemill_runtime::Runtime;
use tidemill_store::{
    Envelope, ObjectKind, Root, Store, StoreErrorKind, envelope::EnvelopeError, is_key,
};

use super::{CommandError, stored::open_to_read};
use crate::cli::Inspect;

/// Runs the command: a key prints the object, a prefix lists what is below it.
///
/// # Errors
/// The data cannot be opened or read, or there is no such object.
pub async fn run(
    args: Inspect,
    runtime: &Runtime,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let store = open_to_read(&args.data, runtime).await?;
    let key = args.key.unwrap_or_default();
    if key.is_empty() {
        return list(&store, &key, &key, out).await;
    }
    if !is_key(key.strip_suffix('/').unwrap_or(&key)) {
        let what = "a key is made of `/`-separated parts of letters, digits and `._=@+-`";
        return Err(CommandError(format!("`{key}` is no key: {what}")));
    }
    if key.ends_with('/') {
        return list(&store, &key, &key, out).await;
    }
    match store.head(&key).await {
        Ok(meta) => print(&store, &key, meta.size, out).await,
        // A folder without its slash is what people type.
        Err(error) if error.kind == StoreErrorKind::NotFound => {
            list(&store, &format!("{key}/"), &key, out).await
        }
        Err(error) => Err(CommandError(error.to_string())),
    }
}

/// Lists what is below `prefix`, which the user called `asked`.
async fn list(
    store: &Store,
    prefix: &str,
    asked: &str,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let folder = prefix.trim_end_matches('/');
    let listed = store
        .list_all(folder)
        .await
        .map_err(|e| CommandError(e.to_string()))?;
    let mut count = 0_u64;
    let mut bytes = 0_u64;
    for meta in listed.iter().filter(|meta| meta.key.starts_with(prefix)) {
        writeln!(out, "{:>12} {}", meta.size, meta.key)?;
        count += 1;
        bytes += meta.size;
    }
    if count == 0 {
        let place = store.describe();
        let what = match asked {
            "" => format!("`{place}` holds no objects"),
            asked => format!("`{place}` holds no object `{asked}`"),
        };
        return Err(CommandError(what));
    }
    writeln!(out, "{count} objects, {bytes} bytes")?;
    Ok(())
}

async fn print(
    store: &Store,
    key: &str,
    size: u64,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let unusable = |error: EnvelopeError| CommandError(format!("`{key}`: {error}"));
    let failed = |error: tidemill_store::StoreError| CommandError(error.to_string());
    let header = store
        .get_range(key, 0..size.min(Envelope::LEN as u64))
        .await
        .map_err(failed)?;
    let needed = tidemill_log::inspect::bytes_needed(&header).map_err(unusable)?;
    let bytes = store
        .get_range(key, 0..needed.min(size))
        .await
        .map_err(failed)?;
    writeln!(out, "key: {key}")?;
    write!(
        out,
        "{}",
        tidemill_log::inspect::render(&bytes).map_err(unusable)?
    )?;
    let (envelope, ..) = Envelope::decode_header(&bytes).map_err(unusable)?;
    contents(envelope.kind, &bytes, out).map_err(|error| match error {
        Failed::Object(error) => unusable(error),
        Failed::Output(error) => error.into(),
    })
}

enum Failed {
    Object(EnvelopeError),
    Output(std::io::Error),
}

impl From<EnvelopeError> for Failed {
    fn from(error: EnvelopeError) -> Self {
        Self::Object(error)
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error)
    }
}

/// What kinds hold that are the metadata's; the others have been printed by the log.
fn contents(kind: ObjectKind, bytes: &Bytes, out: &mut impl Write) -> Result<(), Failed> {
    match kind {
        ObjectKind::Root => {
            let root = Root::decode(bytes)?;
            writeln!(out, "format level: {}", root.format_level)?;
            writeln!(
                out,
                "created: {} by version {}",
                root.created_ms, root.created_by
            )?;
        }
        ObjectKind::Metadata => {
            for change in decode_entry(bytes)?.changes {
                writeln!(out, "{change:#?}")?;
            }
        }
        ObjectKind::MetadataSnapshot => {
            let (_, image) = decode_snapshot(bytes)?;
            writeln!(out, "entries below: {}", image.next())?;
            for writer in image.writers() {
                let state = if writer.sealed.is_some() {
                    "sealed"
                } else {
                    "may write"
                };
                writeln!(
                    out,
                    "writer {}: node {}, {state}",
                    writer.id, writer.registration.node
                )?;
            }
            for topic in image.topics_by_name() {
                let (name, id, count) = (&topic.name, topic.id, topic.partitions.len());
                writeln!(out, "topic {name}: id {id}, {count} partitions")?;
                for (id, partition) in topic.partitions() {
                    let (leader, epoch) = (partition.leader(), partition.epoch);
                    writeln!(
                        out,
                        "  partition {}: writer {leader}, epoch {epoch}",
                        id.index
                    )?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}
