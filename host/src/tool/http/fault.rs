//! From a client's error to the kind of failure it is. Texts of HTTP libraries are neither stable nor free of URLs, so
//! everything is read from methods and types; what is not recognised is [`FaultKind::Other`], which proves nothing.

use std::error::Error;
use std::io;

use twice_core::outcome::{Exchange, Fault, FaultKind, Sent};

use super::witness::{Refused, Witness};
use crate::tool::gate::Shut;

/// The exchange that ended without a response head.
pub(super) fn before_head(error: &reqwest::Error, witness: &Witness, tls: bool) -> Exchange {
    let kind = kind_before_head(error, witness, tls);
    let message = message(kind, error);
    Exchange { sent: witness.sent(), result: Err(Fault { kind, status: None, message }) }
}

/// What went wrong with a response body. Whatever it was, the head had been read.
pub(super) fn in_body(error: &reqwest::Error, status: u16) -> Fault {
    let kind = if error.is_timeout() {
        FaultKind::BodyTimeout
    } else if system_error(error).is_some_and(is_bad_framing) {
        FaultKind::Parse
    } else {
        FaultKind::BodyTruncated
    };
    Fault { kind, status: Some(status), message: message(kind, error) }
}

/// The fault of a request that found the gate shut; `too_late` says why, when it was for want of time.
pub(super) fn not_begun(shut: Shut, too_late: &str) -> Fault {
    match shut {
        Shut::TooLate => {
            Fault { kind: FaultKind::LeaseTooShort, status: None, message: too_late.to_owned() }
        }
        Shut::Abandoned => Fault {
            kind: FaultKind::Abandoned,
            status: None,
            message: words(FaultKind::Abandoned).to_owned(),
        },
    }
}

fn kind_before_head(error: &reqwest::Error, witness: &Witness, tls: bool) -> FaultKind {
    match find::<Refused>(error) {
        Some(Refused::LeaseTooShort) => return FaultKind::LeaseTooShort,
        Some(Refused::Abandoned) => return FaultKind::Abandoned,
        Some(Refused::ConnectTimeout) => return FaultKind::ConnectTimeout,
        None => {}
    }
    if error.is_builder() {
        return FaultKind::Build;
    }
    if error.is_dns() {
        return FaultKind::Dns;
    }
    if error.is_connect() {
        return kind_of_connect(error, tls);
    }
    if error.is_timeout() {
        // Where connections are kept, a request may have left by another one than the one that was being made for it.
        let connecting = witness.still_connecting() && witness.sent() == Sent::Nothing;
        return if connecting { FaultKind::ConnectTimeout } else { FaultKind::Timeout };
    }
    kind_of_exchange(error)
}

fn kind_of_connect(error: &reqwest::Error, tls: bool) -> FaultKind {
    if find::<rustls::Error>(error).is_some() {
        return FaultKind::Tls;
    }
    if error.is_timeout() {
        return FaultKind::ConnectTimeout;
    }
    match system_error(error) {
        // A TCP connection that is not made is refused or unreachable; one that ends was made, so this is the handshake.
        Some(
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::InvalidData,
        ) if tls => FaultKind::Tls,
        Some(_) | None => FaultKind::Connect,
    }
}

/// After the connection was there. None of these proves that the peer did not act: an end of the connection is what a
/// peer that did everything and then died looks like, too.
fn kind_of_exchange(error: &reqwest::Error) -> FaultKind {
    if let Some(http) = find::<hyper::Error>(error) {
        if http.is_parse() {
            return FaultKind::Parse;
        }
        if http.is_body_write_aborted() || http.is_user() {
            return FaultKind::Write;
        }
        if http.is_incomplete_message() || http.is_canceled() || http.is_closed() {
            return FaultKind::ClosedBeforeHead;
        }
    }
    match system_error(error) {
        Some(
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected,
        ) => FaultKind::ClosedBeforeHead,
        // An alert after the handshake, such as the refusal of a client certificate under TLS 1.3: the connection is over,
        // and the request had been written.
        Some(io::ErrorKind::InvalidData) if find::<rustls::Error>(error).is_some() => {
            FaultKind::ClosedBeforeHead
        }
        Some(io::ErrorKind::WriteZero) => FaultKind::Write,
        Some(_) | None => FaultKind::Other,
    }
}

const fn is_bad_framing(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
}

/// In words of our own, with the system's or the TLS library's reason, which name no URL.
fn message(kind: FaultKind, error: &reqwest::Error) -> String {
    let what = words(kind);
    let reason = find::<rustls::Error>(error)
        .map(ToString::to_string)
        .or_else(|| system_error(error).map(|kind| kind.to_string()));
    match reason {
        Some(reason) => format!("{what}: {reason}"),
        None => what.to_owned(),
    }
}

const fn words(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Build => "the request could not be built",
        FaultKind::Secret => "a secret could not be read",
        FaultKind::Dns => "the host name did not resolve",
        FaultKind::Connect => "no connection",
        FaultKind::ConnectTimeout => "no connection in time",
        FaultKind::Tls => "the TLS handshake failed",
        FaultKind::LeaseTooShort => "the lease left no time to send",
        FaultKind::Timeout => "no answer in time",
        FaultKind::ClosedBeforeHead => "the connection ended before an answer",
        FaultKind::Write => "the request could not be written",
        FaultKind::RefusedStream => "the peer refused the stream",
        FaultKind::StreamReset => "the peer reset the stream",
        FaultKind::Parse => "the answer was not HTTP",
        FaultKind::BodyTruncated => "the answer's body ended early",
        FaultKind::BodyTimeout => "the answer's body did not end in time",
        FaultKind::Abandoned => "nobody waited for the answer any more",
        FaultKind::Other => "the exchange failed",
    }
}

/// The first error of a type in the source chain.
fn find<T: Error + 'static>(error: &reqwest::Error) -> Option<&T> {
    chain(error).find_map(|error| error.downcast_ref::<T>())
}

/// What the system said: connectors wrap its errors in others of kind `Other`, so the innermost one counts.
fn system_error(error: &reqwest::Error) -> Option<io::ErrorKind> {
    chain(error).filter_map(|error| error.downcast_ref::<io::Error>()).last().map(io::Error::kind)
}

/// The sources of an error.
fn chain(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |current| source(*current))
}

/// What an `io::Error` wraps is not its source, so it would be missed.
fn source<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}
