//! A process without free descriptors. A file of its own, because the limit holds for the whole process.

mod client;

use std::{
    fs::File,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use client::{config, start, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wse_engine::Config;

#[test]
fn the_metrics_port_answers_while_and_after_the_process_is_out_of_descriptors() {
    let limit = Rlimit { current: Some(300), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let server = start(Config { metrics: Some((Ipv4Addr::LOCALHOST.into(), 0)), ..config() });
    let metrics = server.metrics_address().unwrap();
    // The application has taken all descriptors but the one that the reader in this process needs.
    let mut files = exhausted();
    files.pop();
    until("answering", || answers(metrics).unwrap_or(false));
    drop(files);

    // Connections that come, send nothing and go again, until the process has no descriptors left several times.
    for _ in 0..5 {
        let mut idle = Vec::new();
        while let Ok(stream) = TcpStream::connect(metrics) {
            idle.push(stream);
            if idle.len() == 400 {
                break;
            }
        }
    }
    until("answering", || answers(metrics).unwrap_or(false));
    assert!(server.is_ready());
}

/// Whether the port answers soon. The kernel may have dropped this connection's beginning, as its queue was full.
fn answers(metrics: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(metrics)?;
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    Ok(&head == b"HTTP/1.1 200")
}

/// Opens files until no descriptor is left.
fn exhausted() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}
