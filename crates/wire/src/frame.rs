//! Size-prefixed frames, and the headers of requests and responses.

use std::fmt;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::api::ApiKey;
use crate::codec::{
    DecodeError, Decoder, EncodeError, EncodedFrame, Encoder, Message, Request, Str,
};

/// Kafka's `socket.request.max.bytes`, in bytes.
pub const DEFAULT_MAX_FRAME: usize = 100 << 20;

/// The most that is reserved before a byte of a frame's body has come, in bytes. A client that
/// claims a large frame and then is silent costs no more than this.
const FIRST_RESERVE: usize = 16 << 10;

/// The most that is reserved at once later, in bytes. Every further piece costs a copy of those
/// before it, so a frame of megabytes has few.
const NEXT_RESERVE: usize = 64 << 20;

/// How many times what has come of a frame may be reserved for the rest of it.
const GROWTH: usize = 8;

/// The most that is kept of a large frame's buffer for the next one, in bytes. Memory that was
/// never touched costs more than the bytes that are read into it.
const SPARE_MAX: usize = 16 << 20;

/// Bytes of a frame's size prefix.
const PREFIX: usize = 4;

/// Slices in one vectored write; Linux takes at most 1,024.
const MAX_IO_SLICES: usize = 64;

/// Why a frame could not be read.
#[derive(Debug)]
pub enum FrameError {
    /// The connection failed, or ended within a frame.
    Io(io::Error),
    /// The size is negative.
    NegativeSize(i32),
    /// The size is above the limit, which is given in bytes.
    TooLarge {
        /// Bytes that the frame claims to have.
        size: usize,
        /// Bytes that it may have.
        max: usize,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NegativeSize(size) => write!(f, "negative frame size {size}"),
            Self::TooLarge { size, max } => write!(f, "frame of {size} bytes, limit {max}"),
        }
    }
}

impl std::error::Error for FrameError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Checks a size prefix against the limit (K7).
///
/// # Errors
/// If the size is negative or above `max`.
pub fn check_size(prefix: [u8; PREFIX], max: usize) -> Result<usize, FrameError> {
    let size = i32::from_be_bytes(prefix);
    let Ok(size) = usize::try_from(size) else {
        return Err(FrameError::NegativeSize(size));
    };
    if size > max {
        return Err(FrameError::TooLarge { size, max });
    }
    Ok(size)
}

/// Reads frames from a connection.
///
/// Cancelling [`FrameReader::next`] loses nothing: what has been read stays in the buffer.
pub struct FrameReader<R> {
    inner: R,
    buf: BytesMut,
    /// What is left of the last large frame's buffer: all of it, once nobody holds the frame.
    spare: BytesMut,
    max: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads frames of at most `max` bytes.
    pub fn new(inner: R, max: usize) -> Self {
        Self {
            inner,
            buf: BytesMut::new(),
            spare: BytesMut::new(),
            max,
        }
    }

    /// What is read from.
    pub const fn get_ref(&self) -> &R {
        &self.inner
    }

    /// Whether part of a frame has come.
    #[must_use]
    pub fn has_partial(&self) -> bool {
        !self.buf.is_empty()
    }

    /// The next frame without its size prefix; `None` if the connection ended between frames.
    ///
    /// # Errors
    /// If the size is negative or too large (checked before anything is allocated for it), or
    /// the connection fails or ends within a frame.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FrameError> {
        loop {
            let wanted = match self.buf.first_chunk::<PREFIX>() {
                Some(prefix) => {
                    let size = check_size(*prefix, self.max)?;
                    if self.buf.len() >= PREFIX + size {
                        self.buf.advance(PREFIX);
                        let frame = self.buf.split_to(size).freeze();
                        if self.buf.is_empty() && (FIRST_RESERVE..=SPARE_MAX).contains(&size) {
                            self.spare = std::mem::take(&mut self.buf);
                        }
                        return Ok(Some(frame));
                    }
                    PREFIX + size
                }
                None => PREFIX,
            };
            self.make_room(wanted - self.buf.len());
            if self.inner.read_buf(&mut self.buf).await? == 0 {
                if self.buf.is_empty() {
                    return Ok(None);
                }
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    /// Makes room for missing bytes, but no more than some times what has come already: the size
    /// prefix is a claim, and a claim costs nothing.
    fn make_room(&mut self, missing: usize) {
        let step = (self.buf.len() * GROWTH).clamp(FIRST_RESERVE, NEXT_RESERVE);
        let wanted = missing.min(step);
        let have = self.buf.len();
        if missing > FIRST_RESERVE && self.spare.try_reclaim(have + missing) {
            self.spare.clear();
            self.spare.extend_from_slice(&self.buf);
            self.buf = std::mem::take(&mut self.spare);
            return;
        }
        if self.buf.capacity() - self.buf.len() < wanted {
            // Exactly what is missing of a large frame: its buffer ends with it, so that whoever
            // keeps its records does not keep the frames behind it.
            self.buf.reserve(wanted.max(FIRST_RESERVE));
        }
    }
}

/// The header of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// The API key, which may be one that is not known.
    pub request_api_key: i16,
    /// The version of the request.
    pub request_api_version: i16,
    /// Comes back in the response.
    pub correlation_id: i32,
    /// The client's name for itself.
    pub client_id: Option<Str>,
}

impl RequestHeader {
    /// Reads a header. For a key that is not known only the first three fields are read, since
    /// only the key says how the header goes on; so is it for ControlledShutdown v0 (header v0).
    ///
    /// # Errors
    /// If the bytes are not a header.
    pub fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.set_flexible(false);
        let mut header = Self {
            request_api_key: decoder.i16()?,
            request_api_version: decoder.i16()?,
            correlation_id: decoder.i32()?,
            client_id: None,
        };
        let Some(key) = ApiKey::from_code(header.request_api_key) else {
            return Ok(header);
        };
        // The client id never has a compact length: a broker must be able to read the header
        // of an ApiVersions request of any version.
        header.client_id = decoder
            .nullable_string()
            .map_err(|error| error.at("RequestHeader.client_id"))?;
        if key.request_header_version(header.request_api_version) >= 2 {
            decoder
                .skip_tags()
                .map_err(|error| error.at("RequestHeader"))?;
        }
        Ok(header)
    }

