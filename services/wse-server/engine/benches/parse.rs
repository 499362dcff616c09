//! The CPU cost of a message without the kernel's part: framing, finding the type, and the handshake.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::json;
use wse_engine::{
    JwtConfig, JwtKey, format,
    frame::Opcode,
    handshake,
    jwt::Gate,
    receive::{Receiver, Step, client_frame},
};

/// The message of the published benchmarks: 175 bytes with sorted keys, so that the type is last.
const TYPE_LAST: &str = r#"{"p":{"account":"acc_01HQ3","price":5234.75,"qty":2,"score":0.87,"side":"buy","symbol":"ES","tags":["momentum","breakout"],"ts":"2026-02-23T14:30:00.123Z"},"t":"trade_update"}"#;
/// The same message with the type first.
const TYPE_FIRST: &str = r#"{"t":"trade_update","p":{"account":"acc_01HQ3","price":5234.75,"qty":2,"score":0.87,"side":"buy","symbol":"ES","tags":["momentum","breakout"],"ts":"2026-02-23T14:30:00.123Z"}}"#;
/// The same message with a field behind the type, so that the whole text must be scanned.
const TYPE_BETWEEN: &str = r#"{"p":{"account":"acc_01HQ3","price":5234.75,"qty":2,"score":0.87,"side":"buy","symbol":"ES","tags":["momentum","breakout"],"ts":"2026-02-23T14:30:00.123Z"},"t":"trade_update","v":1}"#;
const SECRET: &[u8] = b"bench-secret-key-for-testing-only";
const FRAMES: usize = 64;

fn frames(criterion: &mut Criterion) {
    let wire = client_frame(true, Opcode::Text, [1, 2, 3, 4], TYPE_LAST.as_bytes()).repeat(FRAMES);
    let mut group = criterion.benchmark_group("frame");
    group.throughput(Throughput::Elements(FRAMES as u64));
    group.bench_function("parse and unmask 64 of 175 bytes", |bencher| {
        bencher.iter_batched_ref(
            || wire.clone(),
            |wire| {
                let (mut receiver, mut at) = (Receiver::default(), 0);
                while let Ok(Step::Complete { next, .. }) = receiver.step(wire, at, 1 << 20) {
                    at = next;
                }
                assert_eq!(at, wire.len());
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn types(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("type of 175 bytes");
    for (name, text) in [("first", TYPE_FIRST), ("last", TYPE_LAST), ("between", TYPE_BETWEEN)] {
        group.bench_function(name, |bencher| bencher.iter(|| format::classify(black_box(text.as_bytes()))));
    }
    group.bench_function("validate", |bencher| {
        bencher.iter(|| simdutf8::basic::from_utf8(black_box(TYPE_LAST.as_bytes())).is_ok());
    });
    group.finish();
}

fn handshakes(criterion: &mut Criterion) {
    let claims = json!({"sub": "bench-user", "iss": "wse-bench", "aud": "wse-bench", "exp": 4_102_444_800_u64});
    let token = encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET)).expect("claims can be signed");
    let request = format!(
        "GET /wse?compression=false&protocol_version=1 HTTP/1.1\r\nHost: 127.0.0.1:5006\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Cookie: access_token={token}\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    let name = Some("wse-bench".to_owned());
    let key = JwtKey::secret(SECRET).expect("it is long enough");
    let gate = Gate::new(&JwtConfig { issuer: name.clone(), audience: name, ..JwtConfig::new(vec![key]) });
    let mut group = criterion.benchmark_group("handshake");
    group.bench_function("parse", |bencher| bencher.iter(|| handshake::parse(black_box(request.as_bytes())).is_ok()));
    group.bench_function("parse and check the token", |bencher| {
        bencher.iter(|| {
            let parsed = handshake::parse(black_box(request.as_bytes())).expect("it is good").expect("and whole");
            gate.admit(parsed.cookies.iter().copied(), parsed.authorization).expect("so is the token")
        });
    });
    group.finish();
}

criterion_group!(benches, frames, types, handshakes);
criterion_main!(benches);
