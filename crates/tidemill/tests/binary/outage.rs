//! A bucket that refuses for longer than a proof of leadership may be old (R7): what goes on, what
//! waits, what falls silent, and that nothing acknowledged is lost.

use std::{
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use bytes::Bytes;
use tidemill_client::{Client, Options};
use tidemill_runtime::Runtime;
use tidemill_store::testing::{Operation, S3Action, S3Rule};
use tidemill_wire::{
    ErrorCode, Str,
    batch::{BatchBuilder, Compression, NewRecord},
    codec::{Records, Request},
    messages::{
        fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic},
        find_coordinator::FindCoordinatorRequest,
        heartbeat::HeartbeatRequest,
        join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse},
        produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData},
        sync_group::{SyncGroupRequest, SyncGroupRequestAssignment},
    },
};

use crate::harness::{Broker, Bucket, Output, SOON, collect, eventually, records, run};

/// Longer than a proof may be old (10 s), with a while after it to look at.
const OUTAGE: Duration = Duration::from_secs(14);
/// From here on no proof from before the outage counts.
const STALE: Duration = Duration::from_millis(11_500);
/// What should be answered at once, on a busy machine.
const PROMPT: Duration = Duration::from_secs(5);
/// What is not answered within this is taken for silence.
const SILENT: Duration = Duration::from_secs(2);
/// Shorter than the outage: a group whose members were silenced would lose them.
const SESSION_MS: i32 = 6_000;
/// The newest versions that name topics.
const FETCH: i16 = 12;
const PRODUCE: i16 = 12;

fn text(text: &str) -> Str {
    Str::from(text.to_owned())
}

/// Everything that lives through the outage.
struct Clients {
    runtime: Runtime,
    sessioned: Client,
    sessionless: Client,
    member: Client,
    joined: JoinGroupResponse,
    session: (i32, i32),
}

impl Clients {
    async fn open(address: &str) -> Self {
        let runtime = Runtime::system();
        let open = || Client::open(address, Options::default(), runtime.clone());
        let (sessioned, sessionless, member) = (open().await, open().await, open().await);
        let member = member.expect("it serves");
        let joined = join(&member).await;
        let mut clients = Self {
            sessioned: sessioned.expect("it serves"),
            sessionless: sessionless.expect("it serves"),
            member,
            joined,
            session: (0, 0),
            runtime: runtime.clone(),
        };
        let first = clients.with_session(0).await.expect("an answer");
        clients.session = (first.session_id, 1);
        clients
    }

    /// The answer, if it comes promptly.
    async fn prompt<R: Request>(
        &self,
        client: &Client,
        newest: i16,
        request: &R,
    ) -> Option<R::Response> {
        let call = client.call_up_to(newest, request);
        let answer = self.runtime.clock.timeout(PROMPT, call).await.ok()?;
        Some(answer.expect("an answer that can be read"))
    }

    async fn with_session(&mut self, from: i64) -> Option<FetchResponse> {
        let (session_id, session_epoch) = self.session;
        let request = FetchRequest {
            session_id,
            session_epoch,
            ..fetch_request(from)
        };
        let answer = self.prompt(&self.sessioned, FETCH, &request).await?;
        assert_eq!(answer.error_code, ErrorCode::NONE);
        if session_id != 0 {
            self.session.1 += 1;
        }
        Some(answer)
    }

    async fn without_session(&self, from: i64) -> Option<FetchResponse> {
        self.prompt(&self.sessionless, FETCH, &fetch_request(from))
            .await
    }

    async fn beat(&self) -> Option<ErrorCode> {
        let request = heartbeat(&self.joined);
        let answer = self.prompt(&self.member, i16::MAX, &request).await;
        answer.map(|answer| answer.error_code)
    }
}

