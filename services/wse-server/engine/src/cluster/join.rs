//! How a connection becomes a link: TLS if configured, a hello from each side, a proof from each side if there is a
//! secret, and admission by the mesh. The callers limit its time, and it takes little memory.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    counters::RefuseReason,
    frame::{self, LENGTH},
    hello::{self, Hello, HelloError, NUMBERS, REFUSED},
    identity::Identity,
    link,
    mesh::Mesh,
    peer::{Link, Origin, Side},
    secret::{Hellos, Prover, Verdict},
};

/// The first byte of a TLS record: a handshake, or an alert.
const TLS_RECORDS: [u8; 2] = [0x16, 0x15];
/// The send buffer of a link's socket, in bytes: beyond it a slow peer becomes visible.
const SEND_BUFFER_BYTES: usize = 256 << 10;

/// Why a connection did not become a link.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) reason: RefuseReason,
    pub(super) detail: String,
}

impl Refused {
    pub(super) fn new(reason: RefuseReason, detail: impl ToString) -> Self {
        Self { reason, detail: detail.to_string() }
    }

    fn lost(error: std::io::Error) -> Self {
        Self::new(RefuseReason::Lost, error)
    }

    fn tls(error: std::io::Error) -> Self {
        Self::new(RefuseReason::Tls, format!("TLS failed: {error}"))
    }
}

impl From<HelloError> for Refused {
    fn from(error: HelloError) -> Self {
        let reason = match error {
            HelloError::Version(_) => RefuseReason::Version,
            HelloError::Other | HelloError::Name => RefuseReason::Hello,
        };
        Self::new(reason, error)
    }
}

/// Turns a connection that this instance dialled into a link.
pub(super) async fn dialled(mesh: &Arc<Mesh>, address: &str, stream: TcpStream) -> Result<Link, Refused> {
    let remote = prepare(&stream).map_err(Refused::lost)?;
    match mesh.tls() {
        None => handshake_as_dialer(mesh, address, Origin { side: Side::Ours, remote, identity: None }, stream).await,
        Some(tls) => {
            let stream = tls.connect(address, stream).await.map_err(Refused::tls)?;
            let identity = Identity::of(&stream).map(Arc::new);
            handshake_as_dialer(mesh, address, Origin { side: Side::Ours, remote, identity }, stream).await
        }
    }
}

/// Exchanges hellos as the dialler, which sends its hello and its proof first.
async fn handshake_as_dialer<S>(mesh: &Arc<Mesh>, address: &str, origin: Origin, mut stream: S) -> Result<Link, Refused>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let own = mesh.hello(0);
    send(&mut stream, &own.encode()).await?;
    let hello = read_hello(&mut stream).await?;
    check_secret(mesh, &hello)?;
    let mut is_refused = hello.capabilities & REFUSED != 0;
    if let Some(secret) = &mesh.config.secret {
        let hellos = Hellos { dialler: &own, acceptor: &hello };
        send(&mut stream, &secret.prove(hellos, Prover::Dialler, Verdict::Linked)).await?;
        is_refused = read_proof(mesh, &mut stream, hellos, Side::Ours).await? == Verdict::Refused;
    }
    if is_refused {
        let reason = mesh.refusal_reason(&hello, address);
        return Err(Refused::new(reason, reason.label()));
    }
    enter(mesh, &hello, origin, Some(address), stream, Bytes::new())
        .map_err(|(reason, _)| Refused::new(reason, reason.label()))
}