    /// Writes a header in the version that the API's version asks for.
    ///
    /// # Errors
    /// If the client id is too long.
    pub fn encode(&self, key: ApiKey, encoder: &mut Encoder) -> Result<(), EncodeError> {
        encoder.set_flexible(false);
        encoder.i16(key.code());
        encoder.i16(self.request_api_version);
        encoder.i32(self.correlation_id);
        match &self.client_id {
            Some(id) => {
                encoder
                    .string(id.as_bytes())
                    .map_err(|e| e.at("RequestHeader.client_id"))?;
            }
            None => encoder.null_string(),
        }
        if key.request_header_version(self.request_api_version) >= 2 {
            encoder.uvarint(0);
        }
        Ok(())
    }
}

/// Reads a response's header: its correlation id.
///
/// # Errors
/// If the bytes are not a header.
pub fn decode_response_header(
    decoder: &mut Decoder,
    key: ApiKey,
    version: i16,
) -> Result<i32, DecodeError> {
    let correlation_id = decoder.i32()?;
    if key.response_header_version(version) >= 1 {
        decoder.skip_tags()?;
    }
    Ok(correlation_id)
}

/// A response as a frame: size prefix, header, body.
///
/// # Errors
/// If the version cannot carry the response.
pub fn encode_response<M: Message>(
    key: ApiKey,
    version: i16,
    correlation_id: i32,
    response: &M,
) -> Result<EncodedFrame, EncodeError> {
    let mut encoder = begin_response(key, version, correlation_id);
    response.encode(&mut encoder, version)?;
    encoder.finish_frame()
}

/// An encoder that holds a response's size prefix and header; the body is next, then
/// [`Encoder::finish_frame`].
#[must_use]
pub fn begin_response(key: ApiKey, version: i16, correlation_id: i32) -> Encoder {
    let mut encoder = Encoder::frame();
    encoder.i32(correlation_id);
    if key.response_header_version(version) >= 1 {
        encoder.uvarint(0);
    }
    encoder
}

/// A request as a frame: size prefix, header, body. For clients.
///
/// # Errors
/// If the version cannot carry the request.
pub fn encode_request<M: Request>(
    version: i16,
    correlation_id: i32,
    client_id: Option<&Str>,
    request: &M,
) -> Result<EncodedFrame, EncodeError> {
    let header = RequestHeader {
        request_api_key: M::KEY.code(),
        request_api_version: version,
        correlation_id,
        client_id: client_id.cloned(),
    };
    let mut encoder = Encoder::frame();
    header.encode(M::KEY, &mut encoder)?;
    request.encode(&mut encoder, version)?;
    encoder.finish_frame()
}

/// Reads the answer to a request of type `M`: correlation id and response. For clients.
///
/// # Errors
/// If the frame is not such an answer.
pub fn decode_response<M: Request>(
    frame: Bytes,
    version: i16,
) -> Result<(i32, M::Response), DecodeError> {
    let mut decoder = Decoder::new(frame);
    let correlation_id = decode_response_header(&mut decoder, M::KEY, version)?;
    Ok((correlation_id, M::Response::decode(&mut decoder, version)?))
}

/// Writes all slices with as few vectored writes as possible; several frames may be given as one
/// list. Does not flush.
///
/// # Errors
/// If the connection fails. How much has been written is then unknown.
pub async fn write_vectored_all<W: AsyncWrite + Unpin>(
    writer: &mut W,
    slices: &[Bytes],
) -> io::Result<()> {
    let mut next = 0;
    let mut skip = 0;
    loop {
        while next < slices.len() && skip == slices[next].len() {
            next += 1;
            skip = 0;
        }
        if next == slices.len() {
            return Ok(());
        }
        let mut io_slices = [IoSlice::new(&[]); MAX_IO_SLICES];
        let count = MAX_IO_SLICES.min(slices.len() - next);
        for (io_slice, slice) in io_slices.iter_mut().zip(&slices[next..next + count]) {
            *io_slice = IoSlice::new(slice);
        }
        io_slices[0] = IoSlice::new(&slices[next][skip..]);
        let mut written = writer.write_vectored(&io_slices[..count]).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while written > 0 {
            let left = slices[next].len() - skip;
            if written < left {
                skip += written;
                break;
            }
            written -= left;
            next += 1;
            skip = 0;
        }
    }
}
