//! Consuming from the start to the present end.

use super::{
    fetch::{FETCH_BY_NAME, FetchSizes, request, walk},
    outcome::Outcome,
    target::{EARLIEST, LATEST, Target, offsets},
};
use crate::error::BenchError;

/// What is done with the bytes that come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Check {
    /// Batch headers are walked, to know the next offset.
    None,
    /// The CRC of every batch is verified too.
    Crc,
    /// Every record is decoded too.
    Decode,
}

/// How to consume.
#[derive(Clone, Debug)]
pub struct ConsumeLoad {
    /// An existing topic.
    pub topic: String,
    /// Its partitions, dealt to the connections.
    pub partitions: i32,
    /// Connections, each with one Fetch in flight.
    pub connections: usize,
    /// Most bytes of an answer.
    pub max_bytes: i32,
    /// Most bytes of a partition in it.
    pub partition_max_bytes: i32,
    /// What is done with them.
    pub check: Check,
}

/// Reads every record there is at the start. Latency is that of a Fetch.
///
/// # Errors
/// A request fails or is refused, an answer is corrupt, or nothing comes for a minute.
pub async fn consume(target: &Target, load: &ConsumeLoad) -> Result<Outcome, BenchError> {
    let client = target.connect().await?;
    let starts = offsets(&client, &load.topic, load.partitions, EARLIEST).await?;
    let ends = offsets(&client, &load.topic, load.partitions, LATEST).await?;
    let start = target.runtime.clock.monotonic();
    let mut running = Vec::new();
    for index in 0..load.connections.max(1) {
        let all = starts.iter().zip(&ends).enumerate();
        let mine: Vec<Place> = all
            .filter(|(partition, _)| partition % load.connections.max(1) == index)
            .map(|(partition, (next, end))| Place {
                partition: partition as i32,
                next: *next,
                end: *end,
            })
            .collect();
        let consuming = consumer(target.clone(), load.clone(), mine);
        running.push(target.runtime.tasks.spawn("bench-consumer", consuming));
    }
    let mut outcome = Outcome::default();
    for consumer in running {
        outcome.merge(&consumer.join().await??);
    }
    let end = target.runtime.clock.monotonic();
    outcome.elapsed = end.saturating_duration_since(start);
    Ok(outcome)
}

/// Answers in a row that brought nothing, each after the broker's longest wait: a minute.
const EMPTY_MAX: u32 = 120;

#[derive(Clone, Copy, Debug)]
struct Place {
    partition: i32,
    next: i64,
    end: i64,
}

async fn consumer(
    target: Target,
    load: ConsumeLoad,
    mut places: Vec<Place>,
) -> Result<Outcome, BenchError> {
    let client = target.connect().await?;
    let clock = &target.runtime.clock;
    let sizes = FetchSizes {
        max_bytes: load.max_bytes,
        partition_max_bytes: load.partition_max_bytes,
    };
    let mut outcome = Outcome::default();
    let mut empty = 0;
    loop {
        places.retain(|place| place.next < place.end);
        if places.is_empty() {
            return Ok(outcome);
        }
        // Each is first in its turn: an answer may be full before the last.
        places.rotate_left(1);
        let from: Vec<_> = places.iter().map(|at| (at.partition, at.next)).collect();
        let request = request(&load.topic, &from, sizes);
        let sent = clock.monotonic();
        let answer = client.call_up_to(FETCH_BY_NAME, &request).await?;
        BenchError::check("fetch", answer.error_code)?;
        let took = clock.monotonic().saturating_duration_since(sent);
        outcome.latency.record(took);
        outcome.requests += 1;
        let before = outcome.bytes;
        for part in answer.responses.iter().flat_map(|topic| &topic.partitions) {
            let found = |place: &&mut Place| place.partition == part.partition_index;
            let Some(place) = places.iter_mut().find(found) else {
                continue;
            };
            let walked = walk(part, place.next, load.check, &mut |_| {})?;
            place.next = walked.next;
            outcome.records += walked.records;
            outcome.bytes += walked.bytes;
        }
        empty = if outcome.bytes == before {
            empty + 1
        } else {
            0
        };
        if empty > EMPTY_MAX {
            let what = format!("`{}` ends before its high watermark", load.topic);
            return Err(BenchError::Failed(what));
        }
    }
}
