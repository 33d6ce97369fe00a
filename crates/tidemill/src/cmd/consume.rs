//! `tidemill consume`: records to standard output.

use std::{collections::BTreeMap, io::Write, time::Duration};

use tidemill_client::{Client, ClientError};
use tidemill_runtime::Runtime;
use tidemill_wire::{
    batch::{BatchIter, Record, Records, StoredBatch},
    codec::Str,
    errors::ErrorCode,
    messages::{
        FetchRequest, FetchResponse,
        fetch::{FetchPartition, FetchTopic, PartitionData},
    },
};

use super::{CommandError, check, connect, offsets};
use crate::cli::Consume;

/// Names topics instead of ids: the newest version that does.
const FETCH_BY_NAME: i16 = 12;
const MAX_WAIT_MS: i32 = 500;
const PARTITION_BYTES: i32 = 1 << 20;
/// Between two tries to reach a broker that is gone: a restart takes less than a second.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

struct Progress {
    /// Next offset per partition.
    next: BTreeMap<i32, i64>,
    /// Where to end, with `--exit`.
    end: Option<BTreeMap<i32, i64>>,
    left: Option<u64>,
}

impl Progress {
    fn is_done(&self) -> bool {
        let reached = |end: &BTreeMap<i32, i64>| {
            self.next
                .iter()
                .all(|(index, next)| end.get(index).is_none_or(|end| next >= end))
        };
        self.left == Some(0) || self.end.as_ref().is_some_and(reached)
    }
}

/// Runs the command.
pub async fn run(
    args: Consume,
    runtime: &Runtime,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let mut client = connect(&args.to, runtime).await?;
    let metadata = client
        .metadata(Some(std::slice::from_ref(&args.topic)))
        .await?;
    let Some(topic) = metadata.topics.first() else {
        return Err(CommandError(format!(
            "the broker said nothing of `{}`",
            args.topic
        )));
    };
    check(&args.topic, topic.error_code, None)?;
    let mut indexes: Vec<i32> = topic
        .partitions
        .iter()
        .map(|part| part.partition_index)
        .collect();
    if let Some(only) = args.partition {
        indexes.retain(|index| *index == only);
    }
    if indexes.is_empty() {
        return Err(CommandError(format!(
            "`{}` has no such partition",
            args.topic
        )));
    }
    indexes.sort_unstable();
    let next = start(&client, &args, &indexes).await?;
    let end = match args.exit {
        true => Some(offsets::list(&client, &args.topic, &indexes, offsets::LATEST).await?),
        false => None,
    };
    let mut progress = Progress {
        next,
        end,
        left: args.count,
    };
    while !progress.is_done() {
        match fetch(&client, &args, &progress).await {
            Ok(answer) => {
                let passed = take(&answer, &args, &mut progress, out)?;
                if !passed.is_empty() {
                    go_on_at_the_start(&client, &args, &passed, &mut progress).await?;
                }
            }
            // Whoever waits for more waits for the broker as well.
            Err(error) if !args.exit => client = again(&args, runtime, &error).await,
            Err(error) => return Err(error.into()),
        }
    }
    out.flush()?;
    Ok(())
}

/// From where an offset is read in each partition: within what is there.
///
/// # Errors
/// It lies beyond the end of every one.
async fn within(
    client: &Client,
    topic: &str,
    indexes: &[i32],
    offset: i64,
) -> Result<BTreeMap<i32, i64>, CommandError> {
    let starts = offsets::list(client, topic, indexes, offsets::EARLIEST).await?;
    let ends = offsets::list(client, topic, indexes, offsets::LATEST).await?;
    if let Some((index, end)) = ends.first_key_value()
        && ends.values().all(|end| *end < offset)
    {
        let what = format!("`{topic}-{index}` ends at {end}: there is no offset {offset}");
        return Err(CommandError(what));
    }
    let from = |(index, end): (&i32, &i64)| {
        let start = starts.get(index).copied().unwrap_or(0);
        if offset < start {
            crate::complain(&format!("`{topic}-{index}` begins at {start}"));
        }
        (*index, offset.clamp(start, start.max(*end)))
    };
    Ok(ends.iter().map(from).collect())
}

/// Retention or DeleteRecords has passed a slow reader.
///
/// # Errors
/// The log has not that offset yet: it is another one of the same name.
async fn go_on_at_the_start(
    client: &Client,
    args: &Consume,
    passed: &[i32],
    progress: &mut Progress,
) -> Result<(), CommandError> {
    let topic = &args.topic;
    for (index, start) in offsets::list(client, topic, passed, offsets::EARLIEST).await? {
        let was = progress.next.insert(index, start).unwrap_or(start);
        if start <= was {
            check(
                &format!("{topic}-{index}"),
                ErrorCode::OFFSET_OUT_OF_RANGE,
                None,
            )?;
        }
        crate::complain(&format!(
            "`{topic}-{index}` has no offset {was} any more; going on at {start}, where it begins"
        ));
    }
    Ok(())
}

