//! Frames and headers, on both sides of a connection.

use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tidemill_wire::frame::{self, FrameError, FrameReader, RequestHeader};
use tidemill_wire::messages::{
    ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse,
};
use tidemill_wire::{ApiKey, Decoder, Message, Str};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

const MAX: usize = 1000;

async fn read_all(bytes: &[u8]) -> (Vec<Bytes>, Option<FrameError>) {
    let mut reader = FrameReader::new(bytes, MAX);
    let mut frames = Vec::new();
    loop {
        match reader.next().await {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error)),
        }
    }
}

#[tokio::test]
async fn frames_end_where_their_size_says() {
    let (frames, error) = read_all(b"\0\0\0\x02ab\0\0\0\0\0\0\0\x01c").await;
    assert_eq!(frames, [&b"ab"[..], b"", b"c"]);
    assert!(error.is_none());
    let (frames, error) = read_all(b"\0\0\0\x02ab\0\0\0\x02c").await;
    assert_eq!(frames.len(), 1);
    assert!(matches!(error, Some(FrameError::Io(_))), "{error:?}");
    let (_, error) = read_all(b"\0\0").await;
    assert!(matches!(error, Some(FrameError::Io(_))), "{error:?}");
}

#[tokio::test]
async fn sizes_out_of_range_are_refused() {
    let (frames, error) = read_all(b"\0\0\0\x01a\xff\xff\xff\xffaaaa").await;
    assert_eq!(frames.len(), 1);
    assert!(
        matches!(error, Some(FrameError::NegativeSize(-1))),
        "{error:?}"
    );
    let (_, error) = read_all(b"\0\0\x03\xe9").await;
    assert!(
        matches!(
            error,
            Some(FrameError::TooLarge {
                size: 1001,
                max: MAX
            })
        ),
        "{error:?}"
    );
    let (_, error) = read_all(b"\x7f\xff\xff\xff").await;
    assert!(
        matches!(error, Some(FrameError::TooLarge { .. })),
        "{error:?}"
    );
}

/// Hands out `step` bytes at a time, remembers the largest buffer it was given.
struct Slow<'a> {
    bytes: &'a [u8],
    step: usize,
    largest: usize,
}

impl AsyncRead for Slow<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        self.largest = self.largest.max(buf.remaining());
        let count = self.step.min(buf.remaining()).min(self.bytes.len());
        let (now, later) = self.bytes.split_at(count);
        buf.put_slice(now);
        self.bytes = later;
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_byte_at_a_time() {
    let sent = b"\0\0\0\x03abc\0\0\0\x02de";
    let mut reader = FrameReader::new(
        Slow {
            bytes: sent,
            step: 1,
            largest: 0,
        },
        MAX,
    );
    assert_eq!(
        reader.next().await.expect("a frame").expect("a frame"),
        b"abc".as_slice()
    );
    assert_eq!(
        reader.next().await.expect("a frame").expect("a frame"),
        b"de".as_slice()
    );
    assert!(reader.next().await.expect("the end").is_none());
}

#[tokio::test]
async fn a_claim_reserves_little() {
    // 100 MiB claimed, ten bytes sent.
    let claim = b"\x06\x40\0\0only this.";
    let slow = Slow {
        bytes: claim,
        step: 1,
        largest: 0,
    };
    let mut reader = FrameReader::new(slow, frame::DEFAULT_MAX_FRAME);
    reader.next().await.expect_err("the connection ends");
    assert!(reader.has_partial());
    assert!(
        reader.get_ref().largest <= 64 << 10,
        "{} bytes",
        reader.get_ref().largest
    );
}

#[tokio::test]
async fn large_frames_are_read_in_few_steps() {
    let body = vec![7; 300_000];
    let sent = [&300_000_i32.to_be_bytes()[..], &body, &[0, 0, 0, 1, 9]].concat();
    let slow = Slow {
        bytes: &sent,
        step: usize::MAX,
        largest: 0,
    };
    let mut reader = FrameReader::new(slow, frame::DEFAULT_MAX_FRAME);
    assert_eq!(
        reader.next().await.expect("a frame").expect("a frame"),
        body
    );
    assert_eq!(
        reader.next().await.expect("a frame").expect("a frame"),
        [9].as_slice()
    );
    assert!(reader.get_ref().largest >= 100_000);
}

#[tokio::test]
async fn a_large_frames_memory_serves_the_next_one_once_nobody_holds_it() {
    const LEN: usize = 300_000;
    let frame_of = |byte| [&(LEN as i32).to_be_bytes()[..], &vec![byte; LEN]].concat();
    let sent = [frame_of(1), frame_of(2), frame_of(3)].concat();
    let slow = Slow {
        bytes: &sent,
        step: 1_000,
        largest: 0,
    };
    let mut reader = FrameReader::new(slow, frame::DEFAULT_MAX_FRAME);
    let first = reader.next().await.expect("a frame").expect("a frame");
    let place = first.as_ptr();
    drop(first);
    let second = reader.next().await.expect("a frame").expect("a frame");
    // A few bytes on, where the size prefix was.
    assert!(second.as_ptr().addr().abs_diff(place.addr()) < 16);
    let third = reader.next().await.expect("a frame").expect("a frame");
    assert_eq!(second, vec![2; LEN]);
    assert_eq!(third, vec![3; LEN]);
}