fn fetch_request(from: i64) -> FetchRequest {
    FetchRequest {
        max_wait_ms: 100,
        min_bytes: 1,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: text("tides"),
            partitions: vec![FetchPartition {
                fetch_offset: from,
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    }
}

fn bytes_of(answer: &FetchResponse) -> usize {
    let parts = answer.responses.iter().flat_map(|topic| &topic.partitions);
    let bytes = parts.map(|part| {
        assert_eq!(part.error_code, ErrorCode::NONE);
        part.records.as_ref().map_or(0, Records::len)
    });
    bytes.sum()
}

/// Forms a group of one, with a session of six seconds.
pub async fn join(client: &Client) -> JoinGroupResponse {
    let find = FindCoordinatorRequest {
        coordinator_keys: vec![text("g")],
        ..FindCoordinatorRequest::default()
    };
    client.call(&find).await.expect("an answer");
    let mut request = JoinGroupRequest {
        group_id: text("g"),
        session_timeout_ms: SESSION_MS,
        rebalance_timeout_ms: 60_000,
        protocol_type: text("consumer"),
        protocols: vec![JoinGroupRequestProtocol {
            name: text("range"),
            metadata: Bytes::from_static(&[0, 0, 0, 0, 0, 0, 255, 255, 255, 255]),
        }],
        ..JoinGroupRequest::default()
    };
    request.member_id = client.call(&request).await.expect("an answer").member_id;
    let joined = client.call(&request).await.expect("an answer");
    assert_eq!(joined.error_code, ErrorCode::NONE);
    let sync = SyncGroupRequest {
        group_id: text("g"),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        protocol_type: Some(text("consumer")),
        protocol_name: Some(text("range")),
        assignments: vec![SyncGroupRequestAssignment {
            member_id: joined.member_id.clone(),
            assignment: Bytes::from_static(b"all"),
        }],
        ..SyncGroupRequest::default()
    };
    let synced = client.call(&sync).await.expect("an answer");
    assert_eq!(synced.error_code, ErrorCode::NONE);
    joined
}

/// A sign of life of that group's member.
pub fn heartbeat(joined: &JoinGroupResponse) -> HeartbeatRequest {
    HeartbeatRequest {
        group_id: text("g"),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        ..HeartbeatRequest::default()
    }
}

fn produce_request(value: &str, timeout_ms: i32) -> ProduceRequest {
    let mut builder = BatchBuilder::new(Compression::None);
    let record = NewRecord {
        timestamp: -1,
        key: None,
        value: Some(value.as_bytes()),
        headers: &[],
    };
    builder.push(&record).expect("small");
    let data = PartitionProduceData {
        records: Some(Records::from(builder.build().expect("a batch"))),
        ..PartitionProduceData::default()
    };
    ProduceRequest {
        acks: -1,
        timeout_ms,
        topic_data: vec![TopicProduceData {
            name: text("tides"),
            partition_data: vec![data],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

fn code_of(answer: &ProduceResponse) -> ErrorCode {
    answer.responses[0].partition_responses[0].error_code
}

/// `tidemill consume` that waits for more; what it has printed and said.
struct Follower {
    child: Child,
    out: Output,
    err: Output,
}

impl Follower {
    fn start(broker: &Broker) -> Self {
        let mut command = broker.cli(&["consume", "tides", "--timeout", "4"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let out = collect(child.stdout.take().expect("piped"));
        let err = collect(child.stderr.take().expect("piped"));
        Self { child, out, err }
    }

    fn has(&self, wanted: &[String]) -> bool {
        let out = self.out.lock().expect("no panic while it is held");
        out.lines().eq(wanted.iter().map(String::as_str))
    }

    fn said(&self) -> String {
        self.err.lock().expect("no panic while it is held").clone()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn sleep_until(began: Instant, after: Duration) {
    std::thread::sleep(after.saturating_sub(began.elapsed()));
}

/// A broker with twenty records in `tides`, of one partition.
fn started(bucket: &Bucket, dir: &std::path::Path) -> (Broker, Vec<String>) {
    let broker = bucket.setup(dir).set("num.partitions=1").start();
    let before = records(20, "before");
    broker.produce("tides", &before);
    (broker, before)
}

/// The own next WAL number can still be read, so the broker knows that it leads: everything but
/// writing goes on, for as long as it takes.
#[test]
fn refused_writes_stop_no_reader_no_heartbeat_and_no_metadata() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = Bucket::new();
    let (mut broker, before) = started(&bucket, dir.path());
    let follower = Follower::start(&broker);
    eventually("the follower is at the end", SOON, || follower.has(&before));
    let mut clients = bucket.threads.block_on(Clients::open(&broker.address));
    let writer = Client::open(&broker.address, Options::default(), Runtime::system());
    let writer = bucket.threads.block_on(writer).expect("it serves");
    let slow_down = S3Action::Status(503, "SlowDown");
    bucket
        .server
        .script(S3Rule::new(Operation::Put, "", slow_down));
    let began = Instant::now();
    let (patient, impatient) = bucket.threads.block_on(async {
        let patient = produce_request("patient", 60_000);
        let patient = writer.send_up_to(PRODUCE, &patient).await.expect("sent");
        let impatient = produce_request("impatient", 2_000);
        (
            patient,
            writer.send_up_to(PRODUCE, &impatient).await.expect("sent"),
        )
    });
    let mut rounds = 0;
    while began.elapsed() < OUTAGE {
        bucket.threads.block_on(async {
            let own = clients.with_session(0).await.expect("a prompt answer");
            assert_eq!(own.session_id, clients.session.0);
            let all = clients.without_session(0).await.expect("a prompt answer");
            assert!(bytes_of(&all) > 0, "what is cached is served");
            assert_eq!(clients.beat().await, Some(ErrorCode::NONE));
            let metadata = clients.sessionless.metadata(None);
            let metadata = clients.runtime.clock.timeout(PROMPT, metadata).await;
            metadata.expect("a prompt answer").expect("readable");
        });
        rounds += 1;
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(rounds >= 3, "{rounds} rounds of looking");
    // The end is proven by a read: a consumer that asks for it is told and ends.
    assert_eq!(broker.consume("tides"), before);
    assert!(broker.status().is_none(), "{}", broker.err());
    bucket.server.clear_script();
    bucket.threads.block_on(async {
        let answer = patient.wait().await.expect("an answer");
        assert_eq!(
            code_of(&answer),
            ErrorCode::NONE,
            "it waited as long as it was told to"
        );
        let answer = impatient.wait().await.expect("an answer");
        assert_eq!(code_of(&answer), ErrorCode::REQUEST_TIMED_OUT);
        assert_eq!(
            clients.beat().await,
            Some(ErrorCode::NONE),
            "the same generation"
        );
    });
    let late = ["patient".to_owned(), "impatient".to_owned()];
    let all = [before, late.to_vec()].concat();
    eventually("what was late is in the log (R4)", SOON, || {
        broker.consume("tides") == all
    });
    eventually("the follower has it too", SOON, || follower.has(&all));
    assert_eq!(follower.said(), "");
    assert_eq!(broker.stop(), Some(0));
}

/// Nothing proves that the broker still leads: what promises freshness falls silent after ten
/// seconds, and goes on by itself.
#[test]
fn refused_reads_silence_the_broker_until_it_knows_again_that_it_leads() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = Bucket::new();
    let (mut broker, before) = started(&bucket, dir.path());
    let follower = Follower::start(&broker);
    eventually("the follower is at the end", SOON, || follower.has(&before));
    let clients = bucket.threads.block_on(Clients::open(&broker.address));
    bucket
        .server
        .script(S3Rule::all(S3Action::Status(503, "SlowDown")));
    let began = Instant::now();
    let beat = heartbeat(&clients.joined);
    let (beating,) = bucket.threads.block_on(async {
        let cached = clients.without_session(0).await.expect("a prompt answer");
        assert!(
            bytes_of(&cached) > 0,
            "a proof of a moment ago is good enough"
        );
        // The member beats on as a client does, until it is not answered any more.
        loop {
            let sent = clients
                .member
                .send_up_to(i16::MAX, &beat)
                .await
                .expect("sent");
            let mut waits = Box::pin(sent.wait());
            let answer = clients.runtime.clock.timeout(SILENT, &mut waits).await;
            match answer {
                Ok(answer) => assert_eq!(answer.expect("readable").error_code, ErrorCode::NONE),
                // In a tuple: it is awaited later.
                Err(_) => break (waits,),
            }
            clients
                .runtime
                .clock
                .sleep(Duration::from_millis(500))
                .await;
        }
    });
    assert!(
        began.elapsed() > Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
    sleep_until(began, STALE);
    let exit = {
        let args = ["consume", "tides", "--exit", "--timeout", "2"];
        let asked = Instant::now();
        let ended = run(broker.cli(&args), "");
        assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
        ended
    };
    assert_eq!((exit.code, exit.out.as_str()), (Some(1), ""), "{exit:?}");
    assert!(exit.err.contains("store does not answer"), "{exit:?}");
    // Sent into the silence, answered once it is over, without a new connection.
    let (session_id, session_epoch) = clients.session;
    let with_session = FetchRequest {
        session_id,
        session_epoch,
        topics: Vec::new(),
        ..fetch_request(0)
    };
    let (one, two) = bucket.threads.block_on(async {
        let one = clients.sessioned.send_up_to(FETCH, &with_session).await;
        let two = clients
            .sessionless
            .send_up_to(FETCH, &fetch_request(0))
            .await;
        (one.expect("sent").wait(), two.expect("sent").wait())
    });
    let (mut one, mut two, mut three) = (Box::pin(one), Box::pin(two), beating);
    bucket.threads.block_on(async {
        let answered = async {
            tokio::select! {
                biased;
                _ = &mut one => "a fetch of a session",
                _ = &mut two => "a fetch without session",
                _ = &mut three => "a heartbeat",
            }
        };
        let silence = clients.runtime.clock.timeout(SILENT, answered).await;
        assert!(silence.is_err(), "answered without a proof: {silence:?}");
    });
    assert!(began.elapsed() > OUTAGE, "{:?}", began.elapsed());
    assert!(broker.status().is_none(), "{}", broker.err());
    assert_eq!(broker.admin("/health/live").0, 200);
    bucket.server.clear_script();
    bucket.threads.block_on(async {
        let (one, two, three) = (one.await, two.await, three.await);
        assert_eq!(one.expect("an answer").error_code, ErrorCode::NONE);
        assert!(bytes_of(&two.expect("an answer")) > 0);
        assert_eq!(
            three.expect("an answer").error_code,
            ErrorCode::NONE,
            "no rebalance"
        );
        assert_eq!(clients.beat().await, Some(ErrorCode::NONE));
    });
    let after = records(5, "after");
    broker.produce("tides", &after);
    let all = [before, after].concat();
    eventually("the follower found its way back", SOON, || {
        follower.has(&all)
    });
    let said = follower.said();
    assert!(said.contains("trying again"), "{said}");
    assert_eq!(broker.consume("tides"), all);
    assert_eq!(broker.stop(), Some(0));
}
