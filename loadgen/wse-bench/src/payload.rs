//! The messages that connections send: the trade update of the reference's published benchmarks, in three formats and
//! any size, and the ping.
//!
//! Pure. Each message is a template in which only the sequence number (in pings also the clock) changes, so its length
//! is constant, except when compressed. Keys are sorted, as the client of those benchmarks sent them.

pub mod varied;

use std::ops::Range;

use flate2::{Compress, Compression, FlushCompress, Status};
use loadgen_core::workload::{Messages, Opcode};

use varied::Varied;

/// First sequence number of a connection: nine digits, so that a message's length is constant.
pub const FIRST_SEQUENCE: u64 = 100_000_000;
/// Most messages of a connection, before the sequence number would need a tenth digit.
pub const MOST_MESSAGES: u64 = 900_000_000;
/// Length of the trade update in JSON, in bytes; that of the published benchmarks is the same.
pub const BASE_BYTES: usize = 175;
/// Largest nominal size that gives the short message of 54 bytes.
const SHORT_BYTES: usize = 64;
/// What the published benchmarks subtract for the `data` field of a padded message; it makes the message ten bytes
/// shorter than its nominal size.
const PADDING_OVERHEAD: usize = 20;
/// Placeholder of the sequence number in a template.
const NUMBER: &str = "100000000";
const NUMBER_MICROS: &str = "1000000000000000";

/// Encoding of a trade update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON, in a text message.
    Json,
    /// MessagePack after the prefix `M:`, in a binary message.
    Msgpack,
    /// zlib of the JSON after the prefix `C:`, in a binary message.
    Compressed,
}

impl Format {
    /// The format by its name in plans and flags; `None` for an unknown name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "json" => Some(Self::Json),
            "msgpack" => Some(Self::Msgpack),
            "compressed" => Some(Self::Compressed),
            _ => None,
        }
    }
}

/// Composes messages of one kind.
pub enum WseMessages {
    /// Trade updates as JSON.
    Json(Template),
    /// Trade updates as MessagePack.
    Msgpack(Template),
    /// Trade updates as compressed JSON.
    Compressed(Box<Compressed>),
    /// JSON messages of many types, keys and lengths.
    Varied(Varied),
    /// Pings, whose sequence number the service echoes.
    Ping(Ping),
}

impl WseMessages {
    /// Trade updates of a format and a nominal size in bytes.
    pub fn trade(format: Format, size_bytes: usize) -> Self {
        match format {
            Format::Json => Self::Json(json(size_bytes)),
            Format::Msgpack => Self::Msgpack(msgpack(size_bytes)),
            Format::Compressed => Self::Compressed(Box::new(Compressed::new(json(size_bytes)))),
        }
    }
}

impl WseMessages {
    /// JSON messages of `shapes` types, 2 to [`varied::MOST_SHAPES`]; `size_bytes` is the nominal size of the longest.
    pub fn varied(size_bytes: usize, shapes: u32) -> Self {
        Self::Varied(Varied::new(size_bytes, shapes))
    }
}

/// Length of a trade update of a format and a nominal size, both in bytes; compressed ones vary by a few.
pub fn trade_bytes(format: Format, size_bytes: usize) -> usize {
    WseMessages::trade(format, size_bytes).payload(FIRST_SEQUENCE, 0).len()
}

impl WseMessages {
    /// Whether the messages are text or binary.
    #[inline]
    pub fn opcode(&self) -> Opcode {
        match self {
            Self::Json(_) | Self::Varied(_) | Self::Ping(_) => Opcode::Text,
            Self::Msgpack(_) | Self::Compressed(_) => Opcode::Binary,
        }
    }

    /// The payload of the message with this sequence number; `unix_us` is its due time by the wall clock in microseconds.
    #[inline]
    pub fn payload(&mut self, sequence: u64, unix_us: u64) -> &[u8] {
        match self {
            Self::Json(template) => {
                write_digits(&mut template.bytes[template.number.clone()], sequence);
                &template.bytes
            }
            Self::Msgpack(template) => {
                template.bytes[template.number.clone()].copy_from_slice(&(sequence as u32).to_be_bytes());
                &template.bytes
            }
            Self::Compressed(compressed) => compressed.payload(sequence),
            Self::Varied(varied) => varied.payload(sequence),
            Self::Ping(ping) => ping.payload(sequence, unix_us),
        }
    }
}

impl Messages<()> for WseMessages {
    #[inline]
    fn message(&mut self, (): &(), sequence: u64, unix_us: u64) -> (Opcode, &[u8]) {
        (self.opcode(), self.payload(sequence, unix_us))
    }
}

/// The bytes of a message, and the position of its sequence number.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    number: Range<usize>,
}

