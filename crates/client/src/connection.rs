//! One connection on which many requests may be in flight.

use std::{collections::VecDeque, marker::PhantomData, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_runtime::Runtime;
use tidemill_wire::{
    codec::{Request, Str},
    frame::{DEFAULT_MAX_FRAME, FrameReader, decode_response, encode_request, write_vectored_all},
};
use tokio::{
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::oneshot,
};

use crate::error::ClientError;

/// What may be on its way, in bytes (Kafka's clients: `send.buffer.bytes`, 128 KiB). Without a
/// limit a request of megabytes lies in the kernel as a whole before the broker has read any of it;
/// with a smaller one the two wake each other more often.
const SEND_BUFFER_BYTES: usize = 512 << 10;

/// How to connect.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sent with every request.
    pub client_id: String,
    /// How long one answer may take.
    pub request_timeout: Duration,
    /// Largest answer in bytes.
    pub frame_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            client_id: "tidemill".to_owned(),
            request_timeout: Duration::from_secs(60),
            frame_bytes_max: DEFAULT_MAX_FRAME,
        }
    }
}

/// Who waits for the next answers, in the order of the requests.
#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<oneshot::Sender<Bytes>>,
    /// Why the connection ended.
    closed: Option<String>,
}

#[derive(Debug)]
struct Writer {
    half: OwnedWriteHalf,
    next_correlation_id: i32,
}

/// A connection to one broker. Requests are written in the order of the calls, and Kafka answers in
/// that order. Cheap to share in an [`Arc`].
#[derive(Debug)]
pub struct Connection {
    writer: tokio::sync::Mutex<Writer>,
    waiting: Arc<Mutex<Waiting>>,
    client_id: Str,
    options: Options,
    runtime: Runtime,
}

/// An answer still to come.
#[derive(Debug)]
pub struct Pending<R> {
    answer: oneshot::Receiver<Bytes>,
    waiting: Arc<Mutex<Waiting>>,
    version: i16,
    timeout: Duration,
    runtime: Runtime,
    request: PhantomData<fn() -> R>,
}

impl<R: Request> Pending<R> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// The connection ended, the time ran out, or the answer cannot be read.
    pub async fn wait(self) -> Result<R::Response, ClientError> {
        let answer = self.runtime.clock.timeout(self.timeout, self.answer).await;
        let frame = answer.map_err(|_| ClientError::TimedOut)?.map_err(|_| {
            let why = self.waiting.lock().closed.clone();
            ClientError::Closed(why.unwrap_or_else(|| "closed".to_owned()))
        })?;
        let (_, response) = decode_response::<R>(frame, self.version)?;
        Ok(response)
    }
}

impl Connection {
    /// Connects to `address` (`host:port`).
    ///
    /// # Errors
    /// [`ClientError::Connect`] if nobody listens there.
    pub async fn open(
        address: &str,
        options: Options,
        runtime: Runtime,
    ) -> Result<Self, ClientError> {
        let failed = |source| ClientError::Connect {
            address: address.to_owned(),
            source,
        };
        let connecting = TcpStream::connect(address);
        let stream = match runtime
            .clock
            .timeout(options.request_timeout, connecting)
            .await
        {
            Ok(stream) => stream.map_err(failed)?,
            Err(_) => return Err(failed(std::io::ErrorKind::TimedOut.into())),
        };
        stream.set_nodelay(true).map_err(failed)?;
        rustix::net::sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES)
            .map_err(|error| failed(error.into()))?;
        let (read_half, half) = stream.into_split();
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let reader = FrameReader::new(read_half, options.frame_bytes_max);
        runtime
            .tasks
            .spawn("client-reader", read_answers(reader, waiting.clone()));
        Ok(Self {
            writer: tokio::sync::Mutex::new(Writer {
                half,
                next_correlation_id: 0,
            }),
            waiting,
            client_id: Str::from(options.client_id.clone()),
            options,
            runtime,
        })
    }

    /// Writes a request; the answer comes later.
    ///
    /// # Errors
    /// The version cannot carry the request, or the connection ended.
    pub async fn send<R: Request>(
        &self,
        version: i16,
        request: &R,
    ) -> Result<Pending<R>, ClientError> {
        let mut writer = self.writer.lock().await;
        let id = writer.next_correlation_id;
        let frame = encode_request(version, id, Some(&self.client_id), request)?;
        let slices = frame
            .into_memory()
            .map_err(|error| ClientError::Closed(error.to_string()))?;
        writer.next_correlation_id = id.wrapping_add(1) & i32::MAX;
        let (sender, answer) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock();
            if let Some(why) = &waiting.closed {
                return Err(ClientError::Closed(why.clone()));
            }
            waiting.queue.push_back(sender);
        }
        write_vectored_all(&mut writer.half, &slices)
            .await
            .map_err(|error| ClientError::Closed(error.to_string()))?;
        Ok(Pending {
            answer,
            waiting: self.waiting.clone(),
            version,
            timeout: self.options.request_timeout,
            runtime: self.runtime.clone(),
            request: PhantomData,
        })
    }

    /// Writes a request that gets no answer (Produce with acks 0).
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub async fn send_unanswered<R: Request>(
        &self,
        version: i16,
        request: &R,
    ) -> Result<(), ClientError> {
        let mut writer = self.writer.lock().await;
        let id = writer.next_correlation_id;
        let frame = encode_request(version, id, Some(&self.client_id), request)?;
        let slices = frame
            .into_memory()
            .map_err(|error| ClientError::Closed(error.to_string()))?;
        writer.next_correlation_id = id.wrapping_add(1) & i32::MAX;
        write_vectored_all(&mut writer.half, &slices)
            .await
            .map_err(|error| ClientError::Closed(error.to_string()))
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// As [`Connection::send`] and [`Pending::wait`].
    pub async fn call<R: Request>(
        &self,
        version: i16,
        request: &R,
    ) -> Result<R::Response, ClientError> {
        self.send(version, request).await?.wait().await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The write half closes with it; the reader then sees the end and stops.
        let mut waiting = self.waiting.lock();
        waiting.closed.get_or_insert_with(|| "dropped".to_owned());
    }
}

async fn read_answers(mut reader: FrameReader<OwnedReadHalf>, waiting: Arc<Mutex<Waiting>>) {
    let why = loop {
        match reader.next().await {
            Ok(Some(frame)) => {
                let next = waiting.lock().queue.pop_front();
                match next {
                    // Whoever waited may have given up; its answer is dropped here.
                    Some(sender) => drop(sender.send(frame)),
                    None => break "an answer nobody asked for".to_owned(),
                }
            }
            Ok(None) => break "closed by the broker".to_owned(),
            Err(error) => break error.to_string(),
        }
    };
    let mut waiting = waiting.lock();
    waiting.closed.get_or_insert(why);
    waiting.queue.clear();
}
