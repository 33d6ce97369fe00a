//! What a producer sees.

use tidemill_wire::ids::Offset;

use crate::harness::{append, batch, lead, simulate};

#[test]
fn offsets_are_dense_and_visible_only_once_durable() {
    simulate(1, |world| async move {
        let log = world.open(5).await;
        let partition = lead(&log, 0);
        let first = append(&log, 0, batch(b"a", 3));
        let second = append(&log, 0, batch(b"b", 2));
        assert_eq!(
            partition.high_watermark(),
            Offset(0),
            "nothing is durable yet"
        );
        assert_eq!(partition.log_end(), Offset(5));
        let (first, second) = (first.wait().await.unwrap(), second.wait().await.unwrap());
        assert_eq!(
            (first.base_offset, first.last_offset),
            (Offset(0), Offset(2))
        );
        assert_eq!(
            (second.base_offset, second.last_offset),
            (Offset(3), Offset(4))
        );
        assert_eq!(partition.high_watermark(), Offset(5));
        assert_eq!(log.pending_bytes(), 0);
    });
}
