//! Produce (key 0), versions 3-13; 0-2 are advertised and refused (K3).
//!
//! v7 zstd; v8 errors of single records (the batch is refused as a whole) and messages; v9
//! flexible; v10 current leader; v11, v12 transactions V2; v13 topic ids. Transactional batches are
//! refused until transactions are served.

use std::sync::Arc;

use tidemill_cluster::{Image, image::Topic};
use tidemill_log::{Appended, Committed, Entry, Log};
use tidemill_wire::{
    ErrorCode,
    batch::ValidateOptions,
    messages::produce::{
        BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceData,
        PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData,
        TopicProduceResponse,
    },
};

use super::{Context, Outcome};
use crate::{
    config::TopicConfig,
    errors::Refusal,
    topics::is_internal,
    validation::{Budget, Refused},
};

/// The first version that may carry zstd.
const ZSTD_FROM: i16 = 7;
/// The first version that names topics by id.
const TOPIC_ID_FROM: i16 = 13;

/// One partition of the request, appended or refused.
struct Part {
    index: i32,
    records: u64,
    bytes: u64,
    state: State,
}

enum State {
    Refused(Refusal, Vec<BatchIndexAndErrorMessage>),
    Valid(Entry),
    Appended(Appended),
    Committed(Committed),
}

pub(super) async fn handle(context: Context, request: ProduceRequest) -> Outcome<ProduceResponse> {
    let acks = request.acks;
    let timeout = u64::try_from(request.timeout_ms).unwrap_or(0);
    let deadline = context.received + std::time::Duration::from_millis(timeout);
    let mut topics = {
        // Taken in the order of the requests, so their batches are appended in that order; outside
        // of Tokio's budget, which would let a later request pass.
        let turn = tokio::task::unconstrained(context.peer.produce_turn.lock());
        let _turn = turn.await;
        let mut topics = validate_all(&context, request).await;
        append_all(context.broker.log(), &mut topics);
        topics
    };
    context.validated();
    if acks == 0 {
        return without_answer(&context, &topics).await;
    }
    let parts = topics.iter_mut().flat_map(|(_, parts)| parts.iter_mut());
    wait(&context, deadline, parts.collect()).await;
    if !may_refuse(&context, deadline, &topics).await {
        return Outcome::Close;
    }
    let image = context.broker.cluster().image();
    let mut moved = false;
    let responses = topics.into_iter().map(|(data, parts)| {
        let answer = |part| {
            let answer = partition_response(&context, &image, &data, part);
            moved |= answer.error_code == ErrorCode::NOT_LEADER_OR_FOLLOWER;
            answer
        };
        let partition_responses = parts.into_iter().map(answer).collect();
        TopicProduceResponse {
            name: data.name,
            topic_id: data.topic_id,
            partition_responses,
        }
    });
    let mut response = ProduceResponse {
        responses: responses.collect(),
        ..ProduceResponse::default()
    };
    if moved && context.version >= 10 {
        response.node_endpoints = vec![endpoint(&context)];
    }
    response.into()
}

/// False if a producer would be told that it is out of order by a broker that may be superseded:
/// what that one knows of sequence numbers is of long ago, and such an answer ends a producer (R7).
async fn may_refuse(
    context: &Context,
    deadline: tidemill_runtime::Instant,
    topics: &[(TopicProduceData, Vec<Part>)],
) -> bool {
    let ends_producer = |part: &Part| match &part.state {
        State::Refused(refusal, _) => matches!(
            refusal.code,
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER | ErrorCode::INVALID_PRODUCER_EPOCH
        ),
        _ => false,
    };
    let mut parts = topics.iter().flat_map(|(_, parts)| parts);
    if !parts.any(ends_producer) {
        return true;
    }
    let clock = &context.broker.runtime().clock;
    matches!(
        clock.timeout_at(deadline, context.fresh()).await,
        Ok(Ok(()))
    )
}

/// acks=0 is never answered; an error closes the connection, so that the client looks again (K41).
async fn without_answer(
    context: &Context,
    topics: &[(TopicProduceData, Vec<Part>)],
) -> Outcome<ProduceResponse> {
    let mut parts = topics.iter().flat_map(|(_, parts)| parts);
    if parts.any(|part| matches!(part.state, State::Refused(..))) {
        return Outcome::Close;
    }
    // As there is no answer to wait for, the log's limit is all that slows such a producer down.
    context.broker.log().below_limit().await;
    Outcome::Nothing
}

/// Appends what is valid, all of it for one flush.
fn append_all(log: &Log, topics: &mut [(TopicProduceData, Vec<Part>)]) {
    let parts = topics.iter_mut().flat_map(|(_, parts)| parts);
    let _gather = log.gather();
    for part in parts {
        let unknown = || State::Refused(ErrorCode::UNKNOWN_SERVER_ERROR.into(), Vec::new());
        part.state = match std::mem::replace(&mut part.state, unknown()) {
            State::Valid(entry) => match log.append(entry).map(|mut appended| appended.pop()) {
                Ok(Some(appended)) => State::Appended(appended),
                Ok(None) => unknown(),
                Err(error) => State::Refused(error.into(), Vec::new()),
            },
            other => other,
        };
    }
}

