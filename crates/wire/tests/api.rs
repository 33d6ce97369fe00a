//! The tables of API keys and error codes.

use tidemill_wire::api::ApiKey;
use tidemill_wire::errors::ErrorCode;

#[test]
fn what_is_advertised_can_be_read() {
    for key in ApiKey::ALL {
        assert_eq!(ApiKey::from_code(key.code()), Some(*key));
        let Some(advertised) = key.advertised() else {
            continue;
        };
        assert!(key.supports(*advertised.end()), "{key}");
        // Produce 0-2 are advertised for old librdkafka, and refused.
        let refused = if *key == ApiKey::Produce { 3 } else { 0 };
        assert!(key.supports(advertised.start() + refused), "{key}");
    }
    assert_eq!(
        ApiKey::ALL
            .iter()
            .filter(|key| key.advertised().is_some())
            .count(),
        28
    );
    assert_eq!(ApiKey::from_code(4), None);
    assert_eq!(ApiKey::from_code(-1), None);
}

#[test]
fn old_librdkafka_finds_the_exact_versions_it_looks_for() {
    let wanted = [
        (ApiKey::Produce, &[0, 1, 2, 3, 7][..]),
        (ApiKey::Fetch, &[4, 10]),
        (ApiKey::ListOffsets, &[1]),
        (ApiKey::JoinGroup, &[0]),
        (ApiKey::FindCoordinator, &[0]),
        (ApiKey::InitProducerId, &[0]),
    ];
    for (key, versions) in wanted {
        let advertised = key.advertised().expect("advertised");
        assert!(
            versions.iter().all(|version| advertised.contains(version)),
            "{key}"
        );
    }
}

#[test]
fn header_versions() {
    assert_eq!(ApiKey::Produce.request_header_version(8), 1);
    assert_eq!(ApiKey::Produce.request_header_version(9), 2);
    assert_eq!(ApiKey::Produce.response_header_version(8), 0);
    assert_eq!(ApiKey::Produce.response_header_version(9), 1);
    assert_eq!(ApiKey::ApiVersions.request_header_version(3), 2);
    assert_eq!(ApiKey::ApiVersions.response_header_version(3), 0);
    assert_eq!(ApiKey::OffsetDelete.request_header_version(0), 1);
    assert_eq!(ApiKey::SaslHandshake.response_header_version(1), 0);
}

#[test]
fn headers_are_the_oracles() {
    for key in ApiKey::ALL {
        let Ok(oracle) = kafka_protocol::messages::ApiKey::try_from(key.code()) else {
            continue;
        };
        for version in key.versions() {
            assert_eq!(
                key.request_header_version(version),
                oracle.request_header_version(version)
            );
            assert_eq!(
                key.response_header_version(version),
                oracle.response_header_version(version)
            );
        }
    }
}

#[test]
fn error_codes() {
    assert_eq!(ErrorCode::NONE.code(), 0);
    assert_eq!(ErrorCode::ALL.len(), 138);
    assert!(ErrorCode::ALL.is_sorted());
    assert_eq!(ErrorCode::UNKNOWN_TOPIC_ID.code(), 100);
    assert_eq!(ErrorCode(82).name(), Some("FENCED_INSTANCE_ID"));
    assert_eq!(ErrorCode(9999).name(), None);
    assert!(ErrorCode::NOT_LEADER_OR_FOLLOWER.is_retriable());
    assert!(!ErrorCode::INVALID_RECORD.is_retriable());
    assert_eq!(
        format!("{:?}", ErrorCode(3)),
        "UNKNOWN_TOPIC_OR_PARTITION(3)"
    );
    for code in ErrorCode::ALL {
        let oracle = kafka_protocol::ResponseError::try_from_code(code.code());
        let unknown = |oracle| matches!(oracle, kafka_protocol::ResponseError::Unknown(_));
        let Some(oracle) = oracle.filter(|oracle| !unknown(*oracle)) else {
            continue;
        };
        // The oracle does not know yet that this one is retriable.
        if *code != ErrorCode::CONCURRENT_TRANSACTIONS {
            assert_eq!(oracle.is_retriable(), code.is_retriable(), "{code}");
        }
    }
}
