//! The Kafka APIs, one file per key, and the table that leads to them.
//!
//! A handler is an `async fn(Context, Request) -> Response`. Up to its first wait it runs in the
//! order of the connection's requests; what an idempotent producer relies on must happen before.
//! Errors are answered in the API's own layout; only what cannot be answered closes the connection.

mod alter_configs;
mod api_versions;
mod create_partitions;
mod create_topics;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_topic_partitions;
mod fetch;
mod find_coordinator;
mod heartbeat;
mod incremental_alter_configs;
mod init_producer_id;
mod join_group;
mod leave_group;
mod list_groups;
mod list_offsets;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
mod produce;
mod sync_group;

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tidemill_log::{Superseded, read::Isolation};
use tidemill_runtime::Instant;
use tidemill_wire::{
    ApiKey, DecodeError, Decoder, ErrorCode, Message, Request, Str, batch::Hashed, frame,
    frame::RequestHeader,
};

use crate::{
    Broker,
    net::{Call, Frame, Peer, Reply, Share, Weight},
};

/// How old a proof of leadership Fetch and Metadata may rest on (R7).
const FRESH_WITHIN: Duration = Duration::from_secs(10);

/// What a handler knows about its request.
#[derive(Clone)]
pub(crate) struct Context {
    /// The broker.
    pub broker: Arc<Broker>,
    /// Who asks.
    pub peer: Arc<Peer>,
    /// The API.
    pub key: ApiKey,
    /// The request's version.
    pub version: i16,
    /// Comes back in the response.
    pub correlation_id: i32,
    /// The client's name for itself.
    pub client_id: Option<Str>,
    /// When the request had come whole.
    pub received: Instant,
    /// Checksums of a large Produce request's bytes.
    pub hashed: Hashed,
}

impl Context {
    /// The turn of this request among those of its connection that change groups, to be held until
    /// its change is made. A request may wait for its group to be loaded, and whoever waits is not
    /// woken in the order of arrival.
    pub async fn group_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        // A task that has used up its budget would give its place away.
        tokio::task::unconstrained(self.peer.group_turn.lock()).await
    }

    /// Counts an error that is answered, and hands it back.
    pub fn error(&self, code: ErrorCode) -> ErrorCode {
        if code != ErrorCode::NONE {
            self.broker.metrics().error(self.key, code);
        }
        code
    }

    /// A Produce request's batches are checked, numbered and queued.
    fn validated(&self) {
        let now = self.broker.runtime().clock.monotonic();
        let took = now.saturating_duration_since(self.received);
        self.broker.metrics().stages().validate.observe(took);
    }

    /// Leadership proven since the request came (R7).
    pub async fn fresh(&self) -> Result<(), Superseded> {
        self.broker.log().fresh(self.received).await
    }

    /// Leadership proven a short while ago (R7).
    pub async fn fresh_within(&self) -> Result<(), Superseded> {
        self.broker.log().fresh_within(FRESH_WITHIN).await
    }
}

/// The isolation level of Fetch and ListOffsets: 1 is read_committed.
fn isolation(level: i8) -> Isolation {
    if level == 1 {
        Isolation::Committed
    } else {
        Isolation::Uncommitted
    }
}

/// How a handler ends.
pub(crate) enum Outcome<R> {
    /// With a response.
    Answer(R),
    /// With a response to a request that waited, and when what woke it was committed.
    Woken(R, Instant),
    /// With nothing to send (Produce with acks=0).
    Nothing,
    /// The connection is closed, as no true answer can be given.
    Close,
}

impl<R> From<R> for Outcome<R> {
    fn from(response: R) -> Self {
        Self::Answer(response)
    }
}

/// A superseded broker answers nothing (R7).
impl<R> From<Result<R, Superseded>> for Outcome<R> {
    fn from(result: Result<R, Superseded>) -> Self {
        result.map_or(Self::Close, Self::Answer)
    }
}

