//! Services with TLS: who is believed, who is not, and messages that don't fit into the socket at once.

#[path = "service/mod.rs"]
mod service;

use std::{path::Path, sync::Arc};

use bench_format::{
    plan::{Load, Message as PlanMessage},
    result::WorkerResult,
    trial::Assignment,
    websocket::{Tls, WebsocketTarget, WireWebsocket},
};
use futures_util::{SinkExt, StreamExt};
use loadgen_core::trial::ImmediateGate;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tempfile::TempDir;
use tokio::{net::TcpListener, runtime::Runtime};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::accept_async;
use ws_bench::workloads::Workload;

const SECTION: &str = "messages: [{ text: 'm {{sequence}} {{payload}}' }]\nreply: { by: same }";

/// An authority with the certificates of a service and of a client, as files.
struct Certificates {
    folder: TempDir,
    authority: String,
    service: (String, String),
}

impl Certificates {
    fn issue() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut of_authority = CertificateParams::new(vec![]).unwrap();
        of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(of_authority, KeyPair::generate().unwrap()).unwrap();
        let certify = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
        };
        let (client, client_key) = certify("ladder");
        let authority = issuer.pem();
        for (name, text) in [("ca.pem", &authority), ("client.pem", &client), ("client.key", &client_key)] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self { authority, service: certify("localhost"), folder }
    }

    fn path(&self, name: &str) -> Option<String> {
        Some(Path::new(self.folder.path()).join(name).to_str().unwrap().to_owned())
    }
}

/// A service that sends back what it gets, over TLS.
struct Echo {
    address: String,
    _runtime: Runtime,
}

impl Echo {
    fn start(certificates: &Certificates, needs_client: bool) -> Self {
        let pem = |text: &str| rustls::pki_types::CertificateDer::from_pem_slice(text.as_bytes()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let mut roots = RootCertStore::empty();
        roots.add(pem(&certificates.authority)).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let builder = match needs_client {
            true => builder.unwrap().with_client_cert_verifier(verifier),
            false => builder.unwrap().with_no_client_auth(),
        };
        let (certificate, key) = &certificates.service;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(builder.with_single_cert(vec![pem(certificate)], key).unwrap()));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(encrypted) = acceptor.accept(socket).await else { return };
                    let Ok(mut ws) = accept_async(encrypted).await else { return };
                    while let Some(Ok(message)) = ws.next().await {
                        if (message.is_text() || message.is_binary()) && ws.send(message).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, _runtime: runtime }
    }
}

fn assignment(service: &Echo, workload: &str, tls: Tls) -> Assignment {
    let mut assignment = service::assignment(&service.address, workload, 3, SECTION);
    let task = assignment.websocket.as_mut().unwrap();
    task.tls_name = Some("localhost".into());
    let section: &mut WireWebsocket = &mut task.section;
    section.connect.tls = Some(tls);
    assignment
}

fn run(assignment: &Assignment) -> anyhow::Result<WorkerResult> {
    Workload::find(&assignment.trial.workload).unwrap().run(assignment, &mut ImmediateGate)
}

#[test]
fn a_service_with_the_certificate_of_a_known_authority_is_loaded() {
    let certificates = Certificates::issue();
    let service = Echo::start(&certificates, false);
    let known = Tls { ca: certificates.path("ca.pem"), ..Tls::default() };
    let result = run(&assignment(&service, "request-reply", known)).unwrap();
    assert_eq!((result.messages.sent, result.messages.delivered), (15, 15));
    let closed = run(&assignment(&service, "connection-storm", Tls { insecure: true, ..Tls::default() })).unwrap();
    assert_eq!((closed.connections.open, closed.connections.closed_early.len()), (3, 0));
}