async fn validate_all(
    context: &Context,
    request: ProduceRequest,
) -> Vec<(TopicProduceData, Vec<Part>)> {
    let image = context.broker.cluster().image();
    let transactional = request.transactional_id.is_some();
    let mut budget = Budget::default();
    let mut topics = Vec::with_capacity(request.topic_data.len());
    for mut data in request.topic_data {
        let partitions = std::mem::take(&mut data.partition_data);
        let topic = if matches!(request.acks, -1..=1) {
            topic(context, &image, &data, transactional)
        } else {
            Err(ErrorCode::INVALID_REQUIRED_ACKS.into())
        };
        let mut parts = Vec::with_capacity(partitions.len());
        for data in partitions {
            let index = data.index;
            let part = match &topic {
                Ok((topic, config)) => validate(context, topic, config, data, &mut budget).await,
                Err(refusal) => Err(refusal.clone().into()),
            };
            parts.push(part.unwrap_or_else(|refused| Part::refused(index, refused)));
        }
        topics.push((data, parts));
    }
    topics
}

impl Part {
    fn refused(index: i32, refused: Refused) -> Self {
        Self {
            index,
            records: 0,
            bytes: 0,
            state: State::Refused(refused.refusal, refused.records),
        }
    }
}

/// The topic, if a client may write to it.
fn topic(
    context: &Context,
    image: &Image,
    data: &TopicProduceData,
    transactional: bool,
) -> Result<(Arc<Topic>, Arc<TopicConfig>), Refusal> {
    let topic = if context.version >= TOPIC_ID_FROM {
        image
            .topic(data.topic_id)
            .ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?
    } else {
        image
            .topic_by_name(&data.name)
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?
    };
    if is_internal(&topic.name) {
        let message = format!("topic `{}` is internal", topic.name);
        return Err(Refusal::new(ErrorCode::INVALID_TOPIC_EXCEPTION, message));
    }
    if transactional {
        return Err(no_transactions());
    }
    Ok((Arc::clone(topic), context.broker.topic_config(image, topic)))
}

fn no_transactions() -> Refusal {
    Refusal::new(
        ErrorCode::INVALID_TXN_STATE,
        "transactions are not supported",
    )
}

async fn validate(
    context: &Context,
    topic: &Arc<Topic>,
    config: &Arc<TopicConfig>,
    data: PartitionProduceData,
    budget: &mut Budget,
) -> Result<Part, Refused> {
    let index = data.index;
    let partition = context.broker.partition(topic, index)?;
    let options = ValidateOptions {
        now_ms: context.broker.runtime().clock.now_ms(),
        allow_zstd: context.version >= ZSTD_FROM,
        ..config.validate_options()
    };
    let bytes = data.records.unwrap_or_default().to_bytes();
    let validation = context.broker.validation();
    let batch = validation
        .check(bytes, &context.hashed, config, options, budget)
        .await?;
    if batch.header.attributes.is_transactional() {
        return Err(no_transactions().into());
    }
    let records = u64::try_from(batch.header.record_count).unwrap_or(0);
    let bytes = batch.bytes.len() as u64;
    let entry = Entry::records(partition.id(), batch, config.latency);
    Ok(Part {
        index,
        records,
        bytes,
        state: State::Valid(entry),
    })
}

/// Waits for all commits until `deadline`; what is not durable then stays as it is (K42).
async fn wait(context: &Context, deadline: tidemill_runtime::Instant, mut parts: Vec<&mut Part>) {
    let all = async {
        for part in &mut parts {
            if let State::Appended(appended) = &part.state {
                part.state = match appended.wait().await {
                    Ok(committed) => State::Committed(committed),
                    Err(error) => State::Refused(error.into(), Vec::new()),
                };
            }
        }
    };
    if context
        .broker
        .runtime()
        .clock
        .timeout_at(deadline, all)
        .await
        .is_ok()
    {
        return;
    }
    for part in parts {
        if let State::Appended(Appended::New(ticket) | Appended::DuplicatePending(ticket)) =
            &part.state
            && let Some(Ok(committed)) = ticket.outcome()
        {
            part.state = State::Committed(committed);
        }
    }
}

fn partition_response(
    context: &Context,
    image: &Image,
    data: &TopicProduceData,
    part: Part,
) -> PartitionProduceResponse {
    let Part {
        index,
        records,
        bytes,
        state,
    } = part;
    let (refusal, record_errors) = match state {
        State::Committed(committed) => {
            context.broker.metrics().produced(records, bytes);
            return PartitionProduceResponse {
                index,
                base_offset: committed.base_offset.0,
                log_append_time_ms: committed.log_append_time,
                log_start_offset: committed.log_start.0,
                ..PartitionProduceResponse::default()
            };
        }
        State::Valid(_) | State::Appended(_) => {
            let message = "not durable within the request's timeout";
            let refusal = Refusal::new(ErrorCode::REQUEST_TIMED_OUT, message);
            (refusal, Vec::new())
        }
        State::Refused(refusal, record_errors) => (refusal, record_errors),
    };
    let mut response = PartitionProduceResponse {
        index,
        error_code: context.error(refusal.code),
        base_offset: -1,
        record_errors,
        error_message: refusal.text(),
        ..PartitionProduceResponse::default()
    };
    if refusal.code == ErrorCode::NOT_LEADER_OR_FOLLOWER && context.version >= 10 {
        let topic = image
            .topic(data.topic_id)
            .or_else(|| image.topic_by_name(&data.name));
        if let Some(state) = topic.and_then(|topic| topic.partition(index)) {
            response.current_leader = LeaderIdAndEpoch {
                leader_id: context.broker.config().node_id.0,
                leader_epoch: state.epoch.0,
            };
        }
    }
    response
}

fn endpoint(context: &Context) -> NodeEndpoint {
    NodeEndpoint {
        node_id: context.broker.config().node_id.0,
        host: context.peer.advertised.host.clone().into(),
        port: i32::from(context.peer.advertised.port),
        rack: context.broker.config().rack(),
    }
}
