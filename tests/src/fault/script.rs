//! The steps of a script and the connection that performs them.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::Seen;

/// What a server does with one connection; at the end it closes it in good order.
pub type Script = Vec<Step>;

/// One step of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// As the first step: leave the TLS handshake out and speak on the bare connection.
    SkipTls,
    /// Read so many bytes.
    ReadBytes(usize),
    /// Read a complete request and count it.
    ReadRequest,
    /// Write these bytes.
    Write(Vec<u8>),
    /// Write these bytes again and again, until the client goes away.
    WriteForever(Vec<u8>),
    /// Read and discard until the client goes away.
    AwaitClose,
    /// Close without good order: the client sees a reset.
    Reset,
}

/// The step that writes a whole response.
#[must_use]
pub fn reply(status: u16, headers: &[(&str, &str)], body: &str) -> Step {
    let mut head = format!("HTTP/1.1 {status} Scripted\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    // These have no body by definition, and no length either.
    if !matches!(status, 100..200 | 204 | 304) {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    Step::Write(format!("{head}\r\n{body}").into_bytes())
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {
    fn tcp(&self) -> &TcpStream;
}

impl Stream for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Stream for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// A connection under a script.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    /// What was read and not yet taken as a request.
    pending: Vec<u8>,
    reset: bool,
    seen: Arc<Mutex<Seen>>,
}

impl Connection {
    pub(super) fn plain(stream: TcpStream, seen: Arc<Mutex<Seen>>) -> Self {
        Self { stream: Box::new(stream), pending: Vec::new(), reset: false, seen }
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>, seen: Arc<Mutex<Seen>>) -> Self {
        Self { stream: Box::new(stream), pending: Vec::new(), reset: false, seen }
    }

    pub(super) async fn perform(&mut self, step: Step) -> io::Result<()> {
        match step {
            Step::SkipTls => Ok(()),
            Step::ReadBytes(count) => {
                while self.pending.len() < count {
                    self.read().await?;
                }
                self.pending.drain(..count);
                Ok(())
            }
            Step::ReadRequest => self.read_request().await,
            Step::Write(bytes) => {
                self.stream.write_all(&bytes).await?;
                self.stream.flush().await
            }
            Step::WriteForever(bytes) => loop {
                self.stream.write_all(&bytes).await?;
            },
            Step::AwaitClose => loop {
                self.read().await?;
                self.pending.clear();
            },
            Step::Reset => {
                self.reset = true;
                self.stream.tcp().set_zero_linger()
            }
        }
    }

    pub(super) async fn close(mut self) -> io::Result<()> {
        if self.reset { Ok(()) } else { self.stream.shutdown().await }
    }

    async fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        let count = self.stream.read(&mut buffer).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.pending.extend_from_slice(&buffer[..count]);
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).bytes += count;
        Ok(())
    }

    async fn read_request(&mut self) -> io::Result<()> {
        let length = loop {
            if let Some(length) = request_length(&self.pending)
                && self.pending.len() >= length
            {
                break length;
            }
            self.read().await?;
        };
        let request: Vec<u8> = self.pending.drain(..length).collect();
        let text = String::from_utf8_lossy(&request).into_owned();
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).requests.push(text);
        Ok(())
    }
}

/// The length of the request at the beginning of `bytes`, once its head is complete.
fn request_length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let body = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .and_then(|length| length.trim().parse().ok())
        .unwrap_or(0);
    Some(head + body)
}