/// Another connection, as soon as there is one.
async fn again(args: &Consume, runtime: &Runtime, why: &ClientError) -> Client {
    crate::complain(&format!("{why}; trying again until the broker answers"));
    loop {
        runtime.clock.sleep(RECONNECT_PAUSE).await;
        if let Ok(client) = connect(&args.to, runtime).await {
            return client;
        }
    }
}

async fn start(
    client: &Client,
    args: &Consume,
    indexes: &[i32],
) -> Result<BTreeMap<i32, i64>, CommandError> {
    let topic = &args.topic;
    let by_time = match args.offset.as_str() {
        "beginning" => offsets::EARLIEST,
        "end" => offsets::LATEST,
        text => match text.strip_prefix('@') {
            Some(time) => parse(time)?,
            None => return within(client, topic, indexes, parse(text)?).await,
        },
    };
    let mut found = offsets::list(client, topic, indexes, by_time).await?;
    if by_time >= 0 && found.values().any(|offset| *offset < 0) {
        // Nothing is that young: begin where the next record will be.
        let ends = offsets::list(client, topic, indexes, offsets::LATEST).await?;
        for (index, offset) in &mut found {
            if *offset < 0 {
                *offset = ends.get(index).copied().unwrap_or(0);
            }
        }
    }
    Ok(found)
}

fn parse(text: &str) -> Result<i64, CommandError> {
    let number = text.parse().ok().filter(|number| *number >= 0);
    number.ok_or_else(|| {
        let ways = "`beginning`, `end`, an offset, or `@` and Unix milliseconds";
        CommandError(format!("`{text}` is no offset; give {ways}"))
    })
}

async fn fetch(
    client: &Client,
    args: &Consume,
    progress: &Progress,
) -> Result<FetchResponse, ClientError> {
    let partitions = progress.next.iter().map(|(index, next)| FetchPartition {
        partition: *index,
        fetch_offset: *next,
        partition_max_bytes: PARTITION_BYTES,
        ..FetchPartition::default()
    });
    let request = FetchRequest {
        max_wait_ms: MAX_WAIT_MS,
        min_bytes: 1,
        topics: vec![FetchTopic {
            topic: Str::from(args.topic.clone()),
            partitions: partitions.collect(),
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    client.call_up_to(FETCH_BY_NAME, &request).await
}

/// Prints what was fetched. Returns the partitions that do not hold what was asked for.
fn take(
    answer: &FetchResponse,
    args: &Consume,
    progress: &mut Progress,
    out: &mut impl Write,
) -> Result<Vec<i32>, CommandError> {
    check(&args.topic, answer.error_code, None)?;
    let mut passed = Vec::new();
    for part in answer.responses.iter().flat_map(|topic| &topic.partitions) {
        if part.error_code == ErrorCode::OFFSET_OUT_OF_RANGE {
            passed.push(part.partition_index);
            continue;
        }
        check(
            &format!("{}-{}", args.topic, part.partition_index),
            part.error_code,
            None,
        )?;
        print(part, args, progress, out)?;
    }
    out.flush()?;
    Ok(passed)
}

fn print(
    part: &PartitionData,
    args: &Consume,
    progress: &mut Progress,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let Some(records) = &part.records else {
        return Ok(());
    };
    let index = part.partition_index;
    let broken = |error: &dyn std::fmt::Display| {
        CommandError(format!(
            "{}-{index}: a batch cannot be read: {error}",
            args.topic
        ))
    };
    let bytes = records.to_bytes();
    for batch in BatchIter::new(bytes) {
        let StoredBatch {
            header,
            bytes: batch,
        } = batch.map_err(|error| broken(&error))?;
        let from = progress.next.get(&index).copied().unwrap_or(0);
        if !header.attributes.is_control() {
            for record in Records::open(&batch, u64::from(u32::MAX)).map_err(|e| broken(&e))? {
                let record = record.map_err(|error| broken(&error))?;
                let past = progress.end.as_ref().and_then(|end| end.get(&index));
                let outside = past.is_some_and(|end| record.offset.0 >= *end);
                if record.offset.0 < from || outside || progress.left == Some(0) {
                    continue;
                }
                print_record(&record, index, args.verbose, out)?;
                progress.left = progress.left.map(|left| left - 1);
            }
        }
        progress.next.insert(index, header.last_offset().0 + 1);
    }
    Ok(())
}

fn print_record(
    record: &Record,
    index: i32,
    verbose: bool,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    if verbose {
        write!(out, "{index}\t{}\t{}\t", record.offset, record.timestamp)?;
        match &record.key {
            Some(key) => out.write_all(key)?,
            None => out.write_all(b"null")?,
        }
        out.write_all(b"\t")?;
        for header in &record.headers {
            out.write_all(&header.key)?;
            out.write_all(b"=")?;
            out.write_all(header.value.as_deref().unwrap_or(b"null"))?;
            out.write_all(b" ")?;
        }
        out.write_all(b"\t")?;
    }
    match &record.value {
        Some(value) => out.write_all(value)?,
        None if verbose => out.write_all(b"null")?,
        None => {}
    }
    out.write_all(b"\n")?;
    Ok(())
}
