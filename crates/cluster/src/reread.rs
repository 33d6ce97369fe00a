//! Telling a damaged object from a damaged answer.

use bytes::Bytes;
use tidemill_store::{NumberedLog, StoreError, StoreErrorKind, envelope::EnvelopeError};

/// Reads of one object before its damage is believed although no two of them agreed.
const READS_MAX: usize = 8;

/// Reads number `n` and decodes it; none if there is no such object. An object counts as damaged
/// only once two reads have given the same bytes: an answer may be cut short or garbled on its way.
pub(crate) async fn read_decoded<T>(
    log: &NumberedLog,
    n: u64,
    decode: impl Fn(&Bytes) -> Result<T, EnvelopeError>,
) -> Result<Option<Result<T, EnvelopeError>>, StoreError> {
    let mut before: Option<Bytes> = None;
    for read in 1.. {
        let bytes = match log.read(n).await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            // The store itself has read it until its patience ran out.
            Err(error) if error.kind == StoreErrorKind::Corrupt => {
                let what = error.to_string();
                return Ok(Some(Err(EnvelopeError::Malformed { what })));
            }
            Err(error) => return Err(error),
        };
        match decode(&bytes) {
            Err(error) if before.as_ref() != Some(&bytes) && read < READS_MAX => {
                tracing::warn!(key = log.key(n), %error, "read again");
                before = Some(bytes);
            }
            decoded => return Ok(Some(decoded)),
        }
    }
    Ok(None)
}
