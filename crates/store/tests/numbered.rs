//! Numbered logs over memory.

mod common;

use std::sync::Arc;

use common::{id, joined, object};
use tidemill_runtime::Runtime;
use tidemill_store::{
    CreateOutcome, Envelope, Memory, NumberedLog, ObjectKind, Store, StoreOptions,
};

fn log() -> NumberedLog {
    let runtime = Runtime::simulated(1, 0);
    let memory = Arc::new(Memory::new(runtime.clock.clone()));
    NumberedLog::new(
        Store::new(memory, runtime, StoreOptions::default()),
        "aa/wal/7",
    )
}

#[tokio::test(start_paused = true)]
async fn creates_reads_lists_and_deletes_in_numeric_order() {
    let log = log();
    for n in [0, 9, 10, 4_096, 5] {
        let outcome = log.create(n, object(id(1), b"x"), id(1), None).await;
        assert!(matches!(outcome, Ok(CreateOutcome::Ours)));
    }
    let numbers = |list: Vec<(u64, u64)>| list.into_iter().map(|(n, _)| n).collect::<Vec<_>>();
    assert_eq!(
        numbers(log.list_from(0).await.expect("lists")),
        [0, 5, 9, 10, 4_096]
    );
    assert_eq!(
        numbers(log.list_from(9).await.expect("lists")),
        [9, 10, 4_096]
    );
    assert_eq!(log.head_by_listing().await, Ok(Some(4_096)));
    log.delete(4_096).await.expect("deletes");
    log.delete(4_096).await.expect("deletes what is gone");
    assert_eq!(log.head_by_listing().await, Ok(Some(10)));
    assert_eq!(log.read(4_096).await, Ok(None));
    let whole = joined(&object(id(1), b"x"));
    assert_eq!(
        log.read(10).await.expect("reads").as_deref(),
        Some(&whole[..])
    );
}

#[tokio::test(start_paused = true)]
async fn the_second_creator_gets_the_first_ones_bytes_and_a_resend_is_its_own() {
    let log = log();
    let first = object(id(1), b"first");
    log.create(3, first.clone(), id(1), None)
        .await
        .expect("creates");
    let outcome = log.create(3, object(id(2), b"second"), id(2), None).await;
    let Ok(CreateOutcome::Foreign(bytes)) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(bytes, joined(&first));
    let again = log.create(3, first, id(1), None).await;
    assert!(matches!(again, Ok(CreateOutcome::Ours)), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn a_prefix_of_a_shorter_object_is_the_object() {
    let log = log();
    log.create(1, object(id(1), b"abc"), id(1), None)
        .await
        .expect("creates");
    let whole = joined(&object(id(1), b"abc"));
    assert_eq!(
        log.read_prefix(1, 4_096).await.expect("reads").as_deref(),
        Some(&whole[..])
    );
    let head = log
        .read_prefix(1, Envelope::LEN as u64)
        .await
        .expect("reads")
        .expect("is there");
    let (envelope, directory_len, object_len) = Envelope::decode_header(&head).expect("decodes");
    assert_eq!((envelope.kind, directory_len), (ObjectKind::Wal, 9));
    assert_eq!(object_len, whole.len() as u64);
    assert_eq!(log.read_prefix(2, 4_096).await, Ok(None));
}

#[test]
fn only_twenty_digits_below_the_prefix_are_a_number() {
    let log = log_without_time();
    assert_eq!(log.number_of("aa/wal/7/00000000000000000012"), Some(12));
    assert_eq!(log.number_of(&log.key(u64::MAX)), Some(u64::MAX));
    for other in [
        "aa/wal/7/12",
        "aa/wal/8/00000000000000000012",
        "aa/wal/7/+0000000000000000012",
        "aa/wal/7/00000000000000000012/x",
        "aa/wal/7/99999999999999999999",
    ] {
        assert_eq!(log.number_of(other), None, "{other}");
    }
}

fn log_without_time() -> NumberedLog {
    let runtime = Runtime::system();
    let memory = Arc::new(Memory::new(runtime.clock.clone()));
    NumberedLog::new(
        Store::new(memory, runtime, StoreOptions::default()),
        "aa/wal/7",
    )
}
