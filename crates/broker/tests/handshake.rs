//! Handshake and framing: K1-K3, K6, K7 and bad input against the whole broker.

mod common;

use std::time::Duration;

use common::{batch, fetch_request, produce_request, start};
use tidemill_wire::{
    ApiKey, Decoder, ErrorCode, Message,
    frame::{RequestHeader, decode_response},
    messages::{
        api_versions::{ApiVersionsRequest, ApiVersionsResponse},
        fetch::FetchRequest,
        metadata::MetadataRequest,
        produce::ProduceRequest,
    },
};

fn versions_request() -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: "test-client".into(),
        client_software_version: "1.0".into(),
        ..ApiVersionsRequest::default()
    }
}

#[tokio::test(start_paused = true)]
async fn api_versions_names_what_is_served_in_every_version() {
    let h = start().await;
    for version in 0..=5 {
        let response = h.connect().call(version, &versions_request()).await;
        assert_eq!(response.error_code, ErrorCode::NONE);
        let keys: Vec<_> = response.api_keys.iter().map(|api| api.api_key).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        for api in &response.api_keys {
            let key = ApiKey::from_code(api.api_key).expect("known");
            let advertised = key.advertised().expect("advertised");
            assert_eq!(
                (api.min_version, api.max_version),
                (*advertised.start(), *advertised.end())
            );
        }
        let produce = &response.api_keys[0];
        assert_eq!(
            (produce.api_key, produce.min_version, produce.max_version),
            (0, 0, 13)
        );
        // Java and franz-go would take up protocols that are not served yet, at the first sight of
        // `transaction.version` or `group.version`.
        assert!(response.finalized_features.is_empty());
        assert!(response.supported_features.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn k1_an_unknown_version_of_api_versions_is_answered_in_version_0() {
    let h = start().await;
    let mut client = h.connect();
    let mut body = vec![0, 18, 0, 99, 0, 0, 0, 7];
    // A client id and a tag section, and bytes nobody knows.
    body.extend([0, 1, b'c', 0, 1, 2, 3]);
    client.raw(&body).await;
    let mut decoder = Decoder::new(client.frame().await.expect("an answer"));
    assert_eq!(decoder.i32().expect("correlation id"), 7);
    let response = ApiVersionsResponse::decode(&mut decoder, 0).expect("version 0");
    assert_eq!(response.error_code, ErrorCode::UNSUPPORTED_VERSION);
    let own = &response.api_keys[0];
    assert_eq!((own.api_key, own.min_version, own.max_version), (18, 0, 5));
    // The connection is kept.
    let response = client.call(3, &versions_request()).await;
    assert_eq!(response.error_code, ErrorCode::NONE);
}

#[tokio::test(start_paused = true)]
async fn k2_the_header_of_api_versions_has_no_tags() {
    let h = start().await;
    let mut client = h.connect();
    let sent = client.send(3, &versions_request()).await;
    let frame = client.frame().await.expect("an answer");
    assert_eq!(&frame[..4], sent.to_be_bytes());
    assert_eq!(
        &frame[4..6],
        [0, 0],
        "the error code comes right behind the correlation id"
    );
}

#[tokio::test(start_paused = true)]
async fn k3_unknown_keys_and_versions_close_the_connection() {
    let h = start().await;
    // Unknown key, ControlledShutdown, Fetch 3, Fetch 19, Produce 0-2, negative ones.
    for (key, version) in [
        (999, 0),
        (7, 0),
        (1, 3),
        (1, 19),
        (0, 0),
        (0, 2),
        (-1, 0),
        (3, -1),
        (3, 14),
        (i16::MAX, 9),
    ] {
        let mut client = h.connect();
        let mut body = i16::to_be_bytes(key).to_vec();
        body.extend(i16::to_be_bytes(version));
        body.extend([0, 0, 0, 1, 255, 255, 0, 0, 0, 0]);
        client.raw(&body).await;
        assert!(client.closed().await, "key {key} version {version}");
    }
    assert_eq!(h.runtime.tasks.panics(), 0);
}

#[tokio::test(start_paused = true)]
async fn bodies_that_claim_2_31_items_are_refused_with_memory_flat() {
    let h = start().await;
    for key in ApiKey::ALL {
        let Some(versions) = key.advertised() else {
            continue;
        };
        for version in versions.filter(|version| key.supports(*version)) {
            for filler in [0x7f, 0xff, 0x00, 0x01] {
                if *key == ApiKey::Produce && filler == 0 {
                    // A well-formed request with acks=0, which is not answered.
                    continue;
                }
                let mut client = h.connect();
                let header = RequestHeader {
                    request_api_version: version,
                    correlation_id: 1,
                    ..RequestHeader::default()
                };
                let mut encoder = tidemill_wire::Encoder::new();
                let mut body = vec![];
                header.encode(*key, &mut encoder).expect("a header");
                body.extend_from_slice(&encoder.finish().to_bytes());
                body.extend([filler; 24]);
                client.raw(&body).await;
                // An answer or a close; never a hang, a panic or an allocation of what is claimed.
                let answer = client.frame();
                let answer = h
                    .runtime
                    .clock
                    .timeout(Duration::from_secs(120), answer)
                    .await;
                assert!(answer.is_ok(), "{key} {version} {filler:#x} hangs");
            }
        }
    }
    assert_eq!(h.runtime.tasks.panics(), 0);
    h.topic("alive", 1).await;
}

#[tokio::test(start_paused = true)]
async fn k6_responses_leave_in_order_whatever_takes_long() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let mut ids = Vec::new();
    let waiting = FetchRequest {
        max_wait_ms: 5_000,
        ..fetch_request("t", &[(0, 0)])
    };
    ids.push(client.send(11, &waiting).await);
    ids.push(client.send(12, &MetadataRequest::default()).await);
    ids.push(
        client
            .send(9, &produce_request("t", &[(0, batch(&["a"]))]))
            .await,
    );
    ids.push(client.send(3, &versions_request()).await);
    let frames = [
        decode_response::<FetchRequest>(client.frame().await.expect("1"), 11)
            .expect("1")
            .0,
        decode_response::<MetadataRequest>(client.frame().await.expect("2"), 12)
            .expect("2")
            .0,
        decode_response::<ProduceRequest>(client.frame().await.expect("3"), 9)
            .expect("3")
            .0,
        decode_response::<ApiVersionsRequest>(client.frame().await.expect("4"), 3)
            .expect("4")
            .0,
    ];
    assert_eq!(frames.as_slice(), ids);
}
