//! `tidemill produce`: one record a line from standard input.

use std::{collections::BTreeMap, io::Write};

use bytes::Bytes;
use tidemill_client::Client;
use tidemill_runtime::Runtime;
use tidemill_wire::{
    batch::{BatchBuilder, Compression, NewRecord},
    codec::{Records, Str},
    errors::ErrorCode,
    messages::{
        MetadataRequest, ProduceRequest,
        metadata::MetadataRequestTopic,
        produce::{PartitionProduceData, TopicProduceData},
    },
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Stdin};

use super::{CommandError, check, connect};
use crate::cli::Produce;

/// Names topics instead of ids: the newest version that does.
const PRODUCE_BY_NAME: i16 = 12;
const ACKS_ALL: i16 = -1;
const REQUEST_TIMEOUT_MS: i32 = 30_000;
/// A batch is sent when it holds so many bytes or records, or when no more input is at hand.
const BATCH_BYTES: usize = 512 << 10;
const BATCH_RECORDS: usize = 1_000;
/// Longest line, in bytes.
const LINE_BYTES_MAX: u64 = 64 << 20;

type Line = (Option<Vec<u8>>, Vec<u8>);

/// Runs the command.
pub async fn run(
    args: Produce,
    runtime: &Runtime,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let compression = compression(&args.compression)?;
    let client = connect(&args.to, runtime).await?;
    let partitions = create_and_count(&client, &args.topic).await?;
    let mut input = BufReader::new(tokio::io::stdin());
    let mut sent = 0u64;
    let mut turn = 0usize;
    let to = Topic {
        client: &client,
        name: &args.topic,
        compression,
        runtime,
    };
    loop {
        let (lines, ended) = read_some(&mut input, args.key_separator.as_deref()).await?;
        if !lines.is_empty() {
            let batches = spread(lines, &args, partitions, &mut turn)?;
            if let Err(CommandError(why)) = send(&to, batches, &mut sent).await {
                // Whoever repeats the rest must know where it begins.
                let what = format!("{why}; {sent} records were acknowledged before");
                return Err(CommandError(what));
            }
        }
        if ended {
            break;
        }
    }
    writeln!(out, "{sent} records acknowledged")?;
    Ok(())
}

fn compression(name: &str) -> Result<Compression, CommandError> {
    Ok(match name {
        "none" => Compression::None,
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        other => {
            let known = "`none`, `gzip`, `snappy`, `lz4` and `zstd`";
            return Err(CommandError(format!(
                "unknown compression `{other}`; there are {known}"
            )));
        }
    })
}

async fn create_and_count(client: &Client, topic: &str) -> Result<usize, CommandError> {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(Str::from(topic.to_owned())),
            ..MetadataRequestTopic::default()
        }]),
        allow_auto_topic_creation: true,
        ..MetadataRequest::default()
    };
    let answer = client.call(&request).await?;
    let Some(found) = answer.topics.first() else {
        return Err(CommandError(format!(
            "the broker said nothing of `{topic}`"
        )));
    };
    check(topic, found.error_code, None)?;
    Ok(found.partitions.len())
}

