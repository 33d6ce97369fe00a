//! Cooperative rebalancing as two consumers do it on the wire (KIP-429, K46), and a large group.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tidemill_wire::{
    Decoder, Encoder, ErrorCode, Message,
    messages::{
        join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse},
        sync_group::{SyncGroupRequest, SyncGroupRequestAssignment},
    },
    records::consumer_protocol::{
        AssignmentTopicPartition, ConsumerProtocolAssignment, ConsumerProtocolSubscription,
        TopicPartition,
    },
};

use crate::{client::*, common::Client};

const STICKY: &str = "cooperative-sticky";
/// Subscription version that carries what a member owns.
const OWNED_FROM: i16 = 1;

fn encoded<M: Message>(version: i16, message: &M) -> Bytes {
    let mut encoder = Encoder::new();
    encoder.i16(version);
    message.encode(&mut encoder, version).expect("small");
    encoder.finish().to_bytes()
}

fn owning(partitions: &[i32]) -> Bytes {
    let owned = TopicPartition {
        topic: text("t"),
        partitions: partitions.to_vec(),
    };
    let subscription = ConsumerProtocolSubscription {
        topics: vec![text("t")],
        owned_partitions: vec![owned],
        ..ConsumerProtocolSubscription::default()
    };
    encoded(OWNED_FROM, &subscription)
}

fn assignment(partitions: &[i32]) -> Bytes {
    let assigned = AssignmentTopicPartition {
        topic: text("t"),
        partitions: partitions.to_vec(),
    };
    let message = ConsumerProtocolAssignment {
        assigned_partitions: vec![assigned],
        ..ConsumerProtocolAssignment::default()
    };
    encoded(OWNED_FROM, &message)
}

fn owned_by(metadata: &Bytes) -> Vec<i32> {
    let mut decoder = Decoder::new(metadata.clone());
    let version = decoder.i16().expect("a version");
    let read = ConsumerProtocolSubscription::decode(&mut decoder, version).expect("its format");
    let owned = read.owned_partitions.into_iter();
    owned.flat_map(|topic| topic.partitions).collect()
}

/// A consumer with what it owns.
struct Consumer {
    client: Client,
    joined: JoinGroupResponse,
    owned: Vec<i32>,
}

impl Consumer {
    fn new(client: Client) -> Self {
        Self {
            client,
            joined: JoinGroupResponse::default(),
            owned: Vec::new(),
        }
    }

    fn request(&self) -> JoinGroupRequest {
        JoinGroupRequest {
            protocols: vec![JoinGroupRequestProtocol {
                name: text(STICKY),
                metadata: owning(&self.owned),
            }],
            ..join_request("g", &self.joined.member_id, &["t"])
        }
    }

    async fn join(&mut self) {
        let mut request = self.request();
        let mut joined = self.client.call(9, &request).await;
        if joined.error_code == ErrorCode::MEMBER_ID_REQUIRED {
            request.member_id = joined.member_id;
            joined = self.client.call(9, &request).await;
        }
        assert_eq!(joined.error_code, ErrorCode::NONE);
        self.joined = joined;
    }

    fn leads(&self) -> bool {
        self.joined.leader == self.joined.member_id
    }

    /// Hands in `plan` if it leads; takes what it is given.
    async fn sync(&mut self, plan: &[(&JoinGroupResponse, &[i32])]) {
        let one = |(member, partitions): &(&JoinGroupResponse, &[i32])| {
            let member_id = member.member_id.clone();
            SyncGroupRequestAssignment {
                member_id,
                assignment: assignment(partitions),
            }
        };
        let request = SyncGroupRequest {
            group_id: text("g"),
            generation_id: self.joined.generation_id,
            member_id: self.joined.member_id.clone(),
            protocol_type: Some(text("consumer")),
            protocol_name: Some(text(STICKY)),
            assignments: plan.iter().filter(|_| self.leads()).map(one).collect(),
            ..SyncGroupRequest::default()
        };
        let synced = self.client.call(5, &request).await;
        assert_eq!(synced.error_code, ErrorCode::NONE);
        let mine = plan
            .iter()
            .find(|(member, _)| member.member_id == self.joined.member_id);
        let (_, partitions) = mine.expect("everybody is in the plan");
        assert_eq!(synced.assignment, assignment(partitions), "bytes unchanged");
        self.owned = partitions.to_vec();
    }

    async fn beats(&mut self) -> ErrorCode {
        beat(&mut self.client, "g", &self.joined).await
    }

    async fn commits(&mut self, partition: i32) -> ErrorCode {
        let mut request = commit_request("g", "t", &[(partition, 7)]);
        request.member_id = self.joined.member_id.clone();
        request.generation_id_or_member_epoch = self.joined.generation_id;
        let response = self.client.call(7, &request).await;
        response.topics[0].partitions[0].error_code
    }

    /// What the leader was told that each member owns, in the order of their ids.
    fn seen(&self) -> Vec<(String, Vec<i32>)> {
        let members = self.joined.members.iter();
        let seen = members.map(|one| (one.member_id.to_string(), owned_by(&one.metadata)));
        let mut seen: Vec<_> = seen.collect();
        seen.sort();
        seen
    }
}

fn sorted(mut members: Vec<(String, Vec<i32>)>) -> Vec<(String, Vec<i32>)> {
    members.sort();
    members
}