impl Template {
    /// From a text that contains `digits` exactly once.
    fn new(text: String, digits: &str) -> Self {
        let start = text.find(digits).expect("the template holds its number");
        Self { bytes: text.into_bytes(), number: start..start + digits.len() }
    }
}

/// The two decimal digits of every number below 100.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < pairs.len() {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// Writes a number in decimal with as many digits as `room` has bytes.
#[inline]
fn write_digits(room: &mut [u8], mut number: u64) {
    let (first, pairs) = room.as_rchunks_mut::<2>();
    for pair in pairs.iter_mut().rev() {
        *pair = PAIRS[(number % 100) as usize];
        number /= 100;
    }
    if let [digit] = first {
        *digit = b'0' + (number % 10) as u8;
    }
}

fn padding(size_bytes: usize) -> usize {
    size_bytes.saturating_sub(BASE_BYTES + PADDING_OVERHEAD)
}

fn json(size_bytes: usize) -> Template {
    if size_bytes <= SHORT_BYTES {
        return Template::new(format!(r#"{{"p":{{"s":"ESZ26","seq":{NUMBER}}},"t":"trade_update"}}"#), NUMBER);
    }
    let data = match padding(size_bytes) {
        0 => String::new(),
        length => format!(r#""data":"{}","#, "x".repeat(length)),
    };
    Template::new(
        format!(
            r#"{{"p":{{"account":"acc_01HQ3",{data}"price":5234.75,"qty":2,"score":0.87,"seq":{NUMBER},"side":"buy","symbol":"ES","tags":["momentum","breakout"],"ts":1771857000}},"t":"trade_update"}}"#
        ),
        NUMBER,
    )
}

/// The same fields as MessagePack (its specification, "Formats"), after the prefix `M:`.
fn msgpack(size_bytes: usize) -> Template {
    let mut out = Vec::from(*b"M:\x82");
    let number;
    string(&mut out, "p");
    if size_bytes <= SHORT_BYTES {
        out.push(0x82);
        pair(&mut out, "s", "ESZ26");
        number = sequence(&mut out);
    } else {
        let length = padding(size_bytes);
        out.push(if length == 0 { 0x89 } else { 0x8A });
        pair(&mut out, "account", "acc_01HQ3");
        if length > 0 {
            pair(&mut out, "data", &"x".repeat(length));
        }
        float(&mut out, "price", 5234.75);
        string(&mut out, "qty");
        out.push(2);
        float(&mut out, "score", 0.87);
        number = sequence(&mut out);
        pair(&mut out, "side", "buy");
        pair(&mut out, "symbol", "ES");
        string(&mut out, "tags");
        out.push(0x92);
        string(&mut out, "momentum");
        string(&mut out, "breakout");
        string(&mut out, "ts");
        out.push(0xCE);
        out.extend(1_771_857_000_u32.to_be_bytes());
    }
    pair(&mut out, "t", "trade_update");
    Template { bytes: out, number }
}

fn string(out: &mut Vec<u8>, text: &str) {
    match text.len() {
        length @ 0..=31 => out.push(0xA0 | length as u8),
        length @ 32..=255 => out.extend([0xD9, length as u8]),
        length @ 256..=0xFFFF => {
            out.push(0xDA);
            out.extend((length as u16).to_be_bytes());
        }
        length => {
            out.push(0xDB);
            out.extend((length as u32).to_be_bytes());
        }
    }
    out.extend(text.as_bytes());
}

fn pair(out: &mut Vec<u8>, key: &str, value: &str) {
    string(out, key);
    string(out, value);
}

fn float(out: &mut Vec<u8>, key: &str, value: f64) {
    string(out, key);
    out.push(0xCB);
    out.extend(value.to_be_bytes());
}

/// Appends `seq` as uint 32, whose length is the same for every number; returns the position of its bytes.
fn sequence(out: &mut Vec<u8>) -> Range<usize> {
    string(out, "seq");
    out.push(0xCE);
    let start = out.len();
    out.extend((FIRST_SEQUENCE as u32).to_be_bytes());
    start..out.len()
}

/// Compresses each message on its own, because each has its own sequence number. This costs the generator microseconds
/// per message, so such a flood is usually bound by the generator, and its result reports so.
pub struct Compressed {
    json: Template,
    zlib: Compress,
    out: Vec<u8>,
}

impl Compressed {
    fn new(json: Template) -> Self {
        // zlib's default level, which the clients of the published benchmarks used.
        Self { zlib: Compress::new(Compression::default(), true), out: Vec::with_capacity(json.bytes.len() + 64), json }
    }

    fn payload(&mut self, sequence: u64) -> &[u8] {
        write_digits(&mut self.json.bytes[self.json.number.clone()], sequence);
        self.zlib.reset();
        self.out.clear();
        self.out.extend(b"C:");
        let status = self.zlib.compress_vec(&self.json.bytes, &mut self.out, FlushCompress::Finish);
        assert!(matches!(status, Ok(Status::StreamEnd)), "the buffer holds more than the message itself");
        &self.out
    }
}

/// A ping whose sequence number the service echoes: the value of `p.timestamp`.
pub struct Ping {
    number: Template,
    micros: Range<usize>,
}

impl Default for Ping {
    fn default() -> Self {
        let text = format!(r#"{{"p":{{"client_timestamp":{NUMBER_MICROS},"timestamp":{NUMBER}}},"t":"ping"}}"#);
        let micros = text.find(NUMBER_MICROS).expect("the template holds its clock");
        let start = text.rfind(NUMBER).expect("the template holds its number");
        Self {
            number: Template { bytes: text.into_bytes(), number: start..start + NUMBER.len() },
            micros: micros..micros + NUMBER_MICROS.len(),
        }
    }
}

impl Ping {
    fn payload(&mut self, sequence: u64, unix_us: u64) -> &[u8] {
        write_digits(&mut self.number.bytes[self.micros.clone()], unix_us);
        write_digits(&mut self.number.bytes[self.number.number.clone()], sequence);
        &self.number.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use serde_json::Value;

    use super::*;

    fn message(format: Format, size: usize, sequence: u64) -> Vec<u8> {
        WseMessages::trade(format, size).payload(sequence, 0).to_vec()
    }

    fn decoded(format: Format, size: usize, sequence: u64) -> Value {
        let bytes = message(format, size, sequence);
        match format {
            Format::Json => serde_json::from_slice(&bytes).unwrap(),
            Format::Msgpack => rmp_serde::from_slice(bytes.strip_prefix(b"M:").unwrap()).unwrap(),
            Format::Compressed => {
                let mut text = String::new();
                flate2::read::ZlibDecoder::new(bytes.strip_prefix(b"C:").unwrap()).read_to_string(&mut text).unwrap();
                serde_json::from_str(&text).unwrap()
            }
        }
    }

    #[test]
    fn digits_fill_their_room() {
        for (number, width) in
            [(0, 1), (7, 2), (10, 2), (100_000_000, 9), (123_456_789, 9), (1_234_567_890_123_456, 16)]
        {
            let mut room = vec![b'x'; width];
            write_digits(&mut room, number);
            assert_eq!(String::from_utf8(room).unwrap(), format!("{number:0width$}"));
        }
    }

    #[test]
    fn the_trade_update_has_the_published_size() {
        for sequence in [FIRST_SEQUENCE, FIRST_SEQUENCE + MOST_MESSAGES - 1] {
            assert_eq!(message(Format::Json, 175, sequence).len(), BASE_BYTES);
        }
    }

    #[test]
    fn other_sizes_are_the_published_ones_too() {
        let sizes = [64, 175, 256, 1024, 4096, 16_384, 65_536];
        let lengths = sizes.map(|size| message(Format::Json, size, FIRST_SEQUENCE).len());
        assert_eq!(lengths, [54, 175, 246, 1014, 4086, 16_374, 65_526]);
    }

    #[test]
    fn all_formats_print_the_same_content() {
        for size in [64, 175, 256, 1024, 70_000] {
            let json = decoded(Format::Json, size, 123_456_789);
            assert_eq!(json["p"]["seq"], 123_456_789);
            assert_eq!(json["t"], "trade_update");
            assert_eq!(decoded(Format::Msgpack, size, 123_456_789), json, "{size}");
            assert_eq!(decoded(Format::Compressed, size, 123_456_789), json, "{size}");
        }
    }

    #[test]
    fn keys_are_sorted_as_the_published_benchmarks_client_sent_them() {
        let text = String::from_utf8(message(Format::Json, 256, FIRST_SEQUENCE)).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        // serde_json's map sorts its keys.
        assert_eq!(serde_json::to_string(&value).unwrap(), text);
    }

    #[test]
    fn the_number_in_msgpack_is_a_uint_32() {
        let bytes = message(Format::Msgpack, 175, 0x0607_0809);
        let at = bytes.windows(4).position(|window| window == b"\xA3seq").unwrap();
        assert_eq!(&bytes[at + 4..at + 9], [0xCE, 6, 7, 8, 9]);
    }

    #[test]
    fn a_ping_carries_its_number_and_the_clock() {
        let mut ping = WseMessages::Ping(Ping::default());
        let text = String::from_utf8(ping.payload(100_000_007, 1_771_857_000_123_456).to_vec()).unwrap();
        assert_eq!(text, r#"{"p":{"client_timestamp":1771857000123456,"timestamp":100000007},"t":"ping"}"#);
    }
}
