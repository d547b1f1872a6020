//! Certificates for servers on the loopback interface.

use std::io;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A certificate authority of a test's own.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

/// The TLS side of a server.
#[derive(Clone)]
pub struct TlsServer {
    acceptor: TlsAcceptor,
}

impl TlsServer {
    pub(super) async fn accept(&self, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.acceptor.accept(socket).await
    }
}

impl Authority {
    /// A new authority, trusted by nobody yet.
    ///
    /// # Panics
    /// When keys cannot be made.
    #[must_use]
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names are valid names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate");
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// Its certificate, for a `ca_file`.
    #[must_use]
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// A server whose certificate is for `name`.
    ///
    /// # Panics
    /// When the name cannot stand in a certificate.
    #[must_use]
    pub fn server(&self, name: &str) -> TlsServer {
        self.build(name, false)
    }

    /// The same, but it wants a certificate of the client, too.
    ///
    /// # Panics
    /// When the name cannot stand in a certificate.
    #[must_use]
    pub fn server_for_known_clients(&self, name: &str) -> TlsServer {
        self.build(name, true)
    }

    fn build(&self, name: &str, known_clients: bool) -> TlsServer {
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new(vec![name.to_owned()])
            .and_then(|params| params.signed_by(&key, &self.issuer))
            .expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider knows the default versions");
        let builder = if known_clients {
            let mut roots = RootCertStore::empty();
            roots.add(self.certificate.der().clone()).expect("a root");
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        } else {
            builder.with_no_client_auth()
        };
        let private = PrivateKeyDer::try_from(key.serialize_der()).expect("a private key");
        let config = builder
            .with_single_cert(vec![certificate.der().clone()], private)
            .expect("key and certificate belong together");
        TlsServer { acceptor: TlsAcceptor::from(Arc::new(config)) }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
