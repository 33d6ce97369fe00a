//! Reads of one partition, with the log's errors as Kafka's codes.

use std::sync::Arc;

use tidemill_log::{
    Partition,
    read::{Isolation, ReadError, ReadRequest, ReadResult, TimestampOffset},
};
use tidemill_wire::{ErrorCode, Slice};

use crate::Broker;

/// Reads from memory, or from local files that were checked a moment ago; `None` if the store would
/// be needed.
pub(crate) fn try_read(
    partition: &Partition,
    request: &ReadRequest,
) -> Option<Result<ReadResult<Slice>, ErrorCode>> {
    partition
        .try_read_to_send(request)
        .map_err(|error| code(partition, error))
        .transpose()
}

/// Reads what lies in local files; `None` where more is needed, and nothing if there are no files.
pub(crate) async fn read_files(
    broker: &Broker,
    wanted: Vec<(Arc<Partition>, ReadRequest)>,
) -> Vec<Option<Result<ReadResult<Slice>, ErrorCode>>> {
    let partitions: Vec<_> = wanted
        .iter()
        .map(|(partition, _)| Arc::clone(partition))
        .collect();
    let read = broker.log().reader().read_files(wanted).await;
    let coded = partitions
        .iter()
        .zip(read)
        .map(|(partition, read)| read.map(|read| read.map_err(|error| code(partition, error))));
    coded.collect()
}

/// Reads, from the store if need be; what lies in local files may stay there.
pub(crate) async fn read(
    partition: Arc<Partition>,
    request: ReadRequest,
) -> Result<ReadResult<Slice>, ErrorCode> {
    partition
        .read_to_send(request)
        .await
        .map_err(|error| code(&partition, error))
}

/// The first record at or after `timestamp` (K16).
pub(crate) async fn offset_for_timestamp(
    partition: &Partition,
    timestamp: i64,
    isolation: Isolation,
) -> Result<Option<TimestampOffset>, ErrorCode> {
    let found = partition.offset_for_timestamp(timestamp, isolation).await;
    found.map_err(|error| code(partition, error))
}

/// The newest record by time (K18).
pub(crate) async fn max_timestamp(
    partition: &Partition,
) -> Result<Option<TimestampOffset>, ErrorCode> {
    partition
        .max_timestamp()
        .await
        .map_err(|error| code(partition, error))
}

fn code(partition: &Partition, error: ReadError) -> ErrorCode {
    match error {
        ReadError::OutOfRange => ErrorCode::OFFSET_OUT_OF_RANGE,
        ReadError::Gone(_) => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ReadError::Corrupt { .. } => {
            tracing::error!(partition = %partition.id(), %error, "stored data is corrupt");
            ErrorCode::CORRUPT_MESSAGE
        }
        ReadError::Store(_) => {
            tracing::warn!(partition = %partition.id(), %error, "read failed");
            ErrorCode::KAFKA_STORAGE_ERROR
        }
    }
}
