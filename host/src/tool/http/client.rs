//! The only place that builds HTTP clients. They neither retry, nor follow, nor guess; what they may do is set here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::Verifier;

use super::witness::WitnessLayer;

/// How long an idle connection is kept. Below the five seconds after which common servers close theirs, so that a
/// request rarely meets a connection that the other side is just closing.
const POOL_IDLE: Duration = Duration::from_secs(3);
/// Most idle connections kept per provider; more concurrent requests open their own.
const POOL_IDLE_MAX: usize = 8;

/// What sets one client apart from another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClientKind {
    /// Whether the provider is reached by TLS.
    pub(super) tls: bool,
    /// Additional root certificates; a path as the tool file gives it.
    pub(super) ca_file: Option<String>,
    /// Whether connections are used again: only for reads and for operations that honour a key, where a connection that
    /// went stale costs one resend. For the others it would cost an unknown outcome.
    pub(super) reuse: bool,
}

/// The clients made so far.
pub(super) struct Clients {
    root: PathBuf,
    made: Mutex<BTreeMap<ClientKind, reqwest::Client>>,
}

impl Clients {
    /// `root` is where a relative `ca_file` is looked for.
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, made: Mutex::default() }
    }

    /// The client of that kind, made at its first use. An error is text for people, with the fix.
    pub(super) fn get(&self, kind: &ClientKind) -> Result<reqwest::Client, String> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = made.get(kind) {
            return Ok(client.clone());
        }
        let client = build(kind, &self.root)?;
        made.insert(kind.clone(), client.clone());
        Ok(client)
    }
}

/// A client for a server of our own on this machine, such as the demo's provider; it knows no TLS.
///
/// # Errors
/// In words, when it cannot be set up.
pub fn plain_client() -> Result<reqwest::Client, String> {
    let kind = ClientKind { tls: false, ca_file: None, reuse: true };
    finish(settings(&kind, Path::new("."))?)
}

fn build(kind: &ClientKind, root: &Path) -> Result<reqwest::Client, String> {
    finish(settings(kind, root)?.connector_layer(WitnessLayer))
}

fn finish(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, String> {
    builder
        .build()
        .map_err(|error| format!("the HTTP client cannot be set up: {}", error.without_url()))
}

fn settings(kind: &ClientKind, root: &Path) -> Result<reqwest::ClientBuilder, String> {
    let idle = if kind.reuse { POOL_IDLE_MAX } else { 0 };
    // The connect timeout is kept by the witness, as it belongs to the operation and not to the client; the total timeout
    // belongs to the request.
    Ok(reqwest::Client::builder()
        .user_agent(concat!("twice/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        .http1_only()
        .no_gzip()
        .no_brotli()
        .no_deflate()
        .no_zstd()
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(idle)
        .tls_backend_preconfigured(tls_config(kind, root)?))
}

fn tls_config(kind: &ClientKind, root: &Path) -> Result<rustls::ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?;
    if !kind.tls {
        // Nothing is redirected, so a tool with an http:// base never comes to a handshake; one that did would fail.
        return Ok(builder
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth());
    }
    let extra = kind.ca_file.as_deref().map_or(Ok(Vec::new()), |path| read_roots(path, root))?;
    let verifier = Verifier::new_with_extra_roots(extra, provider).map_err(|error| {
        format!("no root certificates can be used ({error}); install the system's, or set ca_file")
    })?;
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn read_roots(path: &str, root: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = std::fs::read(root.join(path))
        .map_err(|error| format!("ca_file {path} cannot be read: {}", error.kind()))?;
    let roots = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("ca_file {path} is not PEM: {error}"))?;
    if roots.is_empty() {
        return Err(format!("ca_file {path} holds no CERTIFICATE block"));
    }
    Ok(roots)
}