/// Takes `step` bytes at a time, whatever it is offered.
struct Narrow {
    step: usize,
    taken: Vec<u8>,
    writes: usize,
}

impl AsyncWrite for Narrow {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let count = self.step.min(buf.len());
        self.taken.extend(&buf[..count]);
        self.writes += 1;
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let all: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        let count = self.step.min(all.len());
        self.taken.extend(&all[..count]);
        self.writes += 1;
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn slices_leave_in_order_and_whole() {
    let slices: Vec<_> = (0..200u8)
        .map(|i| Bytes::from(vec![i; usize::from(i) % 7]))
        .collect();
    let whole = slices.concat();
    for step in [1, 2, 3, 5, 8, 100, usize::MAX] {
        let mut writer = Narrow {
            step,
            taken: Vec::new(),
            writes: 0,
        };
        frame::write_vectored_all(&mut writer, &slices)
            .await
            .expect("written");
        assert_eq!(writer.taken, whole, "step {step}");
        if step == usize::MAX {
            assert_eq!(writer.writes, 4);
        }
    }
    let mut closed = Narrow {
        step: 0,
        taken: Vec::new(),
        writes: 0,
    };
    frame::write_vectored_all(&mut closed, &slices)
        .await
        .expect_err("nothing is taken");
    frame::write_vectored_all(&mut closed, &[])
        .await
        .expect("nothing to write");
}

#[tokio::test]
async fn a_request_and_its_answer() {
    let (mut client, mut broker) = tokio::io::duplex(4096);
    let request = MetadataRequest {
        topics: None,
        ..Default::default()
    };
    let id = Str::from("client");
    let frame = frame::encode_request(12, 77, Some(&id), &request).expect("it fits");
    frame::write_vectored_all(&mut client, &frame.into_memory().expect("in memory"))
        .await
        .expect("written");

    let received = FrameReader::new(&mut broker, MAX)
        .next()
        .await
        .expect("a frame");
    let mut decoder = Decoder::new(received.expect("a frame"));
    let header = RequestHeader::decode(&mut decoder).expect("a header");
    assert_eq!(
        (header.request_api_key, header.request_api_version),
        (3, 12)
    );
    assert_eq!((header.correlation_id, header.client_id), (77, Some(id)));
    assert_eq!(MetadataRequest::decode(&mut decoder, 12), Ok(request));
    assert_eq!(decoder.remaining(), 0);

    let response = MetadataResponse {
        controller_id: 5,
        ..Default::default()
    };
    let frame = frame::encode_response(ApiKey::Metadata, 12, 77, &response).expect("it fits");
    broker.write_all(&frame.to_bytes()).await.expect("written");
    let received = FrameReader::new(&mut client, MAX)
        .next()
        .await
        .expect("a frame");
    let read = frame::decode_response::<MetadataRequest>(received.expect("a frame"), 12);
    assert_eq!(read, Ok((77, response)));
}

#[test]
fn the_answer_to_api_versions_has_the_oldest_header() {
    let response = ApiVersionsResponse::default();
    let frame = frame::encode_response(ApiKey::ApiVersions, 3, 1, &response).expect("it fits");
    // Size, correlation id, and then the error code at once: no tag byte.
    assert_eq!(frame.to_bytes()[..10], [0, 0, 0, 12, 0, 0, 0, 1, 0, 0]);
    let answer = frame.to_bytes().slice(4..);
    assert_eq!(
        frame::decode_response::<ApiVersionsRequest>(answer, 3),
        Ok((1, response))
    );
}

#[test]
fn headers_of_all_versions() {
    let decode = |bytes: &'static [u8]| {
        let mut decoder = Decoder::new(Bytes::from_static(bytes));
        RequestHeader::decode(&mut decoder).map(|header| (header, decoder.remaining()))
    };
    // An unknown key (ControlledShutdown v0 has header v0): nothing behind the fixed part is read.
    let (header, left) = decode(b"\0\x07\0\0\0\0\0\x09rest").expect("a header");
    assert_eq!(
        (header.request_api_key, header.correlation_id, left),
        (7, 9, 4)
    );
    // v1, null client id.
    let (header, left) = decode(b"\0\x03\0\x01\0\0\0\x09\xff\xffrest").expect("a header");
    assert_eq!((header.client_id, left), (None, 4));
    // v2: the client id is not compact, tagged fields follow.
    let (header, left) = decode(b"\0\x12\0\x03\0\0\0\x09\0\x01c\x01\x05\x02xxrest").expect("one");
    assert_eq!((header.client_id.as_deref(), left), (Some("c"), 4));
    // ApiVersions of a version not known yet can still be answered (K1).
    let (header, _) = decode(b"\0\x12\0\x63\0\0\0\x09\0\x01c\0").expect("a header");
    assert_eq!((header.request_api_version, header.correlation_id), (99, 9));
    assert!(decode(b"\0\x12\0\x03\0\0\0\x09\0\x05c").is_err());
    assert!(decode(b"\0\x12\0").is_err());
}
