//! The HTTP server for everything that the harness serves: the coordinator, the operator's ports, the evidence agent.
//!
//! Its peers aren't trusted with this process's descriptors: there is a bound on connections, and one that sends no
//! complete request head in time is closed, so that unfinished requests can't block other peers. Bodies have their
//! bounds where routes read them.

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::sleep,
};

/// Most connections at a time; the kernel holds further ones until one of these ends. A run of 500 000 connections has
/// about 30 workers, and each has one or two.
pub const MOST_CONNECTIONS: usize = 1024;
/// Longest time for the head of a request, from its connection's start or the end of the request before.
pub const LONGEST_HEAD: Duration = Duration::from_secs(15);
/// Largest head of a request, in bytes.
const LARGEST_HEAD: usize = 64 << 10;
/// Pause after an error of `accept`, such as a lack of descriptors, which only the end of a connection ends.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves requests for the routes; ends only with the runtime.
pub async fn serve(listener: TcpListener, routes: Router) {
    serve_bounded(listener, routes, MOST_CONNECTIONS, LONGEST_HEAD).await;
}

async fn serve_bounded(listener: TcpListener, routes: Router, most: usize, longest_head: Duration) {
    let free = Arc::new(Semaphore::new(most));
    let service = TowerToHyperService::new(routes);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(longest_head).max_buf_size(LARGEST_HEAD);
    loop {
        let place = Arc::clone(&free).acquire_owned().await.expect("the semaphore is never closed");
        let stream = accept(&listener).await;
        let connection = builder.serve_connection(TokioIo::new(stream), service.clone());
        tokio::spawn(async move {
            // What goes wrong here is the peer's: it went away, or was too slow, or doesn't speak HTTP.
            let _ = connection.await;
            drop(place);
        });
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // A response must not wait for an acknowledgement; without this option it is only later.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) if is_of_one_peer(&error) => {}
            Err(_) => sleep(PAUSE).await,
        }
    }
}

fn is_of_one_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn started(most: usize, longest_head: Duration) -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new().route("/", get(|| async { "here" }));
        tokio::spawn(serve_bounded(listener, routes, most, longest_head));
        address
    }

    async fn response(address: SocketAddr) -> String {
        let mut peer = TcpStream::connect(address).await.unwrap();
        peer.write_all(b"GET / HTTP/1.1\r\nHost: it\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        peer.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn unfinished_requests_are_closed_and_do_not_block_other_peers() {
        let address = started(4, Duration::from_millis(50)).await;
        let mut unfinished = Vec::new();
        for head in ["", "G", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: it\r\n"].repeat(3) {
            let mut peer = TcpStream::connect(address).await.unwrap();
            peer.write_all(head.as_bytes()).await.unwrap();
            unfinished.push(peer);
        }
        assert!(response(address).await.ends_with("here"));
        for mut peer in unfinished {
            let mut rest = Vec::new();
            // A reset is an end, too.
            let _ = peer.read_to_end(&mut rest).await;
        }
    }

    #[tokio::test]
    async fn a_head_without_end_is_refused() {
        let address = started(4, Duration::from_secs(600)).await;
        let mut peer = TcpStream::connect(address).await.unwrap();
        peer.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let line = format!("X-Filler: {}\r\n", "x".repeat(1000));
        let mut sent = 0;
        while peer.write_all(line.as_bytes()).await.is_ok() {
            sent += line.len();
            assert!(sent < 64 << 20, "{sent} bytes of one head were taken");
        }
        assert!(response(address).await.ends_with("here"));
    }
}
