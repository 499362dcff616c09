//! A WebSocket service for tests, with selectable behaviour. It speaks lines of text:
//!
//! - `hello` gets `welcome <token>`, and `join <token>` gets `joined`, or `denied` if the token is another one
//! - `m <number> …` is a message of the load
//! - the service sends `are you there` before its first reply and counts each `here`

// Each test file uses only some of this.
#![allow(dead_code, unreachable_pub)]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bench_format::{
    Name,
    plan::{Load, Message as PlanMessage},
    trial::{Assignment, TrialId},
    websocket::{WebsocketTask, WireWebsocket},
};
use futures_util::{SinkExt, StreamExt};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Error, Message,
        handshake::server::{Request, Response},
    },
};

/// A section whose opening captures a token, and whose replies have the number of their message.
pub const BY_SEQUENCE: &str = r"
open:
  - send: { text: hello }
  - expect:
      when: { starts_with: 'welcome ' }
      capture: { token: { regex: '^welcome (.+)$' } }
  - send: { text: 'join {{captured.token}}' }
  - expect: { when: { equals: joined }, refused: { equals: denied } }
messages:
  - text: 'm {{sequence}} {{payload}}'
reply:
  by: sequence
  when: { starts_with: 'r ' }
  error: { starts_with: 'e ' }
  value: { regex: '^[re] ([0-9]+)' }
respond:
  - when: { equals: are you there }
    send: { text: here }
close: { text: bye }
";
/// A section whose replies have parts.
pub const IN_PARTS: &str = r"
messages: [{ text: 'm {{sequence}}' }]
reply:
  by: sequence
  when: { starts_with: 'r ' }
  end: { starts_with: 'end ' }
  value: { regex: '^[a-z]+ ([0-9]+)' }
";

/// How the service behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Behaviour {
    /// Replies `r <number>` to each message.
    Correct,
    /// Sends each message back.
    Echo,
    /// Sends each message back with its last byte changed.
    ChangedEcho,
    /// Replies with another number.
    Wrong,
    /// Replies to each message twice.
    Twice,
    /// Replies to each pair of messages in the reverse order.
    OutOfOrder,
    /// Replies to no message.
    Silent,
    /// Replies after this time.
    Delayed(Duration),
    /// Reports an error for each message.
    Errors,
    /// Replies in three parts and an end, with this time before each.
    Parts(Duration),
    /// Replies `ok` without a number.
    Anonymous,
    /// Replies with the packet id of a binary message.
    PacketIds,
    /// Refuses every connection in its opening.
    Denies,
}

/// What the service received.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub paths: Vec<String>,
    pub headers: Vec<String>,
    pub messages: u64,
    pub joined: u64,
    pub responses: u64,
    pub byes: u64,
}

pub struct Service {
    pub address: String,
    seen: Arc<Mutex<Seen>>,
    _runtime: Runtime,
}

impl Service {
    pub fn start(behaviour: Behaviour) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Seen::default()));
        runtime.spawn(accept(listener, behaviour, Arc::clone(&seen)));
        Self { address, seen, _runtime: runtime }
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

async fn accept(listener: TcpListener, behaviour: Behaviour, seen: Arc<Mutex<Seen>>) {
    while let Ok((socket, _)) = listener.accept().await {
        let seen = Arc::clone(&seen);
        tokio::spawn(async move {
            // A client that disconnects ends only its own task.
            let _ = serve(socket, behaviour, seen).await;
        });
    }
}

#[expect(clippy::result_large_err, reason = "tungstenite's callback returns it")]
async fn serve(socket: TcpStream, behaviour: Behaviour, seen: Arc<Mutex<Seen>>) -> Result<(), Error> {
    socket.set_nodelay(true)?;
    let noted = Arc::clone(&seen);
    let note = move |request: &Request, mut response: Response| {
        let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let mut seen = noted.lock().unwrap();
        seen.paths.push(request.uri().to_string());
        seen.headers.extend(header("x-user"));
        if let Some(offered) = header("sec-websocket-protocol") {
            let first = offered.split(',').next().unwrap().parse().unwrap();
            response.headers_mut().insert("sec-websocket-protocol", first);
        }
        Ok(response)
    };
    let mut ws = accept_hdr_async(socket, note).await?;
    let mut held = None;
    while let Some(Ok(message)) = ws.next().await {
        match message {
            Message::Text(text) => serve_text(&mut ws, &text, behaviour, &seen, &mut held).await?,
            Message::Binary(bytes) if behaviour == Behaviour::PacketIds => {
                seen.lock().unwrap().messages += 1;
                ws.send(Message::binary([b'a', bytes[1], bytes[2]].to_vec())).await?;
            }
            Message::Binary(bytes) => ws.send(Message::Binary(bytes)).await?,
            _ => {}
        }
    }
    Ok(())
}

