//! Answers of a remote store and what is concluded from them (K66, K94).

mod common;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use common::{id, joined, object};
use tidemill_runtime::Runtime;
use tidemill_store::{
    Backend, CreateOutcome, HedgeOptions, OpenError, OpenOptions, PutAnswer, RootError, Store,
    StoreErrorKind, StoreOptions, open, open_root,
    testing::{Fault, FaultPlan, FaultyBackend, Operation, S3Action, S3Options, S3Rule, S3Server},
};

struct Setup {
    server: S3Server,
    backend: Arc<dyn Backend>,
    store: Store,
    runtime: Runtime,
}

async fn setup_with(options: S3Options, change: impl Fn(&mut BTreeMap<String, String>)) -> Setup {
    let runtime = Runtime::system();
    let server = S3Server::start(options, runtime.clone())
        .await
        .expect("listens");
    let mut environment = server.environment();
    change(&mut environment);
    let options = OpenOptions {
        environment,
        ..OpenOptions::default()
    };
    let backend = open("s3://bucket/p", &options, runtime.clone())
        .await
        .expect("opens");
    let options = StoreOptions {
        request_timeout: Duration::from_millis(500),
        backoff_min: Duration::from_millis(5),
        backoff_max: Duration::from_millis(20),
        read_deadline: Duration::from_secs(5),
        ..StoreOptions::default()
    };
    let store = Store::new(backend.clone(), runtime.clone(), options);
    Setup {
        server,
        backend,
        store,
        runtime,
    }
}

fn bucket() -> S3Options {
    S3Options {
        buckets: vec!["bucket".to_owned()],
        ..S3Options::default()
    }
}

async fn setup() -> Setup {
    setup_with(bucket(), |_| {}).await
}

