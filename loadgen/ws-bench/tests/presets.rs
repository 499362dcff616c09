//! The presets against the frames of their protocols (`tests/golden/*.txt`): what is sent and what is received, byte by
//! byte.
//!
//! A line of a golden file is one step; `<RS>`, `<NUL>`, `<LF>` and `<CRLF>` stand for these bytes, `#` begins a comment:
//!
//! ```text
//! C TEXT    the client sends this next        CX HEX    the same as a binary message
//! S TEXT    the service sends this            SX HEX    the same as a binary message
//! M N       the load sends message N          KEEPALIVE, CLOSE    what idle connections send, and closing ones
//! R WHAT    what the client made of the service's last message: ready, refused, or for each answer
//!           `last N`, `part N`, `error N`, `last oldest`, `last #ID`, `wrong`; `none` for no answer;
//!           `published N after DUE` for a publication, whose due time is <DUE> plus DUE microseconds
//! MESSAGES  the load sends these messages instead of the preset's: the rest of the line, in YAML
//! FANOUT    the connection receives what another one publishes, which is the messages of the load here
//! ```

use std::{collections::VecDeque, fs, path::PathBuf};

use bench_format::websocket::WireWebsocket;
use loadgen_core::workload::{Admission, AnswerPart, AnswerTo, Delivery, Messages, Opcode, Outbox, Received, Workload};
use ws_bench::{
    check,
    messages::SectionMessages,
    protocol::{Use, Websocket},
    section::{Section, Trial},
    state::Connection,
};

const DUE_US: u64 = 1_700_000_000_000_000;
/// Index of the connection in golden files.
const CONNECTION: u32 = 12;
const PAYLOAD_BYTES: usize = 5;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn presets() -> Vec<(String, WireWebsocket)> {
    let mut presets = Vec::new();
    for entry in fs::read_dir(root().join("presets")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        presets.push((name.clone(), serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))));
    }
    presets.sort_by(|a, b| a.0.cmp(&b.0));
    presets
}

/// A client with one connection that plays a golden file.
struct Player {
    client: Websocket,
    messages: SectionMessages,
    connection: Connection,
    outbox: Outbox,
    sent: VecDeque<(Opcode, Vec<u8>)>,
    received: Vec<String>,
    is_ready: bool,
}

impl Player {
    fn new(preset: &WireWebsocket, purpose: Use) -> Self {
        let trial = Trial {
            path: ("/", "path"),
            tls_name: None,
            more_targets: &[],
            printed_rows: None,
            seed: 7,
            worker: 3,
            payload_bytes: PAYLOAD_BYTES,
        };
        let section = Section::compile(preset, &trial).unwrap();
        let client = Websocket::new(section, purpose);
        let messages = client.messages();
        let (connection, outbox) = (Connection::default(), Outbox::default());
        let mut player =
            Self { client, messages, connection, outbox, sent: VecDeque::new(), received: Vec::new(), is_ready: false };
        let admission = player.client.begin(&mut player.connection, CONNECTION, &mut player.outbox);
        player.admitted(admission);
        player
    }

    fn admitted(&mut self, admission: Admission) {
        self.sent.extend(self.outbox.take());
        match admission {
            Admission::Waiting | Admission::Timed { .. } => {}
            Admission::Ready { .. } => {
                self.is_ready = true;
                self.received.push("ready".into());
            }
            Admission::Refused(reason) => self.received.push(format!("refused {reason}")),
        }
    }

    fn service_sends(&mut self, opcode: Opcode, payload: &[u8]) {
        assert_eq!(self.received, [""; 0], "received before, and not in the golden file");
        if !self.is_ready {
            let admission = self.client.admit(&mut self.connection, opcode, payload, &mut self.outbox);
            return self.admitted(admission);
        }
        let mut received = Vec::new();
        self.client.receive(&mut self.connection, opcode, payload, &mut self.outbox, &mut received);
        self.sent.extend(self.outbox.take());
        // In a fan-out all that isn't a publication is none of its business.
        received.retain(|one| *one != Received::Published(Delivery::Other));
        self.received.extend(received.iter().map(described));
    }

    fn expect_sent(&mut self, opcode: Opcode, payload: &[u8]) {
        let (sent_opcode, sent) = self.sent.pop_front().expect("nothing is sent");
        // Random text is the generator's own; the frames write it as <PAYLOAD>.
        let expected = with_payload(payload, &sent);
        assert_eq!(sent.escape_ascii().to_string(), expected.escape_ascii().to_string());
        assert_eq!(sent_opcode, opcode);
    }

