//! Checking produced batches: what is cheap where the request is served, the rest on threads of
//! its own, so that no connection waits for somebody else's decompression.

use std::sync::Arc;

use bytes::Bytes;
use tidemill_log::error::AppendError;
use tidemill_runtime::Tasks;
use tidemill_wire::{
    ErrorCode,
    batch::{
        BatchError, BatchHeader, Compression, Hashed, RecompressError, ValidBatch, ValidateOptions,
        validate_hashed,
    },
    messages::produce::BatchIndexAndErrorMessage,
};
use tokio::sync::Semaphore;

use crate::{config::TopicConfig, errors::Refusal};

/// Work of one request that is done where it is served, in units of about a nanosecond.
const INLINE_WORK: u64 = 2 << 20;
/// Bytes hashed in a unit: less where they come from memory and not from a cache.
const HASHED_PER_UNIT: u64 = 8;
/// What a record costs that is walked over.
const RECORD_WORK: u64 = 16;
/// What a decompressed byte costs, its walk included: gzip, the slowest, gives some 300 MB/s.
const INFLATED_WORK: u64 = 4;
/// Batches that are worked on elsewhere at once. As many as two cores: more would only take
/// turns, and each may hold a decompressor's window.
const HEAVY_MAX: usize = 2;

/// What is left of a request's share of the serving thread, in units of work.
pub(crate) struct Budget(u64);

impl Default for Budget {
    fn default() -> Self {
        Self(INLINE_WORK)
    }
}

/// Why a batch is refused: for itself, and which of its records are to blame.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The batch's error.
    pub refusal: Refusal,
    /// `record_errors` (KIP-467).
    pub records: Vec<BatchIndexAndErrorMessage>,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let records = Vec::new();
        Self { refusal, records }
    }
}

impl From<ErrorCode> for Refused {
    fn from(code: ErrorCode) -> Self {
        Refusal::from(code).into()
    }
}

impl From<AppendError> for Refused {
    fn from(error: AppendError) -> Self {
        Refusal::from(error).into()
    }
}

impl From<RecompressError> for Refused {
    fn from(error: RecompressError) -> Self {
        Refusal::new(ErrorCode(error.kafka_code()), error.to_string()).into()
    }
}

impl From<BatchError> for Refused {
    fn from(error: BatchError) -> Self {
        let refused = error.refused_records().iter();
        let records = refused.map(|record| BatchIndexAndErrorMessage {
            batch_index: record.index,
            batch_index_error_message: Some(record.why.to_string().into()),
        });
        Self {
            records: records.collect(),
            refusal: Refusal::new(ErrorCode(error.kafka_code()), error.to_string()),
        }
    }
}

/// Checks batches for all connections of a broker.
#[derive(Debug)]
pub(crate) struct Validation {
    heavy: Semaphore,
    tasks: Tasks,
}

impl Validation {
    /// With `tasks` for what is heavy.
    pub fn new(tasks: Tasks) -> Self {
        let heavy = Semaphore::new(HEAVY_MAX);
        Self { heavy, tasks }
    }

    /// The batch as it is to be stored.
    pub async fn check(
        &self,
        bytes: Bytes,
        hashed: &Hashed,
        config: &Arc<TopicConfig>,
        options: ValidateOptions,
        budget: &mut Budget,
    ) -> Result<ValidBatch, Refused> {
        if !is_recompressed(&bytes, config)
            && let Some(checked) = budget.check(&bytes, hashed, &options)
        {
            return Ok(checked?);
        }
        // Never closed; without a permit there would merely be more at once.
        let _permit = self.heavy.acquire().await;
        let (config, hashed) = (Arc::clone(config), hashed.clone());
        let work = move || -> Result<ValidBatch, Refused> {
            Ok(config.stored(validate_hashed(bytes, &hashed, &options)?)?)
        };
        match self.tasks.blocking("validate batch", work).await {
            Ok(checked) => checked,
            Err(_) => Err(ErrorCode::UNKNOWN_SERVER_ERROR.into()),
        }
    }
}

impl Budget {
    /// The outcome, if the budget reaches that far.
    fn check(
        &mut self,
        bytes: &Bytes,
        hashed: &Hashed,
        options: &ValidateOptions,
    ) -> Option<Result<ValidBatch, BatchError>> {
        let work = work_known(bytes);
        // What is too large is refused by its header alone.
        if work > self.0 && bytes.len() as u64 <= options.max_message_bytes {
            return None;
        }
        let inflated = options.max_inflated_bytes.min(self.0 / INFLATED_WORK);
        let bounded = ValidateOptions {
            max_inflated_bytes: inflated,
            ..*options
        };
        let checked = validate_hashed(bytes.clone(), hashed, &bounded);
        let used = match &checked {
            // Begun in vain; what was inflated so far is thrown away.
            Err(BatchError::InflatedTooLarge { max }) if *max < options.max_inflated_bytes => {
                self.0 = 0;
                return None;
            }
            Ok(batch) if batch.header.attributes.compression() != Some(Compression::None) => {
                work_hashed(bytes) + batch.inflated_bytes * INFLATED_WORK
            }
            _ => work,
        };
        self.0 = self.0.saturating_sub(used);
        Some(checked)
    }
}

/// What hashing costs.
fn work_hashed(bytes: &[u8]) -> u64 {
    bytes.len() as u64 / HASHED_PER_UNIT
}

/// The least work that a batch's header promises. No more records are walked than it says, and
/// what is compressed has hardly grown by it.
fn work_known(bytes: &[u8]) -> u64 {
    let size = bytes.len() as u64;
    let walked = match BatchHeader::parse(bytes) {
        Ok(header) if header.attributes.compression() == Some(Compression::None) => {
            // Each takes a byte at least, whatever is claimed.
            let records = u64::try_from(header.record_count).unwrap_or(0);
            records.min(size) * RECORD_WORK
        }
        _ => size * INFLATED_WORK,
    };
    work_hashed(bytes) + walked
}

/// Whether the topic wants another codec than the batch has.
fn is_recompressed(bytes: &[u8], config: &TopicConfig) -> bool {
    let present = BatchHeader::parse(bytes).map(|header| header.attributes.compression());
    config.compression.is_some() && present.is_ok_and(|present| present != config.compression)
}