/// Checks that both sides have a secret, or neither has one.
fn check_secret(mesh: &Mesh, hello: &Hello) -> Result<(), Refused> {
    match (&mesh.config.secret, hello.nonce) {
        (Some(_), Some(_)) | (None, None) => Ok(()),
        (Some(_), None) => Err(Refused::new(RefuseReason::Secret, "it has no cluster_secret, this instance has one")),
        (None, Some(_)) => Err(Refused::new(RefuseReason::Secret, "it has a cluster_secret, this instance has none")),
    }
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> Result<(), Refused> {
    stream.write_all(bytes).await.map_err(Refused::lost)?;
    stream.flush().await.map_err(Refused::lost)
}

/// Turns a connection that another instance dialled into a link.
pub(super) async fn accepted(mesh: &Arc<Mesh>, stream: TcpStream) -> Result<(), Refused> {
    let remote = prepare(&stream).map_err(Refused::lost)?;
    match mesh.tls() {
        None => handshake_as_listener(mesh, Origin { side: Side::Theirs, remote, identity: None }, stream).await,
        Some(tls) => {
            let stream = tls.accept(stream).await.map_err(Refused::tls)?;
            let identity = Identity::of(&stream).map(Arc::new);
            handshake_as_listener(mesh, Origin { side: Side::Theirs, remote, identity }, stream).await
        }
    }
}

async fn handshake_as_listener<S>(mesh: &Arc<Mesh>, origin: Origin, mut stream: S) -> Result<(), Refused>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let hello = read_hello(&mut stream).await?;
    check_secret(mesh, &hello)?;
    let own = mesh.hello(0);
    let hellos = Hellos { dialler: &hello, acceptor: &own };
    let linked = match &mesh.config.secret {
        None => own.encode(),
        Some(secret) => {
            send(&mut stream, &own.encode()).await?;
            read_proof(mesh, &mut stream, hellos, Side::Theirs).await?;
            secret.prove(hellos, Prover::Acceptor, Verdict::Linked)
        }
    };
    let Err((reason, mut stream)) = enter(mesh, &hello, origin, None, stream, linked) else {
        return Ok(());
    };
    if matches!(reason, RefuseReason::Itself | RefuseReason::Duplicate | RefuseReason::Order) {
        // The reply tells the dialler with which instance it has a link already.
        let with_reason = if hello.capabilities & NUMBERS != 0 { REFUSED } else { 0 };
        let refused = match &mesh.config.secret {
            None => mesh.hello(with_reason).encode(),
            Some(secret) => secret.prove(hellos, Prover::Acceptor, Verdict::Refused),
        };
        send(&mut stream, &refused).await?;
        stream.shutdown().await.map_err(Refused::lost)?;
    }
    Err(Refused::new(reason, reason.label()))
}

/// Asks the mesh to admit the link, and starts to serve it.
///
/// # Errors
/// Returns the stream and the reason if the mesh refuses.
fn enter<S>(
    mesh: &Arc<Mesh>,
    hello: &Hello,
    origin: Origin,
    address: Option<&str>,
    stream: S,
    first: Bytes,
) -> Result<Link, (RefuseReason, S)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match mesh.admit(hello, origin, address) {
        Err(reason) => Err((reason, stream)),
        Ok((peer, link)) => {
            mesh.tasks.spawn(link::serve(Arc::clone(mesh), peer, link.clone(), stream, first));
            Ok(link)
        }
    }
}

async fn read_hello<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Hello, Refused> {
    let mut bytes = [0; LENGTH + hello::LONGEST];
    let end = read_frame(stream, &mut bytes).await?;
    match frame::parse(&bytes[..end]) {
        Ok(Some((frame, _))) => Ok(Hello::parse(&frame)?),
        Ok(None) | Err(_) => Err(HelloError::Other.into()),
    }
}

/// Reads the proof of the peer of a connection that `side` dialled.
async fn read_proof<S: AsyncRead + Unpin>(
    mesh: &Mesh,
    stream: &mut S,
    hellos: Hellos<'_>,
    side: Side,
) -> Result<Verdict, Refused> {
    let wrong = || Refused::new(RefuseReason::Secret, "it has another cluster_secret");
    let mut bytes = [0; LENGTH + hello::LONGEST];
    // A peer that doesn't accept our proof closes the connection.
    let end = match (read_frame(stream, &mut bytes).await, side) {
        (Err(Refused { reason: RefuseReason::Lost, .. }), Side::Ours) => return Err(wrong()),
        (end, _) => end?,
    };
    let secret = mesh.config.secret.as_ref().ok_or_else(wrong)?;
    let proof = frame::parse(&bytes[..end]).ok().flatten();
    proof.and_then(|(frame, _)| secret.verify(hellos, Prover::of_peer(side), &frame)).ok_or_else(wrong)
}

/// Reads one frame before there is a link. Returns where it ends in `bytes`.
async fn read_frame<S: AsyncRead + Unpin>(
    stream: &mut S,
    bytes: &mut [u8; LENGTH + hello::LONGEST],
) -> Result<usize, Refused> {
    stream.read_exact(&mut bytes[..LENGTH]).await.map_err(Refused::lost)?;
    let first = *bytes.first_chunk::<LENGTH>().expect("it is longer");
    if TLS_RECORDS.contains(&first[0]) && first[1] == 3 {
        return Err(Refused::new(RefuseReason::Tls, "the peer uses TLS, but this instance's links don't"));
    }
    let end = LENGTH + hello::length(first)?;
    stream.read_exact(&mut bytes[LENGTH..end]).await.map_err(Refused::lost)?;
    Ok(end)
}

/// Sets a connection's socket options. Returns the address of the other side.
fn prepare(stream: &TcpStream) -> std::io::Result<SocketAddr> {
    let keepalive = TcpKeepalive::new().with_time(std::time::Duration::from_secs(10));
    let keepalive = keepalive.with_interval(std::time::Duration::from_secs(5));
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    stream.peer_addr()
}