#[tokio::test(start_paused = true)]
async fn kip_429_a_partition_moves_in_two_rounds_and_the_other_is_never_given_up() {
    let h = start().await;
    h.topic("t", 2).await;
    let (mut a, mut b) = (Consumer::new(h.connect()), Consumer::new(h.connect()));
    a.join().await;
    assert_eq!((a.joined.generation_id, a.leads()), (1, true));
    a.sync(&[(&a.joined.clone(), &[0, 1])]).await;

    // The second one knocks. The first goes on with all it owns, commits included.
    let mut knock = b.request();
    knock.member_id = b.client.call(9, &knock).await.member_id;
    b.client.send(9, &knock).await;
    h.sleep(Duration::from_millis(10)).await;
    assert_eq!(a.beats().await, ErrorCode::REBALANCE_IN_PROGRESS);
    assert_eq!(a.commits(1).await, ErrorCode::NONE);
    a.join().await;
    b.joined = b.client.receive::<JoinGroupRequest>(9).await.1;
    assert_eq!((a.joined.generation_id, b.joined.generation_id), (2, 2));
    assert!(a.leads() && !b.leads(), "who led before leads again");
    let (id_a, id_b) = (
        a.joined.member_id.to_string(),
        b.joined.member_id.to_string(),
    );
    let wanted = vec![(id_a.clone(), vec![0, 1]), (id_b.clone(), vec![])];
    assert_eq!(a.seen(), sorted(wanted));
    assert_eq!(a.commits(0).await, ErrorCode::REBALANCE_IN_PROGRESS, "K48");

    // First round: what moves is taken away and given to nobody yet.
    let (ja, jb) = (a.joined.clone(), b.joined.clone());
    let plan: [(&JoinGroupResponse, &[i32]); 2] = [(&ja, &[0]), (&jb, &[])];
    let (_, ()) = futures_util::join!(b.sync(&plan), a.sync(&plan));
    assert_eq!(
        a.commits(1).await,
        ErrorCode::NONE,
        "the last word on what it gave up"
    );

    // Second round, begun by whoever gave something up.
    let again = a.request();
    a.client.send(9, &again).await;
    h.sleep(Duration::from_millis(10)).await;
    assert_eq!(b.beats().await, ErrorCode::REBALANCE_IN_PROGRESS);
    b.join().await;
    a.joined = a.client.receive::<JoinGroupRequest>(9).await.1;
    assert_eq!((a.joined.generation_id, b.joined.generation_id), (3, 3));
    assert_eq!(a.seen(), sorted(vec![(id_a, vec![0]), (id_b, vec![])]));
    let (ja, jb) = (a.joined.clone(), b.joined.clone());
    let plan: [(&JoinGroupResponse, &[i32]); 2] = [(&ja, &[0]), (&jb, &[1])];
    let (_, ()) = futures_util::join!(b.sync(&plan), a.sync(&plan));
    for consumer in [&mut a, &mut b] {
        assert_eq!(consumer.beats().await, ErrorCode::NONE);
    }
    assert_eq!(b.commits(1).await, ErrorCode::NONE);
    let described = describe(&mut a.client, 5, "g").await;
    assert_eq!(
        (&*described.group_state, &*described.protocol_data),
        ("Stable", STICKY)
    );
}

#[tokio::test(start_paused = true)]
async fn a_thousand_members_form_one_group_lose_one_and_survive_a_restart() {
    const MEMBERS: usize = 1_000;
    let h = start().await;
    h.topic("t", 1).await;
    let mut clients: Vec<Client> = (0..MEMBERS).map(|_| h.connect()).collect();
    let joined = join_all(clients.iter_mut().map(|client| join(client, 9, "g"))).await;
    assert!(joined.iter().all(|one| one.error_code == ErrorCode::NONE));
    let generation = joined[0].generation_id;
    assert!(joined.iter().all(|one| one.generation_id == generation));
    let leaders: Vec<_> = joined
        .iter()
        .filter(|one| !one.members.is_empty())
        .collect();
    assert_eq!((leaders.len(), leaders[0].members.len()), (1, MEMBERS));
    let all = clients.iter_mut().zip(&joined);
    let synced = join_all(all.map(|(client, joined)| sync(client, 5, "g", joined))).await;
    for (synced, joined) in synced.iter().zip(&joined) {
        assert_eq!(synced.assignment, format!("for {}", joined.member_id));
    }
    let all = clients.iter_mut().zip(&joined);
    let beats = join_all(all.map(|(client, joined)| beat(client, "g", joined))).await;
    assert!(beats.iter().all(|code| *code == ErrorCode::NONE));

    let gone = joined[7].member_id.clone();
    assert_eq!(leave(&mut clients[0], 3, "g", &gone).await, ErrorCode::NONE);
    clients.remove(7);
    let ids = joined
        .iter()
        .map(|one| &*one.member_id)
        .filter(|id| **id != *gone);
    let requests: Vec<_> = ids.map(|id| join_request("g", id, &["t"])).collect();
    let all = clients.iter_mut().zip(&requests);
    let again = join_all(all.map(|(client, request)| client.call(9, request))).await;
    assert!(again.iter().all(|one| one.error_code == ErrorCode::NONE));
    assert!(again.iter().all(|one| one.generation_id == generation + 1));
    let all = clients.iter_mut().zip(&again);
    join_all(all.map(|(client, joined)| sync(client, 5, "g", joined))).await;

    let h = restart(&h).await;
    let mut client = h.connect();
    let described = describe(&mut client, 5, "g").await;
    assert_eq!(described.members.len(), MEMBERS - 1);
    for joined in &again {
        assert_eq!(beat(&mut client, "g", joined).await, ErrorCode::NONE);
    }
}
