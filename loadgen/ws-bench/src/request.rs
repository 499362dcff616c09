//! The upgrade request: path, headers and subprotocols, for all connections or for each of its own.

use std::net::IpAddr;

use bench_format::websocket::{Connect, DeflateTerms};
use loadgen_core::workload::{DeflateOffer, UpgradeRequest};

use crate::{
    mistakes::Mistakes,
    rows::Rows,
    template::{Kind, Payload, Scope, Template, Values},
};

const KINDS: &[Kind] = &[Kind::Connection, Kind::Worker, Kind::Row];
/// Headers that the upgrade itself sets (RFC 6455, section 4.1).
const OWN_HEADERS: [&str; 5] = ["host", "connection", "upgrade", "sec-websocket-key", "sec-websocket-version"];

/// A compiled upgrade request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Those of the addresses that connections take in turn; at least one.
    paths: Vec<Template>,
    headers: Vec<(String, Template)>,
    /// Subprotocols that are offered.
    pub subprotocols: Vec<String>,
    /// What is offered about compression; absent for nothing.
    pub deflate: Option<DeflateOffer>,
    /// Addresses to connect from.
    pub source_addresses: Vec<IpAddr>,
}

impl Request {
    /// Compiles the request with the paths that connections take in turn; `place` is that of the paths. Mistakes are added.
    pub fn compile<'a>(
        paths: impl Iterator<Item = &'a str>,
        place: &str,
        connect: &Connect,
        rows: &Rows,
        mistakes: &mut Mistakes,
    ) -> Option<Self> {
        let paths: Vec<_> = paths.map(|path| path_template(path, place, rows, mistakes)).collect();
        let headers = connect.headers.iter().filter_map(|(name, value)| {
            let template = header(name, value, rows, mistakes)?;
            Some((name.clone(), template))
        });
        let headers = headers.collect();
        for (index, name) in connect.subprotocols.iter().enumerate() {
            if !is_token(name) {
                let place = format!("connect.subprotocols[{index}]");
                mistakes.add(place, format!("{name:?} is no name of a subprotocol; it has no spaces and no commas"));
            }
        }
        let address = |(index, text): (usize, &String)| {
            let wrong =
                |_| mistakes.add(format!("connect.source_addresses[{index}]"), format!("{text:?} is no IP address"));
            text.parse().map_err(wrong).ok()
        };
        let source_addresses = connect.source_addresses.iter().enumerate().filter_map(address).collect();
        let deflate = connect.deflate.as_ref().map(|terms| deflate(terms, mistakes));
        let paths = paths.into_iter().collect::<Option<Vec<_>>>()?;
        Some(Self { paths, headers, subprotocols: connect.subprotocols.clone(), deflate, source_addresses })
    }

    /// Whether all connections have the same request.
    pub fn is_shared(&self) -> bool {
        self.paths.len() == 1
            && self.paths[0].is_constant()
            && self.headers.iter().all(|(_, value)| value.is_constant())
    }

    /// Path and query for one connection.
    pub fn path(&self, values: &Values<'_>) -> String {
        text(&self.paths[values.connection as usize % self.paths.len()], values)
    }

    /// The headers beyond those of the upgrade.
    pub fn headers(&self, values: &Values<'_>) -> Vec<(String, String)> {
        let mut headers: Vec<_> =
            self.headers.iter().map(|(name, value)| (name.clone(), text(value, values))).collect();
        if !self.subprotocols.is_empty() {
            headers.push(("Sec-WebSocket-Protocol".into(), self.subprotocols.join(", ")));
        }
        headers
    }

    /// The request of one connection.
    pub fn upgrade(&self, host: &str, values: &Values<'_>) -> UpgradeRequest {
        UpgradeRequest::new(host, &self.path(values), &self.headers(values))
    }
}

fn deflate(terms: &DeflateTerms, mistakes: &mut Mistakes) -> DeflateOffer {
    let least_of_client = if terms.compress_sent { 9 } else { 8 };
    for (field, bits, least) in [
        ("server_max_window_bits", terms.server_max_window_bits, 8),
        ("client_max_window_bits", terms.client_max_window_bits, least_of_client),
    ] {
        if let Some(bits) = bits.filter(|bits| !(least..=15).contains(bits)) {
            mistakes.add(format!("connect.deflate.{field}"), format!("{bits} is not from {least} to 15 bits"));
        }
    }
    DeflateOffer {
        compress_sent: terms.compress_sent,
        server_no_context_takeover: terms.server_no_context_takeover,
        client_no_context_takeover: terms.client_no_context_takeover,
        server_max_window_bits: terms.server_max_window_bits,
        client_max_window_bits: terms.client_max_window_bits,
    }
}

fn text(template: &Template, values: &Values<'_>) -> String {
    String::from_utf8_lossy(&template.bytes(values)).into_owned()
}

/// Compiles path and query of a request; mistakes are added under `place`.
pub fn path_template(path: &str, place: &str, rows: &Rows, mistakes: &mut Mistakes) -> Option<Template> {
    let literal = without_placeholders(path);
    if !path.starts_with('/') {
        mistakes.add(place, format!("the path {path:?} doesn't begin with a slash"));
    }
    if let Some(other) = literal.chars().find(|c| !c.is_ascii_graphic() || *c == '#') {
        mistakes.add(place, format!("{other:?} can't stand in a path; write it in percent-encoding"));
    }
    compile(path, place, rows, |byte| byte.is_ascii_graphic() && byte != b'#', "write it in percent-encoding", mistakes)
}

fn header(name: &str, value: &str, rows: &Rows, mistakes: &mut Mistakes) -> Option<Template> {
    let place = format!("connect.headers.{name}");
    if !is_token(name) {
        mistakes.add(&place, format!("{name:?} is no name of a header"));
    }
    if OWN_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own)) {
        mistakes.add(&place, "the upgrade sets this header itself; remove it");
    }
    if name.eq_ignore_ascii_case("sec-websocket-extensions") {
        mistakes.add(&place, "offer compression under connect.deflate; no other extension is possible");
    }
    if name.eq_ignore_ascii_case("sec-websocket-protocol") {
        mistakes.add(&place, "list subprotocols under connect.subprotocols");
    }
    let is_allowed = |byte: u8| byte == b'\t' || (byte >= b' ' && byte != 0x7F);
    if !value.bytes().all(is_allowed) {
        mistakes.add(&place, "the value has a control character, such as the end of a line; remove it");
    }
    compile(value, &place, rows, is_allowed, "remove control characters", mistakes)
}

fn compile(
    text: &str,
    place: &str,
    rows: &Rows,
    is_allowed: impl Fn(u8) -> bool,
    advice: &str,
    mistakes: &mut Mistakes,
) -> Option<Template> {
    let scope = Scope { kinds: KINDS, captured: &[], columns: rows.columns(), payload: &Payload::default() };
    let template = Template::text(text, &scope).map_err(|error| mistakes.add(place, error)).ok()?;
    for column in template.columns() {
        if let Some(row) = rows.first_with_other(column, &is_allowed) {
            let name = rows.name(column);
            mistakes.add(place, format!("the value of {name:?} in row {row} can't stand here; {advice}"));
        }
    }
    Some(template)
}

/// The text with its placeholders cut out.
fn without_placeholders(text: &str) -> String {
    let mut rest = text;
    let mut literal = String::new();
    while let Some((before, after)) = rest.split_once("{{") {
        literal.push_str(before);
        rest = after.split_once("}}").map_or("", |(_, after)| after);
    }
    literal + rest
}

/// Whether it is a token of HTTP (RFC 9110, section 5.6.2).
fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}