async fn serve_text(
    ws: &mut WebSocketStream<TcpStream>,
    text: &str,
    behaviour: Behaviour,
    seen: &Mutex<Seen>,
    held: &mut Option<String>,
) -> Result<(), Error> {
    match text.split_once(' ').unwrap_or((text, "")) {
        ("hello", _) => ws.send(Message::text("welcome t-4711")).await,
        ("join", "t-4711") if behaviour != Behaviour::Denies => {
            seen.lock().unwrap().joined += 1;
            ws.send(Message::text("joined")).await
        }
        ("join", _) => ws.send(Message::text("denied")).await,
        ("here", _) => {
            seen.lock().unwrap().responses += 1;
            Ok(())
        }
        ("bye", _) => {
            seen.lock().unwrap().byes += 1;
            Ok(())
        }
        ("m", rest) => {
            seen.lock().unwrap().messages += 1;
            let number = rest.split(' ').next().unwrap();
            if number == "0" && behaviour == Behaviour::Correct {
                ws.send(Message::text("are you there")).await?;
            }
            reply(ws, behaviour, text, number, held).await
        }
        _ => panic!("the service has no message {text:?}"),
    }
}

async fn reply(
    ws: &mut WebSocketStream<TcpStream>,
    behaviour: Behaviour,
    message: &str,
    number: &str,
    held: &mut Option<String>,
) -> Result<(), Error> {
    let correct = format!("r {number}");
    match behaviour {
        Behaviour::Correct => ws.send(Message::text(correct)).await,
        Behaviour::Echo => ws.send(Message::text(message)).await,
        Behaviour::ChangedEcho => {
            let changed = format!("{}!", &message[..message.len() - 1]);
            ws.send(Message::text(changed)).await
        }
        Behaviour::Wrong => ws.send(Message::text("r 77777")).await,
        Behaviour::Twice => {
            ws.send(Message::text(correct.clone())).await?;
            ws.send(Message::text(correct)).await
        }
        Behaviour::OutOfOrder => match held.take() {
            None => {
                *held = Some(correct);
                Ok(())
            }
            Some(before) => {
                ws.send(Message::text(correct)).await?;
                ws.send(Message::text(before)).await
            }
        },
        Behaviour::Delayed(delay) => {
            tokio::time::sleep(delay).await;
            ws.send(Message::text(correct)).await
        }
        Behaviour::Errors => ws.send(Message::text(format!("e {number}"))).await,
        Behaviour::Parts(pause) => {
            for part in 0..3 {
                tokio::time::sleep(pause).await;
                ws.send(Message::text(format!("r {number} token {part}"))).await?;
            }
            tokio::time::sleep(pause).await;
            ws.send(Message::text(format!("end {number}"))).await
        }
        Behaviour::Anonymous => ws.send(Message::text("ok")).await,
        _ => Ok(()),
    }
}

/// An assignment of one worker with a short window.
pub fn assignment(address: &str, workload: &str, connections: u32, section: &str) -> Assignment {
    let section: WireWebsocket = serde_saphyr::from_str(section).unwrap();
    Assignment {
        run: "test".into(),
        trial: TrialId {
            service: Name::from_static("test"),
            workload: workload.parse().unwrap(),
            variant: Name::from_static("standard"),
            tier: connections,
            process: 1,
            repeat: 1,
        },
        attempt: 1,
        worker: 0,
        workers: 1,
        address: address.into(),
        connections,
        first_connection: 0,
        seed: 7,
        load: Load::Closed { messages_per_connection: Some(5), in_flight: 8 },
        message: PlanMessage { size_bytes: 40, ..PlanMessage::default() },
        warmup_ns: 0,
        window_ns: 20_000_000_000,
        drain_ns: 1_000_000_000,
        late_after_ns: None,
        keep_connections: false,
        settings: Default::default(),
        websocket: Some(Box::new(WebsocketTask {
            path: "/ws".into(),
            tls_name: None,
            more_targets: vec![],
            printed_rows: None,
            section,
        })),
        samples: false,
        protocol_check: false,
    }
}
