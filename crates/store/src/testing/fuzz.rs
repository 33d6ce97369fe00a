//! Entry points for fuzzing, also run by property tests.

use bytes::Bytes;

use crate::{envelope::Envelope, envelope::ObjectKind, root::Root};

/// Decodes any bytes as a stored object in every way this crate knows.
///
/// # Panics
/// If what is decoded contradicts itself.
pub fn stored_object(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let peeked = Envelope::peek_put_id(&bytes);
    let checked = Envelope::checked_put_id(&bytes);
    assert!(
        checked.is_none() || checked == peeked,
        "a checked id is a peeked id"
    );
    let whole = Envelope::is_whole(&bytes);
    if let Ok((envelope, directory_len, object_len)) = Envelope::decode_header(&bytes) {
        assert_eq!(Some(envelope.put_id), checked);
        assert!(!whole || object_len == bytes.len() as u64);
        let decoded = Envelope::decode(&bytes, envelope.kind, envelope.version);
        if let Ok((again, directory)) = decoded {
            assert_eq!(again, envelope);
            assert_eq!(directory.len() as u64, u64::from(directory_len));
        }
    }
    let _ = Envelope::decode(&bytes, ObjectKind::Wal, u8::MAX);
    let _ = Root::decode(&bytes);
}
