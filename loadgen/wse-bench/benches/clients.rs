//! Compares our client with a usual one on tokio-tungstenite. Both flood a reader in this process that discards
//! everything. The difference is the cost of one flush and one reading of the clock for each message.
//!
//! Both send the trade update over as many connections on a single thread, for a fixed window. A flood has no count of
//! messages, so criterion gets the time that its count would have taken. Times are wall-clock times: give the reader a
//! CPU of its own.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant},
};

use bench_format::{
    plan::{Load, Message as PlanMessage},
    trial::{Assignment, TrialId},
};
use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use futures_util::SinkExt;
use loadgen_core::{connect::accept, trial::ImmediateGate};
use rustix::{
    buffer::spare_capacity,
    event::epoll,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use tokio::{net::TcpStream as TokioStream, runtime, task::JoinSet};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};
use wse_bench::{
    payload::{Format, WseMessages},
    protocol::Access,
    workloads::Workload,
};

const CONNECTIONS: u32 = 100;
/// Nominal size of a message, in bytes.
const SIZE: u32 = 175;
const SECRET: &str = "bench-secret-key-for-testing-only";
/// Duration of the flood of one sample.
const WINDOW: Duration = Duration::from_millis(200);
/// The message after each upgrade; only our client reads it.
const READY: &[u8] = br#"{"c":"WSE","p":{"details":{"connection_id":"bench"}},"t":"server_ready","v":1}"#;
/// Size of the read buffer, in bytes.
const READ_BUFFER: usize = 256 << 10;
/// epoll data of the listener; connections have their index.
const LISTENER: u64 = u64::MAX;

/// Starts the reader; returns its address.
fn start_reader() -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    thread::Builder::new().name("reader".into()).spawn(move || read_for_ever(&listener, &epoll))?;
    Ok(address)
}

fn read_for_ever(listener: &TcpListener, epoll: &OwnedFd) -> std::io::Result<()> {
    let mut sockets: Vec<Option<TcpStream>> = Vec::new();
    let mut buffer = vec![0; READ_BUFFER];
    loop {
        let mut events = Vec::with_capacity(256);
        epoll::wait(epoll, spare_capacity(&mut events), None)?;
        for event in events {
            let index = event.data.u64();
            if index == LISTENER {
                let (mut socket, _) = listener.accept()?;
                upgrade(&mut socket)?;
                let data = epoll::EventData::new_u64(sockets.len() as u64);
                epoll::add(epoll, &socket, data, epoll::EventFlags::IN)?;
                sockets.push(Some(socket));
                continue;
            }
            let slot = &mut sockets[index as usize];
            // The stream ended or failed: closing the socket also removes it from the epoll set.
            if slot.as_mut().is_some_and(|socket| !matches!(socket.read(&mut buffer), Ok(1..))) {
                *slot = None;
            }
        }
    }
}

/// Reads the request, sends the response, and sends the message that the connection is ready.
fn upgrade(socket: &mut TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut byte = [0];
    // Byte by byte, so that nothing after the request is read; this isn't measured.
    while !request.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&request);
    let key = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("sec-websocket-key").then_some(value)
    });
    let accept = accept(key.unwrap_or_default());
    let response = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    socket.write_all(&[response.as_bytes(), &[0x81, READY.len() as u8], READY].concat())
}

