//! Where credentials of a bucket come from: roles of machines, pods and tokens, not keys alone.

mod common;

use std::collections::BTreeMap;

use common::{id, object};
use tidemill_runtime::Runtime;
use tidemill_store::{
    OpenError, OpenOptions, PutAnswer, open,
    testing::{S3Options, S3Server},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const KEY_ID: &str = "of-a-role";

fn json() -> String {
    format!(
        "{{\"Code\":\"Success\",\"AccessKeyId\":\"{KEY_ID}\",\"SecretAccessKey\":\"s\",\
         \"Token\":\"t\",\"Expiration\":\"2099-01-01T00:00:00Z\"}}"
    )
}

fn xml() -> String {
    format!(
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
         <SessionToken>t</SessionToken><SecretAccessKey>s</SecretAccessKey>\
         <AccessKeyId>{KEY_ID}</AccessKeyId><Expiration>2099-01-01T00:00:00Z</Expiration>\
         </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
    )
}

/// What a metadata service, a pod's agent and a token service answer.
fn answer(request: &str) -> Option<String> {
    let (method, rest) = request.split_once(' ')?;
    let (path, headers) = rest.split_once(' ')?;
    let headers = headers.to_ascii_lowercase();
    match (method, path) {
        ("PUT", "/latest/api/token") => Some("imds-token".to_owned()),
        ("GET", "/latest/meta-data/iam/security-credentials/") => Some("a-role".to_owned()),
        ("GET", "/latest/meta-data/iam/security-credentials/a-role")
            if headers.contains("imds-token") =>
        {
            Some(json())
        }
        ("GET", "/pod") if headers.contains("authorization: pod-token") => Some(json()),
        (_, path) if path.contains("AssumeRoleWithWebIdentity") => Some(xml()),
        ("POST", _) => Some(xml()),
        _ => None,
    }
}

async fn serve(mut socket: TcpStream) {
    let mut request = Vec::new();
    let mut chunk = [0; 4_096];
    while !request.windows(4).any(|four| four == b"\r\n\r\n") {
        match socket.read(&mut chunk).await {
            Ok(len) if len > 0 => request.extend_from_slice(&chunk[..len]),
            _ => return,
        }
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    let (status, body) = match answer(&text) {
        Some(body) => ("200 OK", body),
        None => ("403 Forbidden", String::new()),
    };
    let len = body.len();
    let answer =
        format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}");
    // A client that is gone needs no answer.
    let _ = socket.write_all(answer.as_bytes()).await;
}

/// Starts the services; gives their address.
async fn services(runtime: &Runtime) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("listens");
    let address = listener.local_addr().expect("listens");
    let tasks = runtime.tasks.clone();
    runtime.tasks.spawn("services", async move {
        while let Ok((socket, _)) = listener.accept().await {
            tasks.spawn("service", serve(socket));
        }
    });
    format!("http://{address}")
}

/// Creates an object with the credentials that `variables` lead to.
async fn create_with(variables: impl Fn(&str) -> Vec<(&'static str, String)>) {
    let runtime = Runtime::system();
    let options = S3Options {
        buckets: vec!["bucket".to_owned()],
        key_ids: vec![KEY_ID.to_owned()],
        ..S3Options::default()
    };
    let server = S3Server::start(options, runtime.clone())
        .await
        .expect("listens");
    let services = services(&runtime).await;
    let mut environment = BTreeMap::from([
        ("AWS_ENDPOINT_URL".to_owned(), server.endpoint()),
        ("AWS_REGION".to_owned(), "us-east-1".to_owned()),
    ]);
    for (name, value) in variables(&services) {
        environment.insert(name.to_owned(), value);
    }
    let options = OpenOptions {
        environment,
        ..OpenOptions::default()
    };
    let backend = open("s3://bucket/p", &options, runtime)
        .await
        .expect("opens");
    let put = backend.put_if_absent("k", object(id(1), b"x")).await;
    assert_eq!(put, Ok(PutAnswer::Created));
    assert_eq!(
        server.bucket("bucket").map(|objects| objects.len()),
        Some(1)
    );
}

#[tokio::test]
async fn of_an_instance() {
    create_with(|services| vec![("AWS_METADATA_ENDPOINT", services.to_owned())]).await;
}

#[tokio::test]
async fn of_a_pod() {
    let dir = tempfile::tempdir().expect("a directory");
    let token = dir.path().join("token");
    std::fs::write(&token, "pod-token").expect("is written");
    let token = token.to_string_lossy().into_owned();
    create_with(|services| {
        vec![
            (
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                format!("{services}/pod"),
            ),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.clone()),
        ]
    })
    .await;
}

#[tokio::test]
async fn of_a_web_identity() {
    let dir = tempfile::tempdir().expect("a directory");
    let token = dir.path().join("token");
    std::fs::write(&token, "web-token").expect("is written");
    let token = token.to_string_lossy().into_owned();
    create_with(|services| {
        vec![
            ("AWS_WEB_IDENTITY_TOKEN_FILE", token.clone()),
            ("AWS_ROLE_ARN", "arn:aws:iam::1:role/a-role".to_owned()),
            ("AWS_ENDPOINT_URL_STS", services.to_owned()),
        ]
    })
    .await;
}

#[tokio::test]
async fn none_at_all_says_what_to_set() {
    let opened = open("s3://bucket/p", &OpenOptions::default(), Runtime::system()).await;
    let Err(OpenError::Settings { what }) = opened else {
        panic!("opened without credentials");
    };
    for name in [
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_METADATA_ENDPOINT",
    ] {
        assert!(what.contains(name), "{what}");
    }
}
