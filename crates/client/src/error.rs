//! What can go wrong between a client and a broker.

use std::{fmt, io};

use tidemill_wire::{
    api::ApiKey,
    codec::{DecodeError, EncodeError},
    errors::ErrorCode,
    frame::FrameError,
};

/// A request that got no usable answer.
#[derive(Debug)]
pub enum ClientError {
    /// No connection could be made.
    Connect {
        /// Where to.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// The connection ended before the answer came; the request may have been carried out.
    Closed(String),
    /// Nothing came within the time given.
    TimedOut,
    /// The request cannot be written in this version.
    Encode(EncodeError),
    /// The answer is not one to this request.
    Decode(DecodeError),
    /// The frame is not one.
    Frame(FrameError),
    /// Broker and client have no version of this API in common.
    NoCommonVersion(ApiKey),
    /// The broker refused.
    Refused {
        /// What was asked.
        what: String,
        /// The broker's error.
        code: ErrorCode,
        /// What it said, if it did.
        message: Option<String>,
    },
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { address, source } => {
                write!(
                    f,
                    "cannot connect to `{address}`: {source}; is the broker running?"
                )
            }
            Self::Closed(why) => write!(f, "the connection ended: {why}"),
            Self::TimedOut => f.write_str("no answer within the time given"),
            Self::Encode(error) => write!(f, "cannot write the request: {error}"),
            Self::Decode(error) => write!(f, "cannot read the answer: {error}"),
            Self::Frame(error) => write!(f, "cannot read a frame: {error}"),
            Self::NoCommonVersion(key) => {
                write!(f, "the broker serves no version of `{key}` known here")
            }
            Self::Refused {
                what,
                code,
                message,
            } => {
                write!(f, "`{what}` was refused: {code:?}")?;
                match message {
                    Some(message) => write!(f, ": {message}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for ClientError {}

impl From<EncodeError> for ClientError {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

impl From<DecodeError> for ClientError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}
