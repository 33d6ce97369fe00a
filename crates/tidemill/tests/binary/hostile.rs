//! Connections that send what no client sends: they are closed, and nobody else notices.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::harness::{Broker, Setup, records};

/// More growth than this of the resident memory is no accident, in KiB.
const GROWTH_KIB_MAX: u64 = 16 << 10;

/// A bad connection is closed well within this.
const CLOSE: Duration = Duration::from_secs(20);

/// Sends `bytes` and waits until the broker closes.
fn closed_after(broker: &Broker, bytes: &[u8], within: Duration) {
    let mut stream = TcpStream::connect(&broker.address).expect("connections are accepted");
    stream
        .set_read_timeout(Some(within))
        .expect("a time-out can be set");
    // It may close before all is sent.
    let _ = stream.write_all(bytes);
    let began = Instant::now();
    let mut answer = [0; 4096];
    loop {
        match stream.read(&mut answer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            Err(error) => panic!("not closed within {:?}: {error}", began.elapsed()),
        }
        assert!(began.elapsed() < within, "it talks on");
    }
}

/// A frame: size, key, version, correlation id, client id and the rest.
fn frame(key: i16, version: i16, rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(key.to_be_bytes());
    body.extend(version.to_be_bytes());
    body.extend(7_i32.to_be_bytes());
    body.extend((-1_i16).to_be_bytes());
    body.extend(rest);
    let size = i32::try_from(body.len()).expect("it is small");
    [&size.to_be_bytes()[..], &body].concat()
}

#[test]
fn hostile_connections_are_closed_and_cost_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let broker = Setup::new(dir.path()).start();
    let before = records(10, "before");
    broker.produce("tides", &before);
    let most = i32::MAX.to_be_bytes();
    // Compact arrays: 2^31-1 items are a varint of 2^31.
    let compact = [0x80, 0x80, 0x80, 0x80, 0x08];
    let hostile: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nhost: here\r\n\r\n".to_vec(),
        vec![0xff; 512],
        // A TLS client hello.
        [
            0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03,
        ]
        .repeat(8),
        // Of 2 GB, then of negative length.
        [&most[..], &[0; 64]].concat(),
        [&(-5_i32).to_be_bytes()[..], &[0; 64]].concat(),
        // A key and a version that there are not.
        frame(9_999, 0, &[]),
        frame(0, 999, &[]),
        // Bodies of 2^31-1 items: Metadata 1 and 9, Produce 3, Fetch 4, OffsetCommit 8.
        frame(3, 1, &most),
        frame(3, 9, &[&[0][..], &compact].concat()),
        frame(0, 3, &[&[0xff, 0xff, 0, 1, 0, 0, 0, 1][..], &most].concat()),
        frame(1, 4, &[&[0xff; 4][..], &[0; 13], &most].concat()),
        frame(
            8,
            8,
            &[&[0, 2, b'g'][..], &[0; 4], &[1, 0], &compact].concat(),
        ),
    ];
    // Once to have all that is made only once.
    for bytes in &hostile {
        closed_after(&broker, bytes, Duration::from_secs(20));
    }
    let resident = broker.resident_kib();
    for _ in 0..20 {
        for bytes in &hostile {
            closed_after(&broker, bytes, Duration::from_secs(20));
        }
    }
    let grown = broker.resident_kib().saturating_sub(resident);
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB more than before");
    assert_eq!(broker.consume("tides"), before, "others are unharmed");
    assert_eq!(broker.stop(), Some(0));
}

#[test]
fn claims_of_large_frames_take_no_memory_and_silence_is_cut_off() {
    let dir = tempfile::tempdir().expect("a directory");
    let broker = Setup::new(dir.path())
        .set("connections.max.idle.ms=3000")
        .start();
    let before = records(10, "before");
    broker.produce("tides", &before);
    let resident = broker.resident_kib();
    // Each claims 90 MB, which is allowed, and sends a little of it.
    let half = [&90_000_000_i32.to_be_bytes()[..], &[0; 100]].concat();
    let mut silent: Vec<TcpStream> = Vec::new();
    for _ in 0..50 {
        let mut stream = TcpStream::connect(&broker.address).expect("accepted");
        stream.write_all(&half).expect("sent");
        silent.push(stream);
    }
    broker.produce("tides", &before);
    let grown = broker.resident_kib().saturating_sub(resident);
    assert!(grown < 2 * GROWTH_KIB_MAX, "{grown} KiB more than before");
    let within = Duration::from_secs(45);
    for stream in &mut silent {
        stream
            .set_read_timeout(Some(within))
            .expect("a time-out can be set");
        match stream.read(&mut [0; 1]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("half a frame and silence: {other:?}"),
        }
    }
    closed_after(&broker, &[], within);
    assert_eq!(broker.consume("tides").len(), 2 * before.len());
    assert_eq!(broker.stop(), Some(0));
}

/// K3, K87: the connection is closed, and whoever looks for the reason finds client, key, version.
#[test]
fn k87_refused_versions_are_logged_with_who_asked() {
    let dir = tempfile::tempdir().expect("a directory");
    let broker = Setup::new(dir.path()).start();
    let mut body = [&0_i16.to_be_bytes()[..], &2_i16.to_be_bytes()].concat();
    body.extend(7_i32.to_be_bytes());
    body.extend(9_i16.to_be_bytes());
    body.extend(b"old-timer");
    let size = i32::try_from(body.len()).expect("it is small");
    closed_after(&broker, &[&size.to_be_bytes()[..], &body].concat(), CLOSE);
    broker.tells(|line| {
        ["old-timer", "api_key=0", "version=2"]
            .iter()
            .all(|w| line.contains(w))
    });
    broker.produce("tides", &records(1, "and nobody else notices"));
}
