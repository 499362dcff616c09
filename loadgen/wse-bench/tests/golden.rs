//! The golden messages (`services/testdata/wse-messages.json`): our client understands the servers' messages, and sends
//! its own first messages as the file has them.

use std::{fs, io::Read, path::Path};

use flate2::read::ZlibDecoder;
use loadgen_core::workload::{Admission, Opcode, Received, Workload};
use serde::Deserialize;
use serde_json::Value;
use wse_bench::{
    payload::{BASE_BYTES, FIRST_SEQUENCE, Format, WseMessages},
    protocol::{Use, Wse},
};

#[derive(Deserialize)]
struct Golden {
    messages: Vec<Message>,
}

/// One message of the file, as `services/README.md` describes it.
#[derive(Deserialize)]
struct Message {
    name: String,
    from: String,
    opcode: String,
    hex: String,
    decoded: Value,
    means: String,
    client_timestamp: Option<u64>,
    connection_id: Option<String>,
    code: Option<String>,
}

impl Message {
    fn bytes(&self) -> Vec<u8> {
        let digits = self.hex.as_bytes().chunks(2);
        digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    fn opcode(&self) -> Opcode {
        if self.opcode == "text" { Opcode::Text } else { Opcode::Binary }
    }
}

fn golden() -> Vec<Message> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../services/testdata/wse-messages.json");
    serde_json::from_str::<Golden>(&fs::read_to_string(path).unwrap()).unwrap().messages
}

fn client() -> Wse {
    Wse::new("bench-secret-key-for-testing-only", Use::Ping).unwrap()
}

#[test]
fn until_it_is_let_in_a_client_understands_greetings_and_refusals_and_waits_out_the_rest() {
    let mut counted = (0, 0, 0);
    for message in golden().into_iter().filter(|message| message.from == "server") {
        let expected = match message.means.as_str() {
            "server_ready" => Admission::Ready { connection_id: message.connection_id.clone().unwrap() },
            "error" => Admission::Refused(message.code.clone().unwrap().to_lowercase()),
            _ => Admission::Waiting,
        };
        match expected {
            Admission::Ready { .. } => counted.0 += 1,
            Admission::Refused(_) => counted.1 += 1,
            Admission::Waiting | Admission::Timed { .. } => counted.2 += 1,
        }
        assert_eq!(client().admission(message.opcode(), &message.bytes()), expected, "{}", message.name);
    }
    assert!(counted.0 > 0 && counted.1 > 0 && counted.2 > 0, "the file lacks something: {counted:?}");
}

#[test]
fn only_pongs_are_answers_and_each_names_its_ping() {
    let mut pongs = 0;
    for message in golden().into_iter().filter(|message| message.from == "server") {
        let received = client().classify(message.opcode(), &message.bytes());
        if message.means == "pong" {
            pongs += 1;
            assert_eq!(received, Received::Reply { sequence: message.client_timestamp.unwrap() }, "{}", message.name);
        } else {
            assert_eq!(received, Received::Other, "{}", message.name);
        }
    }
    assert!(pongs > 0, "the file has no pong");
}

#[test]
fn the_first_trade_update_of_each_format_is_the_one_in_the_file() {
    for (name, format) in
        [("bench_json", Format::Json), ("bench_msgpack", Format::Msgpack), ("bench_compressed", Format::Compressed)]
    {
        let golden = golden().into_iter().find(|message| message.name == name).unwrap();
        let mut messages = WseMessages::trade(format, BASE_BYTES);
        assert_eq!(messages.opcode(), golden.opcode(), "{name}");
        let sent = messages.payload(FIRST_SEQUENCE, 0).to_vec();
        if format == Format::Compressed {
            // Compressors may encode the same text in different bytes.
            let inflate = |bytes: &[u8]| {
                let mut text = String::new();
                ZlibDecoder::new(bytes.strip_prefix(b"C:").unwrap()).read_to_string(&mut text).unwrap();
                serde_json::from_str::<Value>(&text).unwrap()
            };
            assert_eq!((inflate(&sent), inflate(&golden.bytes())), (golden.decoded.clone(), golden.decoded.clone()));
        } else {
            assert_eq!(sent, golden.bytes(), "{name}");
        }
    }
}