#[test]
fn each_address_of_a_service_is_held_to_its_own_name() {
    let certificates = Certificates::issue();
    let services = [Echo::start(&certificates, false), Echo::start(&certificates, false)];
    let with_name = |name: &str| {
        let known = Tls { ca: certificates.path("ca.pem"), ..Tls::default() };
        let mut assignment = assignment(&services[0], "connection-storm", known);
        let address = services[1].address.clone();
        assignment.websocket.as_mut().unwrap().more_targets =
            vec![WebsocketTarget { address, path: "/ws".into(), tls_name: Some(name.into()) }];
        run(&assignment).unwrap().connections
    };
    assert_eq!(with_name("localhost").open, 3);
    let connections = with_name("other.example");
    assert_eq!((connections.open, connections.failed["tls"]), (2, 1), "{connections:?}");
}

#[test]
fn a_service_that_nothing_vouches_for_is_not_loaded() {
    let certificates = Certificates::issue();
    let service = Echo::start(&certificates, false);
    let other_authority = Certificates::issue();
    let known = |tls| run(&assignment(&service, "connection-storm", tls)).unwrap().connections;
    for tls in [
        Tls { ca: other_authority.path("ca.pem"), ..Tls::default() },
        Tls { ca: certificates.path("ca.pem"), server_name: Some("example.org".into()), ..Tls::default() },
    ] {
        let connections = known(tls.clone());
        assert_eq!((connections.open, connections.failed.get("tls")), (0, Some(&3)), "{tls:?}: {connections:?}");
    }
    assert_eq!(known(Tls { insecure: true, server_name: Some("example.org".into()), ..Tls::default() }).open, 3);
}

#[test]
fn a_client_certificate_is_presented_if_the_plan_has_one() {
    let certificates = Certificates::issue();
    let service = Echo::start(&certificates, true);
    let without = Tls { ca: certificates.path("ca.pem"), ..Tls::default() };
    let with =
        Tls { certificate: certificates.path("client.pem"), key: certificates.path("client.key"), ..without.clone() };
    assert_eq!(run(&assignment(&service, "request-reply", with)).unwrap().messages.delivered, 15);
    assert_eq!(run(&assignment(&service, "connection-storm", without)).unwrap().connections.open, 0);
}

#[test]
fn messages_that_do_not_fit_into_the_socket_are_counted_once() {
    let certificates = Certificates::issue();
    let service = Echo::start(&certificates, false);
    let known = Tls { ca: certificates.path("ca.pem"), ..Tls::default() };
    let large = Assignment {
        load: Load::Open { rate_per_second: 60.0, arrivals: Default::default() },
        message: PlanMessage { size_bytes: 300_000, ..PlanMessage::default() },
        window_ns: 1_000_000_000,
        drain_ns: 60_000_000_000,
        ..assignment(&service, "request-reply", known)
    };
    let result = run(&large).unwrap();
    let counts = &result.messages;
    assert_eq!((counts.sent, counts.delivered, counts.wrong, counts.lost, counts.unsent), (60, 60, 0, 0, 0));
}

#[test]
fn files_that_are_no_certificates_are_mistakes_with_their_place() {
    let mut section: WireWebsocket = serde_saphyr::from_str(SECTION).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let service = serde_saphyr::from_str("{ url: 'wss://localhost:1/', version: '1' }").unwrap();
    section.services.insert("echo".into(), service);
    let mut mistakes = |tls| {
        section.connect.tls = Some(tls);
        ws_bench::check(&section)
    };
    let missing = mistakes(Tls { ca: Some("/no/such.pem".into()), ..Tls::default() });
    assert!(missing[0].0 == "connect.tls.ca" && missing[0].1.contains("failed to read /no/such.pem"), "{missing:?}");
    let nothing = mistakes(Tls { ca: empty.to_str().map(str::to_owned), ..Tls::default() });
    assert!(nothing[0].1.contains("has no certificate"), "{nothing:?}");
    let half = mistakes(Tls { key: Some("x".into()), insecure: true, ..Tls::default() });
    assert!(half[0].0 == "connect.tls" && half[0].1.contains("give both"), "{half:?}");
}
