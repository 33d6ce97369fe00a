//! What every backend checks before it acts: keys and ranges.

use std::ops::Range;

use crate::error::{StoreError, StoreErrorKind};

/// Longest key in bytes; S3's limit is 1,024 with the store's own prefix included.
pub(crate) const MAX_KEY_LEN: usize = 800;
/// Longest part of a key between slashes; a file name's limit is 255 and temporary names need room.
const MAX_PART_LEN: usize = 200;

/// True for what every backend can hold: only `[A-Za-z0-9._=@+-]` parts that are neither empty nor
/// begin with a dot, joined by slashes. Whoever takes a key from outside asks this first: in a
/// directory any other one could lead out of it.
#[must_use]
pub fn is_key(key: &str) -> bool {
    let good_part = |part: &str| {
        !part.is_empty()
            && part.len() <= MAX_PART_LEN
            && !part.starts_with('.')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._=@+-".contains(&byte))
    };
    key.len() <= MAX_KEY_LEN && key.split('/').all(good_part)
}

/// Refuses keys that some backend could not hold.
pub(crate) fn check(operation: &'static str, key: &str) -> Result<(), StoreError> {
    if is_key(key) {
        return Ok(());
    }
    let message = "a key is made of `/`-separated parts of letters, digits and `._=@+-`";
    Err(StoreError::new(
        StoreErrorKind::Invalid,
        operation,
        key,
        message,
    ))
}

/// Refuses a range that ends beyond the object or before it starts.
pub(crate) fn check_range(key: &str, range: &Range<u64>, size: u64) -> Result<(), StoreError> {
    if range.start <= range.end && range.end <= size {
        return Ok(());
    }
    let message = format!(
        "range {}..{} of an object of {size} bytes",
        range.start, range.end
    );
    Err(StoreError::new(
        StoreErrorKind::Invalid,
        "get",
        key,
        message,
    ))
}

/// What a read gave must be as long as the range asked for.
pub(crate) fn check_len(key: &str, range: &Range<u64>, got: usize) -> Result<(), StoreError> {
    let wanted = range.end - range.start;
    if got as u64 == wanted {
        return Ok(());
    }
    let message = format!("{got} bytes instead of {wanted}");
    Err(StoreError::new(
        StoreErrorKind::Corrupt,
        "get",
        key,
        message,
    ))
}