/// Waits for a line, then takes what is at hand; true at the end of the input.
async fn read_some(
    input: &mut BufReader<Stdin>,
    separator: Option<&str>,
) -> Result<(Vec<Line>, bool), CommandError> {
    let mut lines = Vec::new();
    let mut bytes = 0;
    loop {
        let mut line = Vec::new();
        let read = (&mut *input)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .await?;
        if read == 0 {
            return Ok((lines, true));
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.len() as u64 == LINE_BYTES_MAX {
            return Err(CommandError(format!(
                "a line is longer than {LINE_BYTES_MAX} bytes"
            )));
        }
        bytes += line.len();
        lines.push(split(line, separator));
        if bytes >= BATCH_BYTES || lines.len() >= BATCH_RECORDS || input.buffer().is_empty() {
            return Ok((lines, false));
        }
    }
}

fn split(line: Vec<u8>, separator: Option<&str>) -> Line {
    let Some(separator) = separator.filter(|text| !text.is_empty()) else {
        return (None, line);
    };
    let at = line
        .windows(separator.len())
        .position(|window| window == separator.as_bytes());
    match at {
        Some(at) => (
            Some(line[..at].to_vec()),
            line[at + separator.len()..].to_vec(),
        ),
        None => (None, line),
    }
}

/// By key as Java's default partitioner does, all of one read to one partition otherwise.
fn spread(
    lines: Vec<Line>,
    args: &Produce,
    partitions: usize,
    turn: &mut usize,
) -> Result<Vec<(i32, Vec<Line>)>, CommandError> {
    let mut batches: Vec<(i32, Vec<Line>)> = Vec::new();
    *turn += 1;
    for line in lines {
        let index = match (&args.partition, &line.0) {
            (Some(partition), _) => *partition,
            (None, Some(key)) => index_of(murmur2(key) as usize, partitions)?,
            (None, None) => index_of(*turn, partitions)?,
        };
        match batches.iter_mut().find(|(found, _)| *found == index) {
            Some((_, batch)) => batch.push(line),
            None => batches.push((index, vec![line])),
        }
    }
    Ok(batches)
}

fn index_of(number: usize, partitions: usize) -> Result<i32, CommandError> {
    let index = number.checked_rem(partitions);
    index
        .and_then(|index| i32::try_from(index).ok())
        .ok_or_else(|| CommandError("the topic has no partitions".to_owned()))
}

/// Kafka's hash of a key, made positive, so that a key lands where Java producers put it.
fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut hash = SEED ^ length;
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let tail = chunks.remainder();
    if !tail.is_empty() {
        for (index, byte) in tail.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    (hash ^ (hash >> 15)) & 0x7fff_ffff
}

/// Where records go, and how.
struct Topic<'a> {
    client: &'a Client,
    name: &'a str,
    compression: Compression,
    runtime: &'a Runtime,
}

/// Sends one batch a partition; what is too large as one batch goes as two. Counts in `sent` what
/// was acknowledged.
async fn send(
    to: &Topic<'_>,
    batches: Vec<(i32, Vec<Line>)>,
    sent: &mut u64,
) -> Result<(), CommandError> {
    let mut waves = vec![batches];
    while let Some(batches) = waves.pop() {
        let answers = send_once(to, &batches).await?;
        let mut failed = Ok(());
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for (index, mut lines) in batches {
            let answer = answers.get(&index);
            let (code, why) =
                answer.map_or((ErrorCode(-1), None), |(code, why)| (*code, why.as_deref()));
            if code == ErrorCode::MESSAGE_TOO_LARGE && lines.len() > 1 {
                let half = lines.split_off(lines.len() / 2);
                first.push((index, lines));
                second.push((index, half));
                continue;
            }
            match check(&format!("{}-{index}", to.name), code, why) {
                Ok(()) => *sent += lines.len() as u64,
                Err(error) => failed = Err(error),
            }
        }
        failed?;
        // The second halves wait until all of the first ones are stored: order is kept.
        waves.extend([second, first].into_iter().filter(|wave| !wave.is_empty()));
    }
    Ok(())
}

type Answers = BTreeMap<i32, (ErrorCode, Option<String>)>;

async fn send_once(to: &Topic<'_>, batches: &[(i32, Vec<Line>)]) -> Result<Answers, CommandError> {
    let now_ms = to.runtime.clock.now_ms();
    let mut data = Vec::new();
    for (index, lines) in batches {
        let batch = build(lines, to.compression, now_ms)?;
        data.push(PartitionProduceData {
            index: *index,
            records: Some(Records::from(batch)),
        });
    }
    let request = ProduceRequest {
        acks: ACKS_ALL,
        timeout_ms: REQUEST_TIMEOUT_MS,
        topic_data: vec![TopicProduceData {
            name: Str::from(to.name.to_owned()),
            partition_data: data,
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    };
    let answer = to.client.call_up_to(PRODUCE_BY_NAME, &request).await?;
    let parts = answer
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses);
    let said = parts.map(|part| {
        let message = part.error_message.as_deref().map(str::to_owned);
        (part.index, (part.error_code, message))
    });
    Ok(said.collect())
}

fn build(lines: &[Line], compression: Compression, now_ms: i64) -> Result<Bytes, CommandError> {
    let failed = |error: tidemill_wire::batch::BuildError| CommandError(error.to_string());
    let mut builder = BatchBuilder::new(compression);
    for (key, value) in lines {
        let record = NewRecord {
            timestamp: now_ms,
            key: key.as_deref(),
            value: Some(value),
            headers: &[],
        };
        builder.push(&record).map_err(failed)?;
    }
    builder.build().map_err(failed)
}
