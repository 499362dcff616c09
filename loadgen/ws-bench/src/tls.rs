//! The TLS clients of a section: which certificates of a service are accepted, and which one is presented.

use std::sync::Arc;

use bench_format::websocket::Tls;
use loadgen_core::tls::TlsClient;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

use crate::mistakes::Mistakes;

/// The clients of the addresses that connections take in turn; none without TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsClients(Vec<TlsClient>);

impl TlsClients {
    /// Compiles the clients for addresses whose certificates must have these names, in turn; mistakes are added under
    /// `connect.tls`.
    pub fn compile<'a>(
        wire: Option<&Tls>,
        names: impl IntoIterator<Item = &'a str>,
        mistakes: &mut Mistakes,
    ) -> Option<Self> {
        let nothing = Tls::default();
        let wire = wire.unwrap_or(&nothing);
        let before = mistakes.count();
        let mut server_names = Vec::new();
        for name in names {
            let name = wire.server_name.as_deref().unwrap_or(name);
            match ServerName::try_from(name.to_owned()) {
                Ok(name) => server_names.push(name),
                Err(_) => mistakes.add("connect.tls.server_name", format!("{name:?} is no name of a host")),
            }
        }
        let config = Arc::new(config(wire, mistakes)?);
        let client = |server_name| TlsClient { config: Arc::clone(&config), server_name };
        (mistakes.count() == before).then(|| Self(server_names.into_iter().map(client).collect()))
    }

    /// The client of a connection; `None` without TLS.
    pub fn of(&self, connection: u32) -> Option<&TlsClient> {
        self.0.get(connection as usize % self.0.len().max(1))
    }
}

fn config(wire: &Tls, mistakes: &mut Mistakes) -> Option<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider has the versions of TLS that are safe");
    let builder = if wire.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
    } else {
        builder.with_root_certificates(authorities(wire.ca.as_deref(), mistakes))
    };
    match identity(wire, mistakes) {
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| mistakes.add("connect.tls.certificate", format!("can't be used with its key: {error}")))
            .ok(),
        None => Some(builder.with_no_client_auth()),
    }
}

fn authorities(path: Option<&str>, mistakes: &mut Mistakes) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    match path {
        Some(path) => {
            let found = certificates(path, "connect.tls.ca", mistakes);
            for certificate in found {
                if let Err(error) = roots.add(certificate) {
                    mistakes.add("connect.tls.ca", format!("{path}: {error}; give certificates of authorities in PEM"));
                }
            }
        }
        // Authorities that can't be read are missing: connections then fail with the reason `tls`.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    roots
}

fn identity(wire: &Tls, mistakes: &mut Mistakes) -> Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    match (&wire.certificate, &wire.key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => {
            let chain = certificates(certificate, "connect.tls.certificate", mistakes);
            let key = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| {
                    mistakes.add("connect.tls.key", format!("failed to read {key}: {error}; give a PEM file"))
                })
                .ok();
            Some((chain, key?))
        }
        _ => {
            mistakes.add("connect.tls", "a certificate needs its key, and a key its certificate; give both");
            None
        }
    }
}

fn certificates(path: &str, place: &str, mistakes: &mut Mistakes) -> Vec<CertificateDer<'static>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if !found.is_empty() => found,
        Ok(_) => {
            mistakes.add(place, format!("{path} has no certificate; give a PEM file"));
            vec![]
        }
        Err(error) => {
            mistakes.add(place, format!("failed to read {path}: {error}; give a PEM file"));
            vec![]
        }
    }
}

/// Accepts any certificate of a service, if the plan says so; signatures are checked all the same.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
