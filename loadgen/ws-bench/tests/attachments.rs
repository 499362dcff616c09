//! Messages of several frames, as Socket.IO's binary events: they are counted as one, in both directions. A server of another
//! project is in `presets/tests`.

mod service;

use std::{
    net::{TcpListener, TcpStream},
    thread,
};

use bench_format::{
    plan::{Arrivals, Load},
    result::WorkerResult,
};
use loadgen_core::trial::ImmediateGate;
use service::assignment;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};
use ws_bench::workloads::Workload;

const SECTION: &str = r#"
framing: socket-io
messages:
  - text: '452-{{sequence}}["message",{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]'
    attachments:
      - [{ text: '{{payload}}' }]
      - [{ text: 'n {{sequence}}' }]
reply: { by: sequence, when: { regex: '^461-' }, value: { regex: '^461-([0-9]+)\[' } }
"#;

/// A service that acknowledges each event with its last attachment.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let socket = socket.unwrap();
            // A client that disconnects ends only its own thread.
            thread::spawn(move || acknowledge(&mut tungstenite::accept(socket).unwrap()));
        }
    });
    address
}

fn acknowledge(socket: &mut WebSocket<TcpStream>) -> tungstenite::Result<()> {
    loop {
        let Message::Text(event) = socket.read()? else { continue };
        let number = event.strip_prefix("452-").unwrap().split_once('[').unwrap().0.to_owned();
        let Message::Binary(payload) = socket.read()? else { panic!("the first attachment is missing") };
        let Message::Binary(last) = socket.read()? else { panic!("the last attachment is missing") };
        assert!(payload.iter().all(u8::is_ascii_alphabetic));
        assert_eq!(&last[..], format!("n {number}").as_bytes());
        socket.send(Message::text(format!(r#"461-{number}[{{"_placeholder":true,"num":0}}]"#)))?;
        socket.send(Message::Binary(last))?;
    }
}

fn run(size_bytes: u32, load: Load) -> WorkerResult {
    let mut assignment = assignment(&serve(), "request-reply", 2, SECTION);
    if load.is_open() {
        assignment.window_ns = 500_000_000;
    }
    (assignment.message.size_bytes, assignment.load) = (size_bytes, load);
    Workload::RequestReply.run(&assignment, &mut ImmediateGate).unwrap()
}

#[test]
fn a_message_with_attachments_is_one_message_with_one_reply() {
    let result = run(40, Load::Open { rate_per_second: 400.0, arrivals: Arrivals::Constant });
    let counts = &result.messages;
    assert_eq!((counts.due, counts.sent, counts.delivered, counts.wrong), (200, 200, 200, 0), "{counts:?}");
    assert!(result.books.iter().all(|book| (book.sent, book.replies, book.unnumbered) == (100, 100, 0)));
}

#[test]
fn a_write_that_ends_between_two_frames_counts_the_message_when_its_last_one_is_written() {
    // More than a socket takes at once, so that writes end in every frame and between them.
    let result = run(300_000, Load::Closed { messages_per_connection: Some(10), in_flight: 2 });
    let counts = &result.messages;
    assert_eq!((counts.sent, counts.delivered, counts.wrong, counts.lost), (20, 20, 0, 0), "{counts:?}");
}