macro_rules! routes {
    ($($(#[$weight:ident])? $name:ident => $handler:path;)*) => {
        /// The APIs that are served, ascending; of these ApiVersions names those that
        /// [`ApiKey::advertised`] has a range for.
        pub(crate) const SERVED: &[ApiKey] = &[$(ApiKey::$name,)*];

        /// Starts the handler of `context.key`; `None` if there is none.
        fn route(context: Context, body: &mut Decoder) -> Result<Option<Call>, DecodeError> {
            let version = context.version;
            let call = match context.key {
                $(ApiKey::$name => Call {
                    reply: run(context, body.message(version)?, $handler),
                    weight: weight!($($weight)?),
                },)*
                _ => return Ok(None),
            };
            Ok(Some(call))
        }
    };
}

macro_rules! weight {
    () => {
        Weight::Light
    };
    ($weight:ident) => {
        Weight::$weight
    };
}

routes! {
    #[Produce] Produce => produce::handle;
    #[Fetch] Fetch => fetch::handle;
    ListOffsets => list_offsets::handle;
    Metadata => metadata::handle;
    OffsetCommit => offset_commit::handle;
    OffsetFetch => offset_fetch::handle;
    FindCoordinator => find_coordinator::handle;
    JoinGroup => join_group::handle;
    Heartbeat => heartbeat::handle;
    LeaveGroup => leave_group::handle;
    SyncGroup => sync_group::handle;
    DescribeGroups => describe_groups::handle;
    ListGroups => list_groups::handle;
    ApiVersions => api_versions::handle;
    CreateTopics => create_topics::handle;
    DeleteTopics => delete_topics::handle;
    DeleteRecords => delete_records::handle;
    InitProducerId => init_producer_id::handle;
    OffsetForLeaderEpoch => offset_for_leader_epoch::handle;
    DescribeConfigs => describe_configs::handle;
    AlterConfigs => alter_configs::handle;
    DescribeLogDirs => describe_log_dirs::handle;
    CreatePartitions => create_partitions::handle;
    DeleteGroups => delete_groups::handle;
    IncrementalAlterConfigs => incremental_alter_configs::handle;
    OffsetDelete => offset_delete::handle;
    DescribeCluster => describe_cluster::handle;
    DescribeTopicPartitions => describe_topic_partitions::handle;
}

/// Whether the version may be used: it can be decoded, and is within what is advertised.
fn is_served(key: ApiKey, version: i16) -> bool {
    SERVED.contains(&key)
        && key.supports(version)
        && key
            .advertised()
            .is_some_and(|versions| versions.contains(&version))
}

/// Takes a frame: header, then the handler. `None` closes the connection (K3).
pub(crate) fn call(broker: &Arc<Broker>, peer: &Arc<Peer>, frame: Frame) -> Option<Call> {
    let Frame {
        bytes,
        hashed,
        began,
        share,
    } = frame;
    let size = bytes.len();
    let mut decoder = Decoder::new(bytes);
    let header = match RequestHeader::decode(&mut decoder) {
        Ok(header) => header,
        Err(error) => {
            tracing::warn!(peer = %peer.host(), %error, "no request header");
            return None;
        }
    };
    let key = ApiKey::from_code(header.request_api_key);
    let version = header.request_api_version;
    let Some(key) = key.filter(|key| is_served(*key, version) || *key == ApiKey::ApiVersions)
    else {
        refuse(peer, &header);
        return None;
    };
    broker.metrics().request(key, size);
    let context = Context {
        broker: Arc::clone(broker),
        peer: Arc::clone(peer),
        key,
        version,
        correlation_id: header.correlation_id,
        client_id: header.client_id,
        received: broker.runtime().clock.monotonic(),
        hashed,
    };
    if key == ApiKey::Produce {
        let took = context.received.saturating_duration_since(began);
        broker.metrics().stages().receive.observe(took);
    }
    if !is_served(key, version) {
        return Some(api_versions::unsupported(&context));
    }
    match route(context, &mut decoder) {
        Ok(call) => call.map(|call| holding(call, share)),
        Err(error) => {
            tracing::warn!(peer = %peer.host(), api = %key, version, %error, "malformed request");
            None
        }
    }
}

fn refuse(peer: &Peer, header: &RequestHeader) {
    tracing::warn!(
        peer = %peer.host(),
        client_id = header.client_id.as_deref().unwrap_or_default(),
        api_key = header.request_api_key,
        version = header.request_api_version,
        "api key or version is not served, connection closed"
    );
}

/// Keeps a large request's share of memory until it is answered.
fn holding(call: Call, share: Option<Share>) -> Call {
    let Some(share) = share else { return call };
    let reply = call.reply;
    let reply = Box::pin(async move {
        let reply = reply.await;
        drop(share);
        reply
    });
    Call {
        reply,
        weight: call.weight,
    }
}

fn run<R, H, F, O>(context: Context, request: R, handler: H) -> BoxFuture<'static, Reply>
where
    R: Request + Send + 'static,
    R::Response: Send,
    H: FnOnce(Context, R) -> F + Send + 'static,
    F: Future<Output = O> + Send + 'static,
    O: Into<Outcome<R::Response>>,
{
    Box::pin(async move {
        let outcome = handler(context.clone(), request).await.into();
        match outcome {
            Outcome::Answer(response) => encode(&context, context.version, &response),
            Outcome::Woken(response, committed) => {
                match encode(&context, context.version, &response) {
                    Reply::Send(slices) => Reply::Woken(slices, committed),
                    other => other,
                }
            }
            Outcome::Nothing => {
                context.broker.metrics().answered(&context, 0);
                Reply::Nothing
            }
            Outcome::Close => Reply::Close,
        }
    })
}

/// Encodes a response, in `version` of its layout.
fn encode<M: Message>(context: &Context, version: i16, response: &M) -> Reply {
    match frame::encode_response(context.key, version, context.correlation_id, response) {
        Ok(frame) => {
            context.broker.metrics().answered(context, frame.len());
            Reply::Send(frame.slices)
        }
        Err(error) => {
            let client_id = context.client_id.as_deref().unwrap_or_default();
            let api = context.key;
            tracing::error!(%api, version, client_id, %error, "response cannot be encoded");
            Reply::Close
        }
    }
}