    fn play(&mut self, step: &str) {
        let (kind, rest) = step.split_once(' ').unwrap_or((step, ""));
        match kind {
            "C" => self.expect_sent(Opcode::Text, &unescaped(rest)),
            "CX" => self.expect_sent(Opcode::Binary, &bytes(rest)),
            "S" => self.service_sends(Opcode::Text, &unescaped(rest)),
            "SX" => self.service_sends(Opcode::Binary, &bytes(rest)),
            "M" => {
                let sequence = rest.parse().unwrap();
                let (opcode, payload) = self.messages.message(&self.connection, sequence, DUE_US + sequence);
                self.sent.push_back((opcode, payload.to_vec()));
                for nth in 1..self.client.frames_per_message() {
                    let nth = usize::from(nth - 1);
                    let attachment = self.messages.attachment(&self.connection, sequence, DUE_US + sequence, nth);
                    self.sent.push_back((Opcode::Binary, attachment.to_vec()));
                }
            }
            "KEEPALIVE" => self.sent.extend(self.client.keepalive().map(|(opcode, bytes)| (opcode, bytes.to_vec()))),
            "CLOSE" => self.sent.extend(self.client.farewell().map(|(opcode, bytes)| (opcode, bytes.to_vec()))),
            "R" if rest == "none" => assert_eq!(self.received, [""; 0]),
            "R" => assert_eq!(self.received.drain(..).collect::<Vec<_>>().join(", "), rest),
            _ => panic!("no step has the name {kind:?}"),
        }
    }
}

fn described(received: &Received) -> String {
    match received {
        Received::Answer { to, part } => {
            let part = match part {
                AnswerPart::More => "part",
                AnswerPart::Last => "last",
                AnswerPart::Error => "error",
            };
            match to {
                AnswerTo::Sequence(sequence) => format!("{part} {sequence}"),
                AnswerTo::Modulo { remainder, modulus } => {
                    assert_eq!(*modulus, 65_535);
                    format!("{part} #{}", remainder + 1)
                }
                AnswerTo::Oldest => format!("{part} oldest"),
            }
        }
        Received::Wrong => "wrong".into(),
        Received::Published(Delivery::Published { sequence, due_unix_us }) => {
            format!("published {sequence} after {}", due_unix_us - DUE_US)
        }
        Received::Published(Delivery::Wrong) => "published without a number".into(),
        other => format!("{other:?}"),
    }
}

fn unescaped(text: &str) -> Vec<u8> {
    let text = text.replace("<DUE>", &DUE_US.to_string());
    let text = text.replace("<CRLF>", "\r\n").replace("<LF>", "\n").replace("<RS>", "\x1e").replace("<NUL>", "\0");
    text.into_bytes()
}

/// Bytes in hexadecimal digits; `<PAYLOAD>` stays as it is.
fn bytes(digits: &str) -> Vec<u8> {
    match digits.split_once("<PAYLOAD>") {
        Some((before, "")) => [&ws_bench::hex::decode(before).unwrap()[..], b"<PAYLOAD>"].concat(),
        _ => ws_bench::hex::decode(digits).unwrap(),
    }
}

/// The expected bytes with the payload that was sent, which must be random text.
fn with_payload(expected: &[u8], sent: &[u8]) -> Vec<u8> {
    let mark = b"<PAYLOAD>";
    let Some(at) = expected.windows(mark.len()).position(|window| window == mark) else { return expected.to_vec() };
    let payload = sent.get(at..at + PAYLOAD_BYTES).unwrap_or_default();
    assert!(payload.iter().all(u8::is_ascii_alphabetic), "{}", sent.escape_ascii());
    [&expected[..at], payload, &expected[at + mark.len()..]].concat()
}

#[test]
fn every_preset_is_without_mistakes_and_says_what_it_is() {
    let presets = presets();
    assert!(presets.len() >= 13);
    for (name, preset) in &presets {
        assert_eq!(check(preset), [], "{name}");
        assert!(preset.services.is_empty() && preset.reply.is_some() && !preset.messages.is_empty(), "{name}");
        let text = fs::read_to_string(root().join(format!("presets/{name}.yaml"))).unwrap();
        let comment: Vec<_> = text.lines().take_while(|line| line.starts_with('#')).collect();
        assert!((4..=10).contains(&comment.len()), "{name} opens with {} lines of comment", comment.len());
        for said in ["An answer", "The service must offer:", "Frames:"] {
            assert!(comment.join("\n").contains(said), "the comment of {name} doesn't say {said:?}");
        }
    }
}

#[test]
fn every_preset_speaks_its_protocol_byte_by_byte() {
    for (name, preset) in presets() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.txt"));
        let golden = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for session in golden.split("\n---\n") {
            let steps = session.lines().filter(|line| !line.is_empty() && !line.starts_with("# "));
            let purpose = if session.contains("FANOUT\n") { Use::Fanout } else { Use::Replies };
            let own_messages = steps.clone().find_map(|step| step.strip_prefix("MESSAGES "));
            let mut preset = preset.clone();
            if let Some(messages) = own_messages {
                preset.messages = serde_saphyr::from_str(messages).unwrap();
                assert_eq!(check(&preset), [], "{name}");
            }
            let mut player = Player::new(&preset, purpose);
            for step in steps.filter(|step| *step != "FANOUT" && !step.starts_with("MESSAGES ")) {
                let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| player.play(step)));
                assert!(played.is_ok(), "{name}: {step}");
            }
            assert_eq!(player.received, [""; 0], "{name}: received, and not in the golden file");
            assert_eq!(player.sent, [], "{name}: sent, and not in the golden file");
        }
    }
}
