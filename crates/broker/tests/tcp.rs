//! Over real sockets and real time: accepting, bad input beside good clients, closing.

mod common;

use std::time::Duration;

use common::start_on;
use tidemill_broker::net::Advertised;
use tidemill_runtime::Runtime;
use tidemill_wire::{
    ErrorCode, frame,
    messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

async fn versions(stream: &mut TcpStream) -> ApiVersionsResponse {
    let request = ApiVersionsRequest {
        client_software_name: "test".into(),
        client_software_version: "1".into(),
        ..ApiVersionsRequest::default()
    };
    let bytes = frame::encode_request(3, 5, None, &request)
        .expect("encodable")
        .to_bytes();
    stream.write_all(&bytes).await.expect("sent");
    let size = stream.read_u32().await.expect("an answer");
    let mut body = vec![0; size as usize];
    stream.read_exact(&mut body).await.expect("its body");
    frame::decode_response::<ApiVersionsRequest>(body.into(), 3)
        .expect("its layout")
        .1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_closes_its_own_connection_only() {
    let h = start_on(Runtime::system()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let advertised = Advertised {
        host: "127.0.0.1".to_owned(),
        port: address.port(),
    };
    h.broker.serve(listener, advertised);
    let mut good = TcpStream::connect(address).await.expect("accepted");
    assert_eq!(versions(&mut good).await.error_code, ErrorCode::NONE);
    let garbage: [&[u8]; 5] = [
        &[0x7f, 0xff, 0xff, 0xff],
        &[0xff; 64],
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        &[0, 0, 0, 4, 1, 2, 3, 4],
        &[0, 0, 0, 12, 0, 3, 0, 9, 0, 0, 0, 1, 0x7f, 0xff, 0, 0],
    ];
    for bytes in garbage {
        let mut bad = TcpStream::connect(address).await.expect("accepted");
        bad.write_all(bytes).await.expect("sent");
        let mut rest = Vec::new();
        let read = bad.read_to_end(&mut rest);
        let closed = h.runtime.clock.timeout(Duration::from_secs(5), read).await;
        assert!(closed.is_ok(), "{bytes:?}");
        assert_eq!(versions(&mut good).await.error_code, ErrorCode::NONE);
    }
    assert_eq!(h.runtime.tasks.panics(), 0);
    // A connection is counted until it is done with, which is after its FIN.
    let counted = async {
        while h.broker.metrics().connections() > 1 {
            h.runtime.clock.sleep(Duration::from_millis(5)).await;
        }
    };
    let counted = h.runtime.clock.timeout(Duration::from_secs(5), counted);
    assert!(counted.await.is_ok(), "the good one is left");
    assert_eq!(h.broker.metrics().connections(), 1);
    h.broker
        .shutdown(h.runtime.clock.monotonic() + Duration::from_secs(10))
        .await;
    assert_eq!(good.read(&mut [0; 1]).await.expect("a FIN"), 0);
    assert!(
        TcpStream::connect(address).await.is_err(),
        "the listener is closed"
    );
}
