//! From what a toolchain emits to a component.

use std::borrow::Cow;

use twice_core::limits::COMPONENT_BYTES_MAX;
use wasmparser::{Encoding, Parser, Payload};
use wit_component::ComponentEncoder;

use crate::adapter::{PREVIEW1, adapter};
use crate::api::SandboxError;
use crate::shape::{self, METADATA};

/// Makes a component of `bytes`: a component is passed through, a core module that carries component metadata (what
/// `wit-bindgen` leaves in it) is wrapped, with an
/// adapter for WASI preview 1 if it imports that. The same bytes always give the same component.
///
/// # Errors
/// [`SandboxError::TooBig`] and [`SandboxError::Limit`], and [`SandboxError::NotAComponent`] for anything else than these two, with the fix.
pub fn componentize(bytes: &[u8]) -> Result<Cow<'_, [u8]>, SandboxError> {
    within_limit(bytes)?;
    let encoding = encoding(bytes)?;
    shape::check(bytes)?;
    match encoding {
        Encoding::Component => Ok(Cow::Borrowed(bytes)),
        Encoding::Module => {
            if lacks_metadata(bytes) {
                return Err(no_metadata());
            }
            let component = ComponentEncoder::default()
                .validate(true)
                .module(bytes)
                .and_then(|encoder| encoder.adapter(PREVIEW1, adapter()))
                .and_then(|mut encoder| encoder.encode())
                .map_err(|error| unfit(&format!("{error:#}")))?;
            within_limit(&component)?;
            Ok(Cow::Owned(component))
        }
    }
}

fn within_limit(bytes: &[u8]) -> Result<(), SandboxError> {
    if bytes.len() > COMPONENT_BYTES_MAX {
        return Err(SandboxError::TooBig { bytes: bytes.len(), limit: COMPONENT_BYTES_MAX });
    }
    Ok(())
}

/// Says whether the header is that of a module or of a component.
fn encoding(bytes: &[u8]) -> Result<Encoding, SandboxError> {
    let refuse = |problem: &str| Err(SandboxError::NotAComponent { problem: problem.to_owned() });
    if bytes.is_empty() {
        return refuse("it is empty; was the build interrupted?");
    }
    if !bytes.starts_with(b"\0asm") {
        let text = bytes.trim_ascii_start();
        return if text.starts_with(b"(module") || text.starts_with(b"(component") {
            refuse(
                "it is WebAssembly text; assemble it first (`wasm-tools parse node.wat -o node.wasm`)",
            )
        } else {
            refuse(
                "it does not start with the WebAssembly header `\\0asm`; give the built .wasm file",
            )
        };
    }
    match Parser::new(0).parse_all(bytes).next() {
        Some(Ok(Payload::Version { encoding, .. })) => Ok(encoding),
        Some(Ok(_) | Err(_)) | None => {
            refuse("its header is incomplete or of an unknown version; was the file cut off?")
        }
    }
}

/// Whether `bytes` are a core module that does not say which world it was built for. Such a module needs its world embedded
/// before [`componentize`] takes it.
#[must_use]
pub fn lacks_metadata(bytes: &[u8]) -> bool {
    if !matches!(encoding(bytes), Ok(Encoding::Module)) {
        return false;
    }
    // What is damaged is reported when it is encoded.
    !Parser::new(0).parse_all(bytes).map_while(Result::ok).any(|payload| {
        matches!(payload, Payload::CustomSection(section) if section.name().starts_with(METADATA))
    })
}

/// A module that does not fit its world, for the reason that the encoder gives.
fn unfit(reason: &str) -> SandboxError {
    // What the SDKs export is in every module that links them.
    let hint = if reason.contains("failed to find export of function `run`") {
        ". Nothing in it exports the node: does its source use the SDK of its language?"
    } else {
        ""
    };
    SandboxError::NotAComponent {
        problem: format!(
            "it is a core module that does not fit the world it names: {reason}{hint}"
        ),
    }
}

fn no_metadata() -> SandboxError {
    SandboxError::NotAComponent {
        problem: "it is a core module without component metadata, so nothing says which world it was built for; \
                  build it with `twice node build`, or with wit-bindgen (in Rust: the `twice-node` crate), or add the \
                  metadata with `wasm-tools component embed wit --world node`. (A node.wasm in target/twice of a node's folder \
                  is what its language's compiler made on the way; `twice node build DIR --out FILE` writes the component)"
            .to_owned(),
    }
}
