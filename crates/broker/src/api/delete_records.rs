//! DeleteRecords (key 21), versions 0-2.
//!
//! v2 flexible. Moves the log start, which is durable before the answer. -1 is the high watermark;
//! at or below the present start it succeeds and changes nothing (K81).

use std::time::Duration;

use tidemill_log::{Appended, Entry};
use tidemill_wire::{
    ErrorCode, Str,
    ids::Offset,
    messages::delete_records::{
        DeleteRecordsPartition, DeleteRecordsPartitionResult, DeleteRecordsRequest,
        DeleteRecordsResponse, DeleteRecordsTopicResult,
    },
};

use super::Context;
use crate::{errors::Refusal, topics::is_internal};

/// The offset that stands for the high watermark.
const HIGH_WATERMARK: i64 = -1;
/// Kafka moves its own log's start before it looks at the time-out, so that 0 succeeds on one
/// replica; here the start is durable first, which needs at least this long.
const TIMEOUT_MIN: Duration = Duration::from_secs(5);

pub(super) async fn handle(
    context: Context,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let deadline = context.received + timeout.max(TIMEOUT_MIN);
    let mut started = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let parts = topic
            .partitions
            .iter()
            .map(|wanted| (wanted.partition_index, start(&context, &topic.name, wanted)));
        let parts: Vec<_> = parts.collect();
        started.push((topic.name, parts));
    }
    let mut topics = Vec::with_capacity(started.len());
    for (name, parts) in started {
        let mut partitions = Vec::with_capacity(parts.len());
        for (partition_index, appended) in parts {
            let outcome = match appended {
                Ok(appended) => wait(&context, appended, deadline).await,
                Err(refusal) => Err(refusal),
            };
            let (low_watermark, error_code) = match outcome {
                Ok(start) => (start.0, ErrorCode::NONE),
                Err(refusal) => (-1, context.error(refusal.code)),
            };
            partitions.push(DeleteRecordsPartitionResult {
                partition_index,
                low_watermark,
                error_code,
            });
        }
        topics.push(DeleteRecordsTopicResult { name, partitions });
    }
    DeleteRecordsResponse {
        topics,
        ..DeleteRecordsResponse::default()
    }
}

fn start(
    context: &Context,
    topic: &Str,
    wanted: &DeleteRecordsPartition,
) -> Result<Appended, Refusal> {
    if is_internal(topic) {
        return Err(ErrorCode::INVALID_TOPIC_EXCEPTION.into());
    }
    let image = context.broker.cluster().image();
    let found = context.broker.find(&image, topic, wanted.partition_index)?;
    let offset = match wanted.offset {
        HIGH_WATERMARK => found.partition.high_watermark(),
        ..HIGH_WATERMARK => return Err(ErrorCode::OFFSET_OUT_OF_RANGE.into()),
        offset => Offset(offset),
    };
    let latency = context.broker.topic_config(&image, &found.topic).latency;
    let entry = Entry::log_start(found.partition.id(), offset, latency);
    let appended = context.broker.log().append(entry)?.pop();
    appended.ok_or(ErrorCode::UNKNOWN_SERVER_ERROR.into())
}

async fn wait(
    context: &Context,
    appended: Appended,
    deadline: tidemill_runtime::Instant,
) -> Result<Offset, Refusal> {
    let clock = &context.broker.runtime().clock;
    match clock.timeout_at(deadline, appended.wait()).await {
        Ok(committed) => Ok(committed?.log_start),
        Err(_) => Err(ErrorCode::REQUEST_TIMED_OUT.into()),
    }
}
