//! Buckets by URL and the environment variables that go with them.

use std::{collections::BTreeMap, sync::Arc};

use object_store::{
    RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
};

use super::{Bucket, Remote, http::Connector};
use crate::{key, open::OpenError};

fn wrong(what: impl Into<String>) -> OpenError {
    OpenError::Settings { what: what.into() }
}

/// Retries are the store crate's own.
fn no_retries() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

/// Opens `s3://`, `gs://` or `az://`; `None` for another scheme. No request is made.
pub(crate) fn open(
    url: &str,
    environment: &BTreeMap<String, String>,
) -> Option<Result<Remote, OpenError>> {
    let connector = match Connector::new() {
        Ok(connector) => connector,
        Err(what) => return Some(Err(OpenError::Failed { what })),
    };
    open_over(url, environment, &connector)
}

/// The same for a server of tests that stands in for the bucket's own host name.
#[cfg(feature = "testing")]
pub(crate) fn open_routed(
    url: &str,
    environment: &BTreeMap<String, String>,
    address: std::net::SocketAddr,
) -> Result<Remote, OpenError> {
    let bucket = url
        .split_once("://")
        .and_then(|(_, rest)| rest.split('/').next());
    let connector = Connector::new().map_err(|what| OpenError::Failed { what })?;
    let connector = connector.routed(address, bucket.unwrap_or(""));
    open_over(url, environment, &connector).unwrap_or_else(|| Err(wrong("not a bucket")))
}

fn open_over(
    url: &str,
    environment: &BTreeMap<String, String>,
    connector: &Connector,
) -> Option<Result<Remote, OpenError>> {
    let (scheme, rest) = url.split_once("://")?;
    let build = match scheme {
        "s3" => s3,
        "gs" => gcs,
        "az" => azure,
        _ => return None,
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let build = |bucket: &str| build(bucket, environment, connector.clone());
    Some(open_bucket(url, scheme, (bucket, prefix), build))
}

fn open_bucket(
    url: &str,
    scheme: &str,
    (bucket, prefix): (&str, &str),
    build: impl FnOnce(&str) -> Result<Arc<dyn Bucket>, OpenError>,
) -> Result<Remote, OpenError> {
    let prefix = prefix.trim_end_matches('/');
    if bucket.is_empty() {
        return Err(wrong(format!(
            "`{url}` names no bucket; it should be `{scheme}://BUCKET/PREFIX`"
        )));
    }
    // Room for the longest key of ours below it.
    if !prefix.is_empty() && (key::check("open", prefix).is_err() || prefix.len() > 200) {
        return Err(wrong(format!(
            "the prefix of `{url}` has to be at most 200 letters, digits and `._=@+-/`"
        )));
    }
    let root = if prefix.is_empty() {
        String::new()
    } else {
        format!("{prefix}/")
    };
    let name = format!("{scheme}://{bucket}/{prefix}")
        .trim_end_matches('/')
        .to_owned();
    Ok(Remote {
        bucket: build(bucket)?,
        root,
        name,
        copies: scheme != "s3",
        is_ordered: scheme != "s3" || !is_express(bucket),
    })
}

fn is_set(environment: &BTreeMap<String, String>, names: &[&str]) -> bool {
    names.iter().any(|name| {
        environment
            .get(*name)
            .is_some_and(|value| !value.is_empty())
    })
}

/// True for a directory bucket (S3 Express One Zone), as all of them are named.
fn is_express(bucket: &str) -> bool {
    bucket.ends_with("--x-s3")
}

fn s3(
    bucket: &str,
    environment: &BTreeMap<String, String>,
    connector: Connector,
) -> Result<Arc<dyn Bucket>, OpenError> {
    let has_keys = is_set(environment, &["AWS_ACCESS_KEY_ID"])
        && is_set(environment, &["AWS_SECRET_ACCESS_KEY"]);
    let has_role = is_set(environment, &["AWS_WEB_IDENTITY_TOKEN_FILE"])
        || is_set(environment, &["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"])
        || is_set(environment, &["AWS_CONTAINER_CREDENTIALS_FULL_URI"])
        || is_set(environment, &["AWS_METADATA_ENDPOINT"]);
    if !has_keys && !has_role {
        return Err(wrong(format!(
            "no credentials for `s3://{bucket}`: set `AWS_ACCESS_KEY_ID` and \
             `AWS_SECRET_ACCESS_KEY` (and `AWS_SESSION_TOKEN`), or the variables of a role \
             (`AWS_WEB_IDENTITY_TOKEN_FILE` with `AWS_ROLE_ARN`, \
             `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI`, or `AWS_CONTAINER_CREDENTIALS_FULL_URI` \
             with `AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE`), or \
             `AWS_METADATA_ENDPOINT=http://169.254.169.254` on EC2"
        )));
    }
    let mut builder = AmazonS3Builder::new();
    for (name, value) in environment.iter().filter(|(_, value)| !value.is_empty()) {
        let known = name
            .starts_with("AWS_")
            .then(|| name.to_ascii_lowercase().parse());
        if let Some(Ok(known)) = known {
            let known: AmazonS3ConfigKey = known;
            builder = builder.with_config(known, value);
        }
    }
    let has_region = is_set(environment, &["AWS_REGION", "AWS_DEFAULT_REGION"]);
    if is_express(bucket) && !has_region {
        return Err(wrong(format!(
            "`s3://{bucket}` is a directory bucket: set `AWS_REGION` to the region of its zone"
        )));
    }
    let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]
        .iter()
        .find_map(|name| environment.get(*name).filter(|value| !value.is_empty()));
    if let Some(endpoint) = endpoint {
        let is_url = endpoint.starts_with("http://") || endpoint.starts_with("https://");
        if !is_url {
            return Err(wrong(format!(
                "`AWS_ENDPOINT_URL` is `{endpoint}`; it should start with `http://` or `https://`"
            )));
        }
        builder = builder.with_endpoint(endpoint).with_allow_http(true);
    }
    let built = builder
        .with_bucket_name(bucket)
        .with_retry(no_retries())
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        // The payload's own checksums are in it, and TLS guards it on its way.
        .with_unsigned_payload(true)
        .with_disable_bulk_delete(true)
        .with_disable_tagging(true)
        .with_s3_express(is_express(bucket))
        .with_http_connector(connector)
        .build();
    Ok(Arc::new(built.map_err(|error| {
        wrong(format!("cannot use `s3://{bucket}`: {error}"))
    })?))
}

