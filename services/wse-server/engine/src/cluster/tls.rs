//! TLS of links: both sides present a certificate and verify the other's. The dialler also checks the name that it
//! dialled.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::WebPkiClientVerifier,
    version::TLS13,
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::{
    config::{TlsError, TlsFiles},
    host::split,
};

/// The TLS settings of new links.
pub(super) struct Tls {
    connector: TlsConnector,
    acceptor: TlsAcceptor,
}

impl Tls {
    pub(super) fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chain = certificates("tls_cert", &files.certificate, "this instance's certificate and its chain in PEM")?;
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| {
            refused("tls_key", &files.key, &error, "the certificate's private key in PEM, unencrypted")
        })?;
        let roots = Arc::new(roots(&files.authority)?);
        let mismatch = |error: rustls::Error| TlsError::Pair {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            reason: error.to_string(),
        };
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| refused("tls_ca", &files.authority, &error, AUTHORITY))?;
        let server = versions(ServerConfig::builder_with_provider(Arc::clone(&provider)))
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(mismatch)?;
        let client = versions(ClientConfig::builder_with_provider(provider))
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(mismatch)?;
        Ok(Self { connector: Arc::new(client).into(), acceptor: Arc::new(server).into() })
    }

    /// Secures a connection that this instance dialled.
    pub(super) async fn connect(&self, address: &str, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        let host = split(address).map_or(address, |(host, _)| host).to_owned();
        let name = ServerName::try_from(host).map_err(std::io::Error::other)?;
        Ok(self.connector.connect(name, stream).await?.into())
    }

    /// Secures a connection that another instance dialled.
    pub(super) async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        Ok(self.acceptor.accept(stream).await?.into())
    }
}

const AUTHORITY: &str = "the certificates of the authorities that sign the instances' certificates, in PEM";

/// Restricts TLS to version 1.3, which every instance supports.
fn versions<S: rustls::ConfigSide>(
    builder: rustls::ConfigBuilder<S, rustls::WantsVersions>,
) -> rustls::ConfigBuilder<S, rustls::WantsVerifier> {
    builder.with_protocol_versions(&[&TLS13]).expect("the provider has TLS 1.3")
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("tls_ca", path, AUTHORITY)? {
        roots.add(certificate).map_err(|error| refused("tls_ca", path, &error, AUTHORITY))?;
    }
    Ok(roots)
}

fn certificates(
    argument: &'static str,
    path: &Path,
    expected: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| refused(argument, path, &error, expected))?;
    match found.is_empty() {
        true => Err(refused(argument, path, &"the file contains no certificate", expected)),
        false => Ok(found),
    }
}

fn refused(argument: &'static str, path: &Path, reason: &dyn std::fmt::Display, expected: &'static str) -> TlsError {
    TlsError::File { argument, path: path.into(), reason: reason.to_string(), expected }
}
