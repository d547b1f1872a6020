//! Connections that can be reset instead of answered, as a provider's edge does when it dies.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// The handle by which a request resets its own connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Connection {
    reset: Arc<AtomicBool>,
}

impl Connection {
    /// From now on nothing is written to the connection; the next write fails, which makes the server drop it, and the
    /// client sees a reset.
    pub(crate) fn reset(&self) {
        self.reset.store(true, Ordering::SeqCst);
    }
}

/// Accepts connections of this machine.
pub(crate) struct Loopback(pub(crate) TcpListener);

impl Listener for Loopback {
    type Io = ResettableStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (ResettableStream, SocketAddr) {
        loop {
            match self.0.accept().await {
                Ok((stream, address)) => {
                    let connection = Connection::default();
                    return (ResettableStream { stream, connection }, address);
                }
                // Out of file descriptors, or a peer that went away before it was accepted: others may still come.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Connected<IncomingStream<'_, Loopback>> for Connection {
    fn connect_info(stream: IncomingStream<'_, Loopback>) -> Self {
        stream.io().connection.clone()
    }
}

/// A TCP stream that refuses to write once it is to be reset.
pub(crate) struct ResettableStream {
    stream: TcpStream,
    connection: Connection,
}

impl ResettableStream {
    fn check(&self) -> io::Result<()> {
        if self.connection.reset.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

impl Drop for ResettableStream {
    fn drop(&mut self) {
        if self.connection.reset.load(Ordering::SeqCst) {
            // With no time to linger, closing sends RST instead of FIN. Without it the client still sees an end
            // before any answer, so a failure here changes nothing that matters.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for ResettableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for ResettableStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