/// Average nanoseconds per message of our client over a window.
fn ours(address: &str, coalesce: u32) -> f64 {
    let assignment = Assignment {
        run: "bench".into(),
        trial: TrialId {
            service: bench_format::Name::from_static("reader"),
            workload: bench_format::Name::from_static(Workload::Throughput.name()),
            variant: bench_format::Name::from_static("bench"),
            tier: CONNECTIONS,
            process: 1,
            repeat: 1,
        },
        attempt: 1,
        worker: 0,
        workers: 1,
        address: address.into(),
        connections: CONNECTIONS,
        first_connection: 0,
        seed: 1,
        load: Load::Closed { messages_per_connection: None, in_flight: 64 },
        message: PlanMessage { format: "json".into(), size_bytes: SIZE, coalesce, shapes: 1 },
        warmup_ns: 0,
        window_ns: WINDOW.as_nanos() as u64,
        // The reader doesn't answer Close frames.
        drain_ns: 0,
        late_after_ns: None,
        keep_connections: false,
        settings: Default::default(),
        websocket: None,
        samples: false,
        protocol_check: false,
    };
    let access = Access { secret: SECRET.into(), source_addresses: Vec::new() };
    let result =
        Workload::Throughput.run(&assignment, &access, &mut ImmediateGate).expect("the reader takes everything");
    result.window.duration_ns as f64 / result.window.sent as f64
}

/// Average nanoseconds per message of the usual client: as many connections, a task for each on one thread.
fn plain(address: &str) -> f64 {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("the kernel gives a runtime");
    let (elapsed, sent) = runtime.block_on(async {
        let mut sockets = Vec::new();
        for _ in 0..CONNECTIONS {
            sockets.push(connect(address).await);
        }
        let started = Instant::now();
        let mut tasks: JoinSet<u64> = sockets.into_iter().map(|socket| flood(socket, started + WINDOW)).collect();
        let mut sent = 0;
        while let Some(count) = tasks.join_next().await {
            sent += count.expect("no task panics");
        }
        (started.elapsed(), sent)
    });
    elapsed.as_nanos() as f64 / sent as f64
}

async fn connect(address: &str) -> WebSocketStream<TokioStream> {
    let socket = TokioStream::connect(address).await.expect("the reader listens");
    socket.set_nodelay(true).expect("it is a TCP socket");
    let (socket, _) = client_async(format!("ws://{address}/wse"), socket).await.expect("the reader upgrades");
    socket
}

/// Sends messages one by one until a moment: flushes after each, and reads the clock before each.
async fn flood(mut socket: WebSocketStream<TokioStream>, until: Instant) -> u64 {
    let mut trades = WseMessages::trade(Format::Json, SIZE as usize);
    let text = String::from_utf8(trades.payload(100_000_000, 0).to_vec()).expect("JSON is text");
    let message = Message::text(text);
    let mut sent = 0;
    while Instant::now() < until {
        socket.send(message.clone()).await.expect("the reader takes everything");
        sent += 1;
    }
    sent
}

/// Pins this thread to the nth CPU that the process may use; the reader has the first, the client the second if there
/// is one.
fn pin(nth: usize) {
    let allowed = sched_getaffinity(None).expect("every process has CPUs");
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let mut set = CpuSet::new();
    set.set(cpus[nth % cpus.len()]);
    sched_setaffinity(None, &set).expect("it is one of ours");
}

fn clients(criterion: &mut Criterion) {
    // A new thread inherits the CPUs of the thread that starts it.
    let all = sched_getaffinity(None).expect("every process has CPUs");
    pin(0);
    let address = start_reader().expect("loopback has a port");
    sched_setaffinity(None, &all).expect("they were ours before");
    pin(1);
    let mut group = criterion.benchmark_group("flood a reader, a message of 175 bytes");
    group.throughput(Throughput::Elements(1)).sampling_mode(SamplingMode::Flat).sample_size(10);
    group.warm_up_time(WINDOW).measurement_time(20 * WINDOW);
    let mut bench = |name: &str, measure: &dyn Fn() -> f64| {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|count| Duration::from_secs_f64(measure() * count as f64 / 1e9));
        });
    };
    bench("tokio-tungstenite, 1 per write", &|| plain(&address));
    bench("ours, 1 per write", &|| ours(&address, 1));
    bench("ours, 64 per write", &|| ours(&address, 64));
    group.finish();
}

criterion_group!(benches, clients);
criterion_main!(benches);