fn gcs(
    bucket: &str,
    environment: &BTreeMap<String, String>,
    connector: Connector,
) -> Result<Arc<dyn Bucket>, OpenError> {
    let has_credentials = is_set(
        environment,
        &[
            "GOOGLE_SERVICE_ACCOUNT",
            "GOOGLE_SERVICE_ACCOUNT_PATH",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_BEARER_TOKEN",
            "GOOGLE_SKIP_SIGNATURE",
        ],
    );
    if !has_credentials {
        return Err(wrong(format!(
            "no credentials for `gs://{bucket}`: set `GOOGLE_APPLICATION_CREDENTIALS` or \
             `GOOGLE_SERVICE_ACCOUNT` to a key file, or `GOOGLE_SERVICE_ACCOUNT_KEY` to its text"
        )));
    }
    let mut builder = GoogleCloudStorageBuilder::new();
    for (name, value) in environment.iter().filter(|(_, value)| !value.is_empty()) {
        let known = name
            .starts_with("GOOGLE_")
            .then(|| name.to_ascii_lowercase().parse());
        if let Some(Ok(known)) = known {
            let known: GoogleConfigKey = known;
            builder = builder.with_config(known, value);
        }
    }
    let built = builder
        .with_bucket_name(bucket)
        .with_retry(no_retries())
        .with_http_connector(connector)
        .build();
    Ok(Arc::new(built.map_err(|error| {
        wrong(format!("cannot use `gs://{bucket}`: {error}"))
    })?))
}

fn azure(
    container: &str,
    environment: &BTreeMap<String, String>,
    connector: Connector,
) -> Result<Arc<dyn Bucket>, OpenError> {
    let emulator = is_set(environment, &["AZURE_STORAGE_USE_EMULATOR"]);
    if !emulator && !is_set(environment, &["AZURE_STORAGE_ACCOUNT_NAME"]) {
        return Err(wrong(format!(
            "no account for `az://{container}`: set `AZURE_STORAGE_ACCOUNT_NAME`, and \
             `AZURE_STORAGE_ACCOUNT_KEY` or `AZURE_STORAGE_SAS_KEY`"
        )));
    }
    let has_credentials = is_set(
        environment,
        &[
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_SAS_KEY",
            "AZURE_STORAGE_TOKEN",
            "AZURE_STORAGE_CLIENT_ID",
            "AZURE_CLIENT_ID",
            "AZURE_FEDERATED_TOKEN_FILE",
        ],
    );
    if !emulator && !has_credentials {
        return Err(wrong(format!(
            "no credentials for `az://{container}`: set `AZURE_STORAGE_ACCOUNT_KEY`, \
             `AZURE_STORAGE_SAS_KEY`, or `AZURE_CLIENT_ID` with its secret and tenant"
        )));
    }
    let mut builder = MicrosoftAzureBuilder::new();
    for (name, value) in environment.iter().filter(|(_, value)| !value.is_empty()) {
        let known = name
            .starts_with("AZURE_")
            .then(|| name.to_ascii_lowercase().parse());
        if let Some(Ok(known)) = known {
            let known: AzureConfigKey = known;
            builder = builder.with_config(known, value);
        }
    }
    let plain = environment
        .get("AZURE_STORAGE_ENDPOINT")
        .is_some_and(|endpoint| endpoint.starts_with("http://"));
    let built = builder
        .with_container_name(container)
        .with_allow_http(emulator || plain)
        .with_disable_tagging(true)
        .with_retry(no_retries())
        .with_http_connector(connector)
        .build();
    let built = built.map_err(|error| wrong(format!("cannot use `az://{container}`: {error}")))?;
    Ok(Arc::new(built))
}
