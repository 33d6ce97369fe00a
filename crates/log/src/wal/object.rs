//! Encoding and sending WAL objects.

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use tidemill_runtime::{Instant, Runtime};
use tidemill_store::{
    CreateOutcome, Envelope, NumberedLog, ObjectKind, Payload, PutId, StoreError,
};
use tidemill_wire::ids::WriterId;

use super::{Wal, stage::Staged};
use crate::format::wal::{VERSION, WalDirectory, WalEntry};

/// Longest object that may be put in the engine's own turn; copying it takes some microseconds.
const AT_ONCE_MAX: u64 = 64 << 10;

/// A WAL object ready to be sent, and where its body begins.
pub(super) struct Encoded {
    pub payload: Payload,
    pub put_id: PutId,
    pub body_at: u64,
}

/// How a PUT ended.
#[derive(Debug)]
pub(super) struct Landed {
    pub number: u64,
    /// False if somebody else's object stands there.
    pub ours: bool,
    /// When the answer came.
    pub at: Instant,
}

/// The directory's entry of a whole entry whose bytes start at `start` of the body.
pub(super) fn whole(entry: &Staged, start: u64) -> WalEntry {
    WalEntry {
        id: entry.id,
        fragment: 0,
        fragments: 1,
        length: entry.bytes,
        range: start..start + entry.bytes,
        crc: entry.crc,
        deps: entry.deps,
        parts: entry.directory_parts(),
    }
}

fn encode(
    (writer, cluster_id, put_id): (WriterId, [u8; 16], PutId),
    directory: &WalDirectory,
    body: impl Iterator<Item = Bytes>,
) -> Encoded {
    let directory_bytes = directory.encode();
    let body_len = directory.entries.last().map_or(0, |last| last.range.end);
    let envelope = Envelope {
        kind: ObjectKind::Wal,
        version: VERSION,
        must_understand: 0,
        may_ignore: 0,
        put_id,
        cluster_id,
        writer: writer.0,
    };
    let head = envelope.encode(&directory_bytes, body_len);
    let body_at = head.len() as u64;
    let mut payload = Payload::from(head);
    body.for_each(|slice| payload.push(slice));
    Encoded {
        payload,
        put_id,
        body_at,
    }
}

impl Wal {
    pub(super) fn encode(
        &self,
        number: u64,
        decided_below: u64,
        written_ms: i64,
        entries: Vec<WalEntry>,
        body: impl Iterator<Item = Bytes>,
    ) -> Encoded {
        let replay_from = self.replay_from.load(Ordering::Acquire).min(decided_below);
        let directory = WalDirectory {
            number,
            decided_below,
            replay_from,
            written_ms,
            entries,
        };
        let put_id = PutId(self.runtime.entropy.bytes16());
        encode((self.writer, self.cluster_id, put_id), &directory, body)
    }

    /// Sends an object until its outcome is certain (R4), in a task of its own, which ends when the
    /// log stops. A hedge belongs in here: a second `create` with the same bytes, the first answer
    /// wins. Returns what a directory or memory has done at once: a task would be two hand-overs
    /// more, and from the fourth in a row on Tokio wakes another thread each time.
    pub(super) fn send(self: &Arc<Self>, number: u64, object: Encoded) -> Option<Landed> {
        let at_once = self.objects.store().is_local() && object.payload.len() <= AT_ONCE_MAX;
        let mut put = Box::pin(self.clone().put(number, object));
        if at_once
            && let Poll::Ready(done) = put.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            return done;
        }
        let wal = self.clone();
        let send = async move {
            if let Some(done) = put.await {
                wal.note_landed(done);
            }
        };
        self.runtime.tasks.spawn("wal-put", send);
        None
    }

    fn note_landed(&self, landed: Landed) {
        self.landed.lock().push_back(landed);
        self.pushed.notify_one();
    }

    /// `None` if the log has stopped.
    async fn put(self: Arc<Self>, number: u64, object: Encoded) -> Option<Landed> {
        let clock = &self.runtime.clock;
        let sent = clock.monotonic();
        let mut stop = self.stop.subscribe();
        let ours = tokio::select! {
            biased;
            _ = stop.wait_for(Option::is_some) => return None,
            ours = self.create(number, object) => ours,
        };
        let at = clock.monotonic();
        self.stages.put.observe(at.saturating_duration_since(sent));
        Some(Landed { number, ours, at })
    }

    async fn create(&self, number: u64, object: Encoded) -> bool {
        loop {
            let put = self
                .objects
                .create(number, object.payload.clone(), object.put_id, None)
                .await;
            match put {
                Ok(CreateOutcome::Ours) => {
                    self.note_put(object.payload.len()).await;
                    return true;
                }
                Ok(CreateOutcome::Foreign(_)) => return false,
                Err(error) => {
                    let writer = self.writer;
                    tracing::error!(%writer, number, %error, "WAL PUT fails, trying on");
                    self.runtime.clock.sleep(RETRY_PAUSE).await;
                }
            }
        }
    }
}

/// Pause after an error that the store crate does not retry by itself.
const RETRY_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// Why a writer's WAL could not be begun.
#[derive(Debug)]
pub enum StartError {
    /// The store.
    Store(StoreError),
    /// Somebody has sealed this writer before it began.
    Sealed,
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Sealed => f.write_str("writer was sealed before it began"),
        }
    }
}

impl std::error::Error for StartError {}

/// Writes object 0 of a writer's WAL, which is empty. Must have succeeded before the writer leads
/// anything, so that a sealer finds where its WAL begins.
///
/// # Errors
/// The store refuses or `deadline` passed; or somebody sealed the writer.
pub async fn start(
    runtime: &Runtime,
    objects: &NumberedLog,
    writer: WriterId,
    cluster_id: [u8; 16],
    deadline: Option<Instant>,
) -> Result<(), StartError> {
    let directory = WalDirectory {
        number: 0,
        decided_below: 0,
        replay_from: 0,
        written_ms: runtime.clock.now_ms(),
        entries: Vec::new(),
    };
    let put_id = PutId(runtime.entropy.bytes16());
    let object = encode((writer, cluster_id, put_id), &directory, std::iter::empty());
    let left = deadline.map(|end| end.saturating_duration_since(runtime.clock.monotonic()));
    match objects.create(0, object.payload, put_id, left).await {
        Ok(CreateOutcome::Ours) => Ok(()),
        Ok(CreateOutcome::Foreign(_)) => Err(StartError::Sealed),
        Err(error) => Err(StartError::Store(error)),
    }
}
