//! What can be proven about the bytes of one request: whether a connection was made for it, and whether its body was
//! ever asked for. It also holds the last gate before the socket: nothing passes after the lease got too short, nor once
//! nobody waits for the answer any more.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tower_layer::Layer;
use tower_service::Service;
use twice_core::outcome::Sent;

use crate::tool::gate::{Gate, Shut};

tokio::task_local! {
    /// The witness of the request that the current task is sending; the connector finds it here, as the client's
    /// interface passes it nothing but the address.
    static CURRENT: Arc<Witness>;
}

/// What was seen of one request.
#[derive(Debug)]
pub(super) struct Witness {
    gate: Gate,
    connect_timeout: Duration,
    /// Whether the connection is this request's own, so that no byte can leave before the connector was done.
    own_connection: bool,
    has_body: bool,
    connecting: AtomicBool,
    connected: AtomicBool,
    /// Whether the body, which is one piece, was handed over.
    body_given: AtomicBool,
}

impl Witness {
    pub(super) fn new(
        gate: Gate,
        connect_timeout: Duration,
        own_connection: bool,
        has_body: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            gate,
            connect_timeout,
            own_connection,
            has_body,
            connecting: AtomicBool::new(false),
            connected: AtomicBool::new(false),
            body_given: AtomicBool::new(false),
        })
    }

    /// Whether the request's connection was being made and is not there yet.
    pub(super) fn still_connecting(&self) -> bool {
        self.connecting.load(Ordering::SeqCst) && !self.connected.load(Ordering::SeqCst)
    }

    /// What is proven. The head is buffered until the body has been asked for once, so a body that was never given means
    /// that nothing left; without a body, only a connection that never came about proves it.
    pub(super) fn sent(&self) -> Sent {
        let nothing_left = if self.has_body {
            !self.body_given.load(Ordering::SeqCst)
        } else {
            self.own_connection && !self.connected.load(Ordering::SeqCst)
        };
        if nothing_left { Sent::Nothing } else { Sent::Maybe }
    }

    /// Runs `future` so that connectors called by it find this witness.
    pub(super) async fn watch<F: Future>(self: &Arc<Self>, future: F) -> F::Output {
        CURRENT.scope(Arc::clone(self), future).await
    }

    fn refused(&self) -> Option<Refused> {
        self.gate.shut().map(Refused::from)
    }
}

/// Why the gate stayed shut, as it shows up in the source chain of the client's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The lease left no time.
    LeaseTooShort,
    /// Nobody waits for the answer any more.
    Abandoned,
    /// No connection within the operation's connect timeout.
    ConnectTimeout,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeaseTooShort => "the lease left no time to send",
            Self::Abandoned => "nobody waited for the answer any more",
            Self::ConnectTimeout => "no connection in time",
        })
    }
}

impl Error for Refused {}

impl From<Shut> for Refused {
    fn from(shut: Shut) -> Self {
        match shut {
            Shut::TooLate => Self::LeaseTooShort,
            Shut::Abandoned => Self::Abandoned,
        }
    }
}

/// A request body of one piece that tells its witness when it is taken, and is not given once the gate is shut.
pub(super) struct WitnessedBody {
    content: Option<Bytes>,
    witness: Arc<Witness>,
}

impl WitnessedBody {
    pub(super) fn new(content: Bytes, witness: Arc<Witness>) -> Self {
        Self { content: Some(content), witness }
    }
}

impl Body for WitnessedBody {
    type Data = Bytes;
    type Error = Refused;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Refused>>> {
        let Some(content) = self.content.take() else { return Poll::Ready(None) };
        if let Some(refused) = self.witness.refused() {
            return Poll::Ready(Some(Err(refused)));
        }
        self.witness.body_given.store(true, Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(content))))
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.content.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// Puts the witness around the client's connector.
#[derive(Debug, Clone, Copy)]
pub(super) struct WitnessLayer;

impl<S> Layer<S> for WitnessLayer {
    type Service = WitnessedConnector<S>;

    fn layer(&self, connector: S) -> WitnessedConnector<S> {
        WitnessedConnector { connector }
    }
}

/// A connector that keeps to the time of the request it connects for, and tells its witness.
#[derive(Debug, Clone)]
pub(super) struct WitnessedConnector<S> {
    connector: S,
}

type BoxError = Box<dyn Error + Send + Sync>;

impl<S, Target> Service<Target> for WitnessedConnector<S>
where
    S: Service<Target, Error = BoxError>,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(cx)
    }

    fn call(&mut self, target: Target) -> Self::Future {
        let witness = CURRENT.try_with(Arc::clone).ok();
        let connecting = self.connector.call(target);
        Box::pin(async move {
            match witness {
                Some(witness) => connect(&witness, connecting).await,
                None => Err("a connection without a request to witness".into()),
            }
        })
    }
}

async fn connect<T>(
    witness: &Witness,
    connecting: impl Future<Output = Result<T, BoxError>>,
) -> Result<T, BoxError> {
    witness.connecting.store(true, Ordering::SeqCst);
    let left = witness.gate.left();
    let connection = tokio::select! {
        connected = tokio::time::timeout(witness.connect_timeout.min(left), connecting) => {
            match connected {
                Ok(connection) => connection?,
                Err(_) if left < witness.connect_timeout => {
                    return Err(Refused::LeaseTooShort.into());
                }
                Err(_) => return Err(Refused::ConnectTimeout.into()),
            }
        }
        () = witness.gate.abandoned() => return Err(Refused::Abandoned.into()),
    };
    if let Some(refused) = witness.refused() {
        return Err(refused.into());
    }
    witness.connected.store(true, Ordering::SeqCst);
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Instant;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn poll(body: &mut WitnessedBody) -> Poll<Option<Result<Frame<Bytes>, Refused>>> {
        Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
    }

    #[track_caller]
    fn check(gate: Gate, expected: Result<&'static [u8], Refused>, sent: Sent) {
        let witness = Witness::new(gate, MINUTE, true, true);
        let mut body = WitnessedBody::new(Bytes::from_static(b"{}"), Arc::clone(&witness));
        assert_eq!(witness.sent(), Sent::Nothing, "before it is asked for");
        let Poll::Ready(Some(frame)) = poll(&mut body) else { panic!("one frame is there") };
        let data = frame.map(|frame| frame.into_data().unwrap_or_default());
        assert_eq!(data.as_deref(), expected.as_deref());
        assert_eq!(witness.sent(), sent);
        assert!(matches!(poll(&mut body), Poll::Ready(None)), "it comes once");
    }

    #[test]
    fn the_body_is_given_once_and_while_the_gate_is_open() {
        let open = Gate::until(Instant::now() + MINUTE);
        check(open, Ok(b"{}"), Sent::Maybe);
        check(Gate::until(Instant::now()), Err(Refused::LeaseTooShort), Sent::Nothing);
        let (abandoned, keeper) = Gate::kept(Instant::now() + MINUTE);
        drop(keeper);
        check(abandoned, Err(Refused::Abandoned), Sent::Nothing);
    }

    #[test]
    fn without_a_body_only_an_own_connection_proves_anything() {
        let witness = |own| Witness::new(Gate::until(Instant::now() + MINUTE), MINUTE, own, false);
        assert_eq!(witness(true).sent(), Sent::Nothing);
        assert_eq!(witness(false).sent(), Sent::Maybe);
        let connected = witness(true);
        connected.connected.store(true, Ordering::SeqCst);
        assert_eq!(connected.sent(), Sent::Maybe);
    }
}
