//! A small sealer: markers over the span, second look, bitmap. The real one is in the cluster
//! crate.

use std::collections::BTreeSet;

use tidemill_log::{
    format::{checkpoint::ClosingCheckpoint, wal::WalDirectory},
    recover::SealedWal,
    types::WAL_SPAN,
};
use tidemill_store::{
    CreateOutcome, Envelope, NumberedLog, ObjectKind, Payload, PutId, envelope::EnvelopeError,
};
use tidemill_wire::ids::WriterId;

use crate::harness::{CLUSTER, World};

enum Found {
    Real { decided_below: u64 },
    Marker,
    Nothing,
}

async fn find(wal: &NumberedLog, number: u64) -> Found {
    loop {
        let Ok(bytes) = wal.read(number).await else {
            continue;
        };
        let Some(bytes) = bytes else {
            return Found::Nothing;
        };
        match WalDirectory::decode_object(&bytes) {
            Ok((_, directory, _)) => {
                return Found::Real {
                    decided_below: directory.decided_below,
                };
            }
            Err(EnvelopeError::WrongKind { .. }) => return Found::Marker,
            // The store's answers may be damaged in these tests, its objects never are.
            Err(_) => {}
        }
    }
}

async fn close(world: &World, wal: &NumberedLog, number: u64) -> bool {
    let put_id = PutId(world.runtime.entropy.bytes16());
    let envelope = Envelope {
        kind: ObjectKind::ClosedMarker,
        version: 1,
        must_understand: 0,
        may_ignore: 0,
        put_id,
        cluster_id: CLUSTER,
        writer: 0,
    };
    let body = Payload::from(envelope.encode(b"", 0));
    let outcome = wal
        .create(number, body, put_id, None)
        .await
        .expect("it is tried for ever");
    matches!(outcome, CreateOutcome::Ours)
}

/// Seals the WAL of `writer`, whose newest checkpoint has this `replay_from`.
pub async fn seal(world: &World, writer: u64, replay_from: u64) -> SealedWal {
    let wal = world.wal(writer);
    loop {
        let mut floor = 0;
        let mut landed = BTreeSet::new();
        let mut number = replay_from;
        loop {
            let beyond = landed.last().map_or(replay_from, |last| last + 1);
            if number >= beyond + WAL_SPAN {
                break;
            }
            match find(&wal, number).await {
                Found::Nothing if close(world, &wal, number).await => {}
                // Somebody was faster: look again.
                Found::Nothing => continue,
                Found::Marker => {}
                Found::Real { decided_below } => {
                    floor = floor.max(decided_below);
                    landed.insert(number);
                }
            }
            number += 1;
        }
        let highest = landed.last().copied().unwrap_or(0);
        let mut above = false;
        for (number, _) in wal.list_from(highest + 1).await.expect("the store lists") {
            above |= matches!(find(&wal, number).await, Found::Real { .. });
        }
        if !above {
            let landed = landed.into_iter().filter(|number| *number >= floor);
            let closing = ClosingCheckpoint::new(None, floor, landed);
            return SealedWal {
                writer: WriterId(writer),
                replay_from,
                closing,
            };
        }
    }
}
