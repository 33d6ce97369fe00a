//! A connection that knows which versions its broker serves.

use std::{collections::BTreeMap, ops::RangeInclusive};

use tidemill_runtime::Runtime;
use tidemill_wire::{
    api::ApiKey,
    codec::Request,
    errors::ErrorCode,
    messages::{
        ApiVersionsRequest, MetadataRequest, MetadataResponse, api_versions::ApiVersion,
        metadata::MetadataRequestTopic,
    },
};

use crate::{
    connection::{Connection, Options, Pending},
    error::ClientError,
};

/// The version every broker since 0.10 answers.
const PLAIN_API_VERSIONS: i16 = 0;

/// A connection with the newest versions that broker and client have in common.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    served: BTreeMap<i16, RangeInclusive<i16>>,
}

impl Client {
    /// Connects and asks for the broker's versions.
    ///
    /// # Errors
    /// No connection, or an answer that is none.
    pub async fn open(
        address: &str,
        options: Options,
        runtime: Runtime,
    ) -> Result<Self, ClientError> {
        let connection = Connection::open(address, options, runtime).await?;
        let request = ApiVersionsRequest::default();
        let answer = connection.call(PLAIN_API_VERSIONS, &request).await?;
        refuse_unless_ok("ApiVersions", answer.error_code, None)?;
        let range = |api: &ApiVersion| (api.api_key, api.min_version..=api.max_version);
        let served = answer.api_keys.iter().map(range).collect();
        Ok(Self { connection, served })
    }

    /// The connection itself.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The newest version of `key` that both know.
    ///
    /// # Errors
    /// [`ClientError::NoCommonVersion`]
    pub fn version(&self, key: ApiKey) -> Result<i16, ClientError> {
        let known = key.versions();
        let none = ClientError::NoCommonVersion(key);
        let Some(served) = self.served.get(&key.code()) else {
            return Err(none);
        };
        let newest = (*known.end()).min(*served.end());
        let oldest = (*known.start()).max(*served.start());
        if newest >= oldest {
            Ok(newest)
        } else {
            Err(none)
        }
    }

    /// Sends a request in the newest common version and waits for its answer.
    ///
    /// # Errors
    /// As [`Connection::call`], or no common version.
    pub async fn call<R: Request>(&self, request: &R) -> Result<R::Response, ClientError> {
        self.connection.call(self.version(R::KEY)?, request).await
    }

    /// Sends a request in the newest version up to `newest`.
    ///
    /// # Errors
    /// As [`Connection::send`], or no common version.
    pub async fn send_up_to<R: Request>(
        &self,
        newest: i16,
        request: &R,
    ) -> Result<Pending<R>, ClientError> {
        self.connection
            .send(self.version(R::KEY)?.min(newest), request)
            .await
    }

    /// Sends a request in the newest version up to `newest` and waits for its answer.
    ///
    /// # Errors
    /// As [`Client::send_up_to`].
    pub async fn call_up_to<R: Request>(
        &self,
        newest: i16,
        request: &R,
    ) -> Result<R::Response, ClientError> {
        self.send_up_to(newest, request).await?.wait().await
    }

    /// Metadata of `topics`, or of all if `None`. Creates nothing.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn metadata(
        &self,
        topics: Option<&[String]>,
    ) -> Result<MetadataResponse, ClientError> {
        let named = |name: &String| MetadataRequestTopic {
            name: Some(name.clone().into()),
            ..MetadataRequestTopic::default()
        };
        let request = MetadataRequest {
            topics: topics.map(|names| names.iter().map(named).collect()),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        self.call(&request).await
    }
}

/// Turns a broker's error code into an error.
///
/// # Errors
/// [`ClientError::Refused`] unless the code is 0.
pub(crate) fn refuse_unless_ok(
    what: &str,
    code: ErrorCode,
    message: Option<String>,
) -> Result<(), ClientError> {
    if code == ErrorCode(0) {
        return Ok(());
    }
    Err(ClientError::Refused {
        what: what.to_owned(),
        code,
        message,
    })
}
