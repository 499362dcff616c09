//! A Redis process on its own port, and a TCP proxy to it that can be closed.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::client::PATIENCE;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../.tools/redis/bin/redis-server");

/// A Redis process; it is killed on drop.
pub(crate) struct RedisServer {
    process: Child,
    port: u16,
    options: Vec<String>,
}

impl RedisServer {
    pub(crate) fn start(options: &[&str]) -> Self {
        assert!(Path::new(PROGRAM).exists(), "no Redis for tests: run tools/redis-env");
        let options: Vec<String> = options.iter().map(|&option| option.into()).collect();
        loop {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            // Another process may have taken the port meanwhile; then another port is tried.
            if let Some(process) = spawn(port, &options) {
                return Self { process, port, options };
            }
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Kills the process, as a crash would end it.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.process = spawn(self.port, &self.options).expect("the port is still free");
    }

    pub(crate) fn pause(&self) {
        let process = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
    }

    pub(crate) fn resume(&self) {
        let process = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
    }

    /// Sends one command. Returns the reply's line, or the content of a string reply.
    pub(crate) fn command(&self, arguments: &[&str]) -> String {
        command(self.address(), arguments).unwrap()
    }

    /// The number of channels with subscribers, and the number of subscribed patterns.
    pub(crate) fn interest(&self) -> (usize, usize) {
        let number = |reply: String| reply[1..].parse().unwrap();
        (number(self.command(&["PUBSUB", "CHANNELS"])), number(self.command(&["PUBSUB", "NUMPAT"])))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts Redis and waits until it replies. `None` if it ended instead.
fn spawn(port: u16, options: &[String]) -> Option<Child> {
    let mut process = Command::new(PROGRAM)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(options)
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while process.try_wait().unwrap().is_none() {
        if command(([127, 0, 0, 1], port).into(), &["PING"]).is_ok_and(|reply| reply == "+PONG") {
            return Some(process);
        }
        assert!(Instant::now() < deadline, "Redis does not reply");
        thread::sleep(Duration::from_millis(5));
    }
    None
}

fn command(address: SocketAddr, arguments: &[&str]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let parts: String = arguments.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    stream.write_all(format!("*{}\r\n{parts}", arguments.len()).as_bytes())?;
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line)?;
    if let Some(length) = line.strip_prefix('$') {
        let mut string = vec![0; length.trim().parse::<usize>().unwrap_or(0)];
        lines.read_exact(&mut string)?;
        return Ok(String::from_utf8(string).unwrap());
    }
    Ok(line.trim_end().to_owned())
}

/// A TCP proxy to a Redis that can hold back replies and close its connections.
pub(crate) struct RedisProxy {
    address: SocketAddr,
    connections: Arc<Mutex<Vec<Carried>>>,
    pub(crate) accepted: Arc<AtomicUsize>,
}

/// A proxied connection with both of its sockets.
struct Carried {
    sides: [TcpStream; 2],
    withholds: Arc<AtomicBool>,
}

impl RedisProxy {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy =
            Self { address: listener.local_addr().unwrap(), connections: Arc::default(), accepted: Arc::default() };
        let (connections, accepted) = (Arc::clone(&proxy.connections), Arc::clone(&proxy.accepted));
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                accepted.fetch_add(1, Ordering::SeqCst);
                let Ok(redis) = TcpStream::connect(server) else { continue };
                let withholds = Arc::new(AtomicBool::new(false));
                let sides = [client.try_clone().unwrap(), redis.try_clone().unwrap()];
                connections.lock().unwrap().push(Carried { sides, withholds: Arc::clone(&withholds) });
                carry(client.try_clone().unwrap(), redis.try_clone().unwrap(), Arc::default());
                carry(redis, client, withholds);
            }
        });
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Holds back all further replies on the open connections.
    pub(crate) fn withhold(&self) {
        let connections = self.connections.lock().unwrap();
        connections.iter().for_each(|connection| connection.withholds.store(true, Ordering::SeqCst));
    }

    /// Closes the open connections.
    pub(crate) fn cut(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            // A connection that ended by itself is closed already.
            connection.sides.iter().for_each(|end_marker| drop(end_marker.shutdown(Shutdown::Both)));
        }
    }

    /// The number of connections that were accepted since the last cut.
    pub(crate) fn connections(&self) -> usize {
        self.connections.lock().unwrap().len()
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, withholds: Arc<AtomicBool>) {
    thread::spawn(move || {
        let mut chunk = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut chunk) {
            if !withholds.load(Ordering::SeqCst) && to.write_all(&chunk[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
