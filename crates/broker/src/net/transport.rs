//! The two halves of a stream, and how files leave through it.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_util::FutureExt;
use tidemill_wire::codec::FileSlice;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, Interest, ReadHalf, WriteHalf},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// Bytes of a file read at once where it cannot be sent without a copy.
const COPY_BYTES: usize = 64 << 10;

/// Whether more is written right behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// These are the last bytes for now.
    No,
    /// A small packet may wait for what follows.
    Follows,
}

/// A stream that a connection is served on.
pub trait Transport: Send {
    /// What is read from.
    type Read: AsyncRead + Unpin + Send;
    /// What is written to.
    type Write: Outgoing;

    /// Its halves, which one task holds.
    fn halves(self) -> (Self::Read, Self::Write);
}

/// The writing half.
pub trait Outgoing: AsyncWrite + Unpin + Send {
    /// Writes some of the slices; the number of bytes taken.
    fn poll_write_slices(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        more: More,
    ) -> Poll<io::Result<usize>> {
        let _ = more;
        Pin::new(self).poll_write_vectored(cx, slices)
    }

    /// Sends some of a part of a file; the number of bytes taken. A file that ends before the part
    /// does is an error.
    fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &FileSlice,
    ) -> Poll<io::Result<usize>> {
        poll_copy(self, cx, file)
    }

    /// Whether the client is known to send nothing more, although what it sent may not be read yet.
    fn is_hung_up(&self) -> bool {
        false
    }
}

/// Sends some of a part of a file by way of memory.
fn poll_copy<W: AsyncWrite + Unpin + ?Sized>(
    to: &mut W,
    cx: &mut Context<'_>,
    file: &FileSlice,
) -> Poll<io::Result<usize>> {
    let mut buffer = vec![0; file.len().min(COPY_BYTES)];
    let read = file.read(&mut buffer)?;
    Pin::new(to).poll_write(cx, &buffer[..read])
}

impl Transport for DuplexStream {
    type Read = ReadHalf<Self>;
    type Write = WriteHalf<Self>;

    fn halves(self) -> (Self::Read, Self::Write) {
        tokio::io::split(self)
    }
}

impl<T: AsyncWrite + Send> Outgoing for WriteHalf<T> {}

impl Transport for TcpStream {
    type Read = OwnedReadHalf;
    type Write = OwnedWriteHalf;

    fn halves(self) -> (Self::Read, Self::Write) {
        self.into_split()
    }
}

#[cfg(not(target_os = "linux"))]
impl Outgoing for OwnedWriteHalf {}

#[cfg(target_os = "linux")]
impl Outgoing for OwnedWriteHalf {
    fn poll_write_slices(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        more: More,
    ) -> Poll<io::Result<usize>> {
        if more == More::No {
            return Pin::new(self).poll_write_vectored(cx, slices);
        }
        linux::poll_ready(self.as_ref(), cx, |socket| linux::send_more(socket, slices))
    }

    fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &FileSlice,
    ) -> Poll<io::Result<usize>> {
        let sent = linux::poll_ready(self.as_ref(), cx, |socket| linux::send_file(socket, file));
        match ready!(sent) {
            // A file system that cannot; the file is read instead.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => poll_copy(self, cx, file),
            other => Poll::Ready(other),
        }
    }

    fn is_hung_up(&self) -> bool {
        let ready = self.as_ref().ready(Interest::READABLE).now_or_never();
        ready.is_some_and(|ready| ready.is_ok_and(|ready| ready.is_read_closed()))
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        io::{self, IoSlice},
        task::{Context, Poll, ready},
    };

    use rustix::{
        io::Errno,
        net::{SendAncillaryBuffer, SendFlags},
    };
    use tidemill_wire::codec::FileSlice;
    use tokio::{io::Interest, net::TcpStream};

    /// Bytes sent of a file by one call: the other connections of the thread have their turn, and
    /// a common answer of a partition is one call.
    const SEND_BYTES: usize = 1 << 20;

    /// Repeats `work` until the socket takes something.
    pub(super) fn poll_ready<T>(
        socket: &TcpStream,
        cx: &mut Context<'_>,
        mut work: impl FnMut(&TcpStream) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            ready!(socket.poll_write_ready(cx))?;
            match socket.try_io(Interest::WRITABLE, || work(socket)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return Poll::Ready(other),
            }
        }
    }

    /// Writes slices that a part of a file follows: the kernel puts both into one packet.
    pub(super) fn send_more(socket: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
        let mut ancillary = SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(socket, slices, &mut ancillary, flags)?)
    }

    pub(super) fn send_file(socket: &TcpStream, slice: &FileSlice) -> io::Result<usize> {
        let mut at = slice.offset();
        let count = slice.len().min(SEND_BYTES);
        match rustix::fs::sendfile(socket, slice.file().descriptor(), Some(&mut at), count) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(sent) => Ok(sent),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::SPIPE) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            Err(error) => Err(error.into()),
        }
    }
}