/// A scripted answer to a create; kind, status and code of the error it becomes.
type Case = (S3Action, StoreErrorKind, Option<u16>, Option<&'static str>);

fn create_cases() -> Vec<Case> {
    use S3Action::{ErrorBody, Page404, ResetAfter, ResetBefore, Status, StatusAfter};
    use StoreErrorKind::{Full, Refused, Unavailable, Unknown};
    let skewed = "RequestTimeTooSkewed";
    let full = "XMinioStorageFull";
    vec![
        (
            Status(503, "SlowDown"),
            Unavailable,
            Some(503),
            Some("SlowDown"),
        ),
        (
            Status(429, "TooMany"),
            Unavailable,
            Some(429),
            Some("TooMany"),
        ),
        (
            Status(500, "InternalError"),
            Unknown,
            Some(500),
            Some("InternalError"),
        ),
        (StatusAfter(502, "Bad"), Unknown, Some(502), Some("Bad")),
        (
            Status(404, "NoSuchBucket"),
            Refused,
            Some(404),
            Some("NoSuchBucket"),
        ),
        (
            Status(404, "NoSuchKey"),
            Unavailable,
            Some(404),
            Some("NoSuchKey"),
        ),
        (Page404, Unavailable, Some(404), None),
        (
            Status(403, "AccessDenied"),
            Refused,
            Some(403),
            Some("AccessDenied"),
        ),
        (Status(403, skewed), Unavailable, Some(403), Some(skewed)),
        (
            Status(400, "RequestTimeout"),
            Unknown,
            Some(400),
            Some("RequestTimeout"),
        ),
        (Status(507, full), Full, Some(507), Some(full)),
        (
            ErrorBody("InternalError"),
            Unknown,
            Some(200),
            Some("InternalError"),
        ),
        (ErrorBody("SlowDown"), Unknown, Some(200), Some("SlowDown")),
        (ResetBefore, Unknown, None, None),
        (ResetAfter, Unknown, None, None),
    ]
}

#[tokio::test]
async fn a_create_says_what_may_be_concluded() {
    let setup = setup().await;
    for (n, (action, kind, status, code)) in create_cases().into_iter().enumerate() {
        let key = format!("case/{n:02}");
        setup
            .server
            .script(S3Rule::new(Operation::Put, &key, action));
        let answer = setup.backend.put_if_absent(&key, object(id(1), b"x")).await;
        let error = answer.expect_err("scripted");
        assert_eq!(
            (error.kind, error.status),
            (kind, status),
            "{action:?}: {error}"
        );
        if code.is_some() {
            assert_eq!(error.code.as_deref(), code, "{action:?}: {error}");
        }
    }
    for status in [412, 409] {
        let key = format!("taken/{status}");
        let action = S3Action::Status(status, "ConditionalRequestConflict");
        setup
            .server
            .script(S3Rule::new(Operation::Put, &key, action));
        let answer = setup.backend.put_if_absent(&key, object(id(1), b"x")).await;
        assert_eq!(answer, Ok(PutAnswer::Exists), "{status}");
    }
}

#[tokio::test]
async fn nobody_listening_is_certainly_not_carried_out() {
    let setup = setup().await;
    let Setup {
        server, backend, ..
    } = setup;
    drop(server);
    // The connection kept from before may be reset first.
    let mut kinds = Vec::new();
    for _ in 0..3 {
        let answer = backend.put_if_absent("a", object(id(1), b"")).await;
        kinds.push(answer.expect_err("nobody listens").kind);
    }
    assert_eq!(
        kinds.last(),
        Some(&StoreErrorKind::Unavailable),
        "{kinds:?}"
    );
}

#[tokio::test]
async fn concurrent_requests_keep_their_answers_apart() {
    let setup = setup().await;
    let codes = ["CodeA", "CodeB", "CodeC", "CodeD"];
    for code in codes {
        setup.server.script(S3Rule::new(
            Operation::Get,
            code,
            S3Action::Status(500, code),
        ));
    }
    let mut tasks = Vec::new();
    for n in 0..64 {
        let (backend, code) = (setup.backend.clone(), codes[n % 4]);
        tasks.push(setup.runtime.tasks.spawn("get", async move {
            (code, backend.get(&format!("{code}/{n}")).await)
        }));
    }
    for task in tasks {
        let (code, answer) = task.join().await.expect("does not panic");
        assert_eq!(answer.expect_err("scripted").code.as_deref(), Some(code));
    }
}

#[tokio::test]
async fn reads_that_fail_or_break_off_are_asked_again() {
    let setup = setup().await;
    let body = object(id(1), &[5; 300_000]);
    setup
        .backend
        .put_if_absent("k", body.clone())
        .await
        .expect("puts");
    let actions = [
        S3Action::Truncated,
        S3Action::Status(503, "SlowDown"),
        S3Action::Status(500, "InternalError"),
        S3Action::ErrorBody("InternalError"),
        S3Action::Page404,
        S3Action::ResetBefore,
        S3Action::SlowFirstByte(Duration::from_secs(20)),
        S3Action::Status(403, "RequestTimeTooSkewed"),
    ];
    for action in actions {
        setup.server.clear_script();
        setup
            .server
            .script(S3Rule::new(Operation::Get, "k", action).times(2));
        let whole = setup.store.get("k").await;
        assert_eq!(whole.expect("read in the end"), joined(&body), "{action:?}");
        setup.server.clear_script();
        setup
            .server
            .script(S3Rule::new(Operation::Get, "k", action).times(2));
        let range = setup.store.get_range("k", 100..200_000).await;
        assert_eq!(
            range.expect("read in the end"),
            joined(&body)[100..200_000],
            "{action:?}"
        );
    }
    for action in [
        S3Action::ErrorBody("InternalError"),
        S3Action::Status(503, "SlowDown"),
    ] {
        setup
            .server
            .script(S3Rule::new(Operation::List, "", action).times(2));
        assert_eq!(
            setup
                .store
                .list_all("")
                .await
                .expect("lists in the end")
                .len(),
            1
        );
    }
}

#[tokio::test]
async fn own_writes_are_recognised() {
    let setup = setup().await;
    let actions = [
        S3Action::ResetAfter,
        S3Action::StatusAfter(500, "InternalError"),
        S3Action::StatusAfter(412, "PreconditionFailed"),
        S3Action::Status(409, "ConditionalRequestConflict"),
        S3Action::Status(404, "NoSuchKey"),
        S3Action::ErrorBody("InternalError"),
        S3Action::SlowFirstByte(Duration::from_secs(20)),
    ];
    for (n, action) in actions.into_iter().enumerate() {
        let key = format!("own/{n}");
        setup
            .server
            .script(S3Rule::new(Operation::Put, &key, action).times(2));
        let ours = setup
            .store
            .create(&key, object(id(1), b"x"), id(1), None)
            .await;
        assert!(
            matches!(ours, Ok(CreateOutcome::Ours)),
            "{action:?}: {ours:?}"
        );
        setup
            .server
            .script(S3Rule::new(Operation::Put, &key, action).times(1));
        let foreign = setup
            .store
            .create(&key, object(id(2), b"x"), id(2), None)
            .await;
        assert!(
            matches!(foreign, Ok(CreateOutcome::Foreign(_))),
            "{action:?}: {foreign:?}"
        );
    }
}

#[tokio::test]
async fn starts_end_with_the_reason() {
    let minute = Duration::from_secs(60);
    let missing = setup_with(S3Options::default(), |_| {}).await;
    let error = open_root(&missing.store, None, minute)
        .await
        .expect_err("no bucket");
    assert!(
        error.to_string().contains("create the bucket first"),
        "{error}"
    );
    let options = S3Options {
        key_ids: vec!["known".to_owned()],
        ..bucket()
    };
    let unknown = setup_with(options, |_| {}).await;
    let error = open_root(&unknown.store, None, minute)
        .await
        .expect_err("unknown key");
    assert!(error.to_string().contains("InvalidAccessKeyId"), "{error}");
    let options = S3Options {
        denied_key_ids: vec!["test".to_owned()],
        ..bucket()
    };
    let denied = setup_with(options, |_| {}).await;
    let error = open_root(&denied.store, None, minute)
        .await
        .expect_err("denied");
    assert!(error.to_string().contains("AccessDenied"), "{error}");
    let wrong = setup().await;
    wrong
        .server
        .script(S3Rule::all(S3Action::Status(403, "SignatureDoesNotMatch")));
    let error = open_root(&wrong.store, None, minute)
        .await
        .expect_err("wrong secret");
    assert!(
        error.to_string().contains("AWS_SECRET_ACCESS_KEY"),
        "{error}"
    );
    let options = S3Options {
        ignores_conditions: true,
        ..bucket()
    };
    let careless = setup_with(options, |_| {}).await;
    let error = open_root(&careless.store, None, minute)
        .await
        .expect_err("overwrites");
    assert!(
        matches!(error, RootError::ConditionIgnored { .. }),
        "{error}"
    );
    let good = setup().await;
    let root = open_root(&good.store, None, minute).await.expect("adopts");
    assert_eq!(open_root(&good.store, None, minute).await, Ok(root));
}

#[tokio::test]
async fn a_start_waits_out_what_may_pass() {
    let setup = setup().await;
    for action in [
        S3Action::Status(503, "SlowDown"),
        S3Action::Status(403, "RequestTimeTooSkewed"),
        S3Action::Status(403, "AccessDenied"),
        S3Action::Page404,
        S3Action::ResetBefore,
    ] {
        setup.server.script(S3Rule::all(action).times(1));
    }
    open_root(&setup.store, None, Duration::from_secs(60))
        .await
        .expect("starts in the end");
    setup
        .server
        .script(S3Rule::all(S3Action::Status(503, "SlowDown")));
    let error = open_root(&setup.store, None, Duration::from_secs(1))
        .await
        .expect_err("too long");
    assert!(matches!(error, RootError::TimedOut { .. }), "{error}");
}

#[tokio::test]
async fn settings_say_what_is_missing() {
    let runtime = Runtime::system();
    let cases = [
        ("s3://bucket", "AWS_ACCESS_KEY_ID"),
        ("gs://bucket", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az://container", "AZURE_STORAGE_ACCOUNT_NAME"),
        ("s3://", "names no bucket"),
        ("ftp://x", "`file:DIR`"),
        ("file:", "`file:DIR`"),
        ("/data", "`file:DIR`"),
    ];
    for (url, wanted) in cases {
        let error = open(url, &OpenOptions::default(), runtime.clone())
            .await
            .expect_err("wrong");
        assert!(matches!(error, OpenError::Settings { .. }));
        assert!(error.to_string().contains(wanted), "{url}: {error}");
    }
    let mut express = OpenOptions::default();
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        let value = "a".to_owned();
        express.environment.insert(name.to_owned(), value);
    }
    let opened = open("s3://b--use1-az4--x-s3", &express, runtime.clone()).await;
    let error = opened.expect_err("in no region");
    assert!(error.to_string().contains("AWS_REGION"), "{error}");
    let mut options = OpenOptions::default();
    for (name, value) in [
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
        ("AWS_ENDPOINT_URL", "localhost:9000"),
    ] {
        options
            .environment
            .insert(name.to_owned(), value.to_owned());
    }
    let error = open("s3://bucket", &options, runtime.clone())
        .await
        .expect_err("no scheme");
    assert!(error.to_string().contains("http://"), "{error}");
    options.environment.remove("AWS_ENDPOINT_URL");
    let opened = open("s3://bucket/pre/fix/", &options, runtime)
        .await
        .expect("opens");
    assert_eq!(opened.describe(), "s3://bucket/pre/fix");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_creator_wins_each_number_behind_faults() {
    let setup = setup().await;
    let short = Duration::from_millis(30);
    let plan = FaultPlan::none()
        .rate(Fault::Throttled, 0.05)
        .rate(Fault::ErrorAfter, 0.05)
        .rate(Fault::TimeoutAfter(short), 0.05)
        .rate(Fault::Late(short), 0.05)
        .rate(Fault::Twin(short), 0.05)
        .rate(Fault::ExistsAfter, 0.05)
        .rate(Fault::Conflict, 0.05)
        .rate(Fault::Torn, 0.05)
        .rate(Fault::BitFlip, 0.05);
    let faulty = FaultyBackend::new(setup.backend.clone(), setup.runtime.clone(), 7, plan);
    let options = StoreOptions {
        backoff_min: short / 10,
        ..StoreOptions::default()
    };
    let store = Store::new(Arc::new(faulty), setup.runtime.clone(), options);
    let mut creators = Vec::new();
    for creator in 1..=8 {
        let store = store.clone();
        creators.push(setup.runtime.tasks.spawn("creator", async move {
            let mut won = Vec::new();
            for n in 0..12 {
                let body = object(id(creator), &[creator; 5_000]);
                match store
                    .create(&format!("log/{n:020}"), body, id(creator), None)
                    .await
                {
                    Ok(CreateOutcome::Ours) => won.push(n),
                    Ok(CreateOutcome::Foreign(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            won
        }));
    }
    let mut winners = [0; 12];
    for creator in creators {
        for n in creator.join().await.expect("does not panic") {
            winners[n] += 1;
        }
    }
    assert_eq!(winners, [1; 12]);
}

/// The connection that the first request hangs on is not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hedge_goes_over_a_connection_of_its_own() {
    let setup = setup().await;
    let options = StoreOptions {
        hedge: HedgeOptions {
            unmeasured_delay: Duration::from_millis(50),
            ..HedgeOptions::default()
        },
        ..StoreOptions::default()
    };
    let store = Store::new(setup.backend.clone(), setup.runtime.clone(), options);
    let late = S3Action::SlowFirstByte(Duration::from_secs(20));
    setup
        .server
        .script(S3Rule::new(Operation::Put, "hung", late).times(1));
    // A pool that has one idle connection only.
    let warm = store.create("warm", object(id(1), b"x"), id(1), None).await;
    assert!(matches!(warm, Ok(CreateOutcome::Ours)));
    let within = Duration::from_secs(10);
    let created = store.create("hung", object(id(2), b"x"), id(2), None);
    let created = setup.runtime.clock.timeout(within, created).await;
    assert!(
        matches!(created, Ok(Ok(CreateOutcome::Ours))),
        "{created:?}"
    );
    assert_eq!(store.put_hedges().sent, 1);
    assert_eq!(setup.server.counts().puts, 3);
}
