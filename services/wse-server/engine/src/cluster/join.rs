//! How a connection becomes a link: TLS if configured, a hello from each side, and admission by the mesh. The callers
//! limit its time, and it takes little memory.

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
    link,
    mesh::Mesh,
    peer::{Link, Side},
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
        None => handshake_as_dialer(mesh, address, remote, stream).await,
        Some(tls) => {
            let stream = tls.connect(address, stream).await.map_err(Refused::tls)?;
            handshake_as_dialer(mesh, address, remote, stream).await
        }
    }
}

/// Exchanges hellos as the dialler, which sends its hello first.
async fn handshake_as_dialer<S>(
    mesh: &Arc<Mesh>,
    address: &str,
    remote: SocketAddr,
    mut stream: S,
) -> Result<Link, Refused>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    stream.write_all(&mesh.hello(0)).await.map_err(Refused::lost)?;
    stream.flush().await.map_err(Refused::lost)?;
    let hello = read_hello(&mut stream).await?;
    if hello.capabilities & REFUSED != 0 {
        let reason = mesh.refusal_reason(&hello, address);
        return Err(Refused::new(reason, reason.label()));
    }
    enter(mesh, &hello, Side::Ours, remote, Some(address), stream, Bytes::new())
        .map_err(|(reason, _)| Refused::new(reason, reason.label()))
}

/// Turns a connection that another instance dialled into a link.
pub(super) async fn accepted(mesh: &Arc<Mesh>, stream: TcpStream) -> Result<(), Refused> {
    let remote = prepare(&stream).map_err(Refused::lost)?;
    match mesh.tls() {
        None => handshake_as_listener(mesh, remote, stream).await,
        Some(tls) => {
            let stream = tls.accept(stream).await.map_err(Refused::tls)?;
            handshake_as_listener(mesh, remote, stream).await
        }
    }
}

async fn handshake_as_listener<S>(mesh: &Arc<Mesh>, remote: SocketAddr, mut stream: S) -> Result<(), Refused>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let hello = read_hello(&mut stream).await?;
    let Err((reason, mut stream)) = enter(mesh, &hello, Side::Theirs, remote, None, stream, mesh.hello(0)) else {
        return Ok(());
    };
    if matches!(reason, RefuseReason::Itself | RefuseReason::Duplicate | RefuseReason::Order) {
        // The reply tells the dialler with which instance it has a link already.
        let with_reason = hello.capabilities & NUMBERS != 0;
        stream.write_all(&mesh.hello(if with_reason { REFUSED } else { 0 })).await.map_err(Refused::lost)?;
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
    side: Side,
    remote: SocketAddr,
    address: Option<&str>,
    stream: S,
    first: Bytes,
) -> Result<Link, (RefuseReason, S)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match mesh.admit(hello, side, remote, address) {
        Err(reason) => Err((reason, stream)),
        Ok((peer, link)) => {
            mesh.tasks.spawn(link::serve(Arc::clone(mesh), peer, link.clone(), stream, first));
            Ok(link)
        }
    }
}

async fn read_hello<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Hello, Refused> {
    let mut bytes = [0; LENGTH + hello::LONGEST];
    stream.read_exact(&mut bytes[..LENGTH]).await.map_err(Refused::lost)?;
    let first = *bytes.first_chunk::<LENGTH>().expect("it is longer");
    if TLS_RECORDS.contains(&first[0]) && first[1] == 3 {
        return Err(Refused::new(RefuseReason::Tls, "the peer uses TLS, but this instance's links don't"));
    }
    let end = LENGTH + hello::length(first)?;
    stream.read_exact(&mut bytes[LENGTH..end]).await.map_err(Refused::lost)?;
    match frame::parse(&bytes[..end]) {
        Ok(Some((frame, _))) => Ok(Hello::parse(&frame)?),
        Ok(None) | Err(_) => Err(HelloError::Other.into()),
    }
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
