//! Entry points for fuzzing; a property test calls the same ones.

use bytes::Bytes;

use crate::api::{ApiKey, RequestKind, ResponseKind};
use crate::codec::{DecodeError, Decoder, EncodeError, Encoder};
use crate::frame::{self, RequestHeader};

/// A frame as it comes from a connection: size prefix, request header, body.
///
/// # Panics
/// If what has been read cannot be written and read again, equal.
pub fn frame(data: &[u8]) {
    let Some((prefix, body)) = data.split_first_chunk::<4>() else {
        return;
    };
    let Ok(size) = frame::check_size(*prefix, frame::DEFAULT_MAX_FRAME) else {
        return;
    };
    if size > body.len() {
        return;
    }
    let mut decoder = Decoder::new(Bytes::copy_from_slice(&body[..size]));
    let Ok(header) = RequestHeader::decode(&mut decoder) else {
        return;
    };
    let Some(key) = ApiKey::from_code(header.request_api_key) else {
        return;
    };
    request(key, header.request_api_version, decoder.rest());
}

/// A request's body; its key and version are the first two bytes. Then the same bytes as a
/// response.
///
/// # Panics
/// If what has been read cannot be written and read again, equal.
pub fn any_request(data: &[u8]) {
    let [key, version, body @ ..] = data else {
        return;
    };
    let key = ApiKey::ALL[usize::from(*key) % ApiKey::ALL.len()];
    let versions = key.versions();
    let count = versions.end() - versions.start() + 1;
    let version = versions.start() + i16::from(*version) % count;
    let body = Bytes::copy_from_slice(body);
    request(key, version, body.clone());
    response(key, version, body);
}

fn request(key: ApiKey, version: i16, body: Bytes) {
    round_trip(
        body,
        |decoder| RequestKind::decode(key, version, decoder),
        |request, encoder| request.encode(encoder, version),
    );
}

fn response(key: ApiKey, version: i16, body: Bytes) {
    round_trip(
        body,
        |decoder| ResponseKind::decode(key, version, decoder),
        |response, encoder| response.encode(encoder, version),
    );
}

fn round_trip<T: PartialEq>(
    body: Bytes,
    decode: impl Fn(&mut Decoder) -> Result<T, DecodeError>,
    encode: impl Fn(&T, &mut Encoder) -> Result<(), EncodeError>,
) {
    let write = |message: &T| {
        let mut encoder = Encoder::new();
        encode(message, &mut encoder).expect("what was read can be written");
        encoder.finish().to_bytes()
    };
    let Ok(first) = decode(&mut Decoder::new(body)) else {
        return;
    };
    let bytes = write(&first);
    let second = decode(&mut Decoder::new(bytes.clone())).expect("what was written can be read");
    // By bytes, since a float that is no number is not equal to itself.
    assert!(
        write(&second) == bytes,
        "reading and writing changes the message"
    );
}
