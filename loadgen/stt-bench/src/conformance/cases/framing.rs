//! Cases about the WebSocket protocol: masks, reserved bits, control frames, fragments, message sizes and pings.

use crate::conformance::{
    client::Event,
    finding::{NotPassed, Verdict, failed, passed},
    frames::{Outgoing, opcode},
    payload::{self, golden_frame},
    scene::{PROMPT, START, Scene},
};

/// Length in bytes of a message above the limit of 64 KiB.
const TOO_LONG: usize = (64 << 10) + 5000;

/// Sends frames in a started session; the gateway must answer with a Close with this code.
async fn refused(scene: &Scene, code: u16, frames: &[Outgoing<'_>]) -> Verdict {
    let mut session = scene.session(Vec::new()).await?;
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.write_to(&mut bytes));
    // The write may fail because the gateway has closed before it read everything.
    let written = session.client.raw(&bytes).await;
    match session.client.refused(code, PROMPT).await {
        Ok(evidence) => Ok(evidence),
        Err(not_passed) => Err(written.err().unwrap_or(not_passed)),
    }
}

/// Case `unmasked`: a client's frame without a mask is refused with 1002.
pub(super) async fn unmasked(scene: Scene) -> Verdict {
    let frame = golden_frame();
    refused(&scene, 1002, &[Outgoing { masked: false, ..Outgoing::whole(opcode::BINARY, &frame) }]).await
}

/// Case `reserved`: reserved bits without an extension that defines them, and undefined opcodes, are refused with 1002.
pub(super) async fn reserved(scene: Scene) -> Verdict {
    let frame = golden_frame();
    for reserved in [4, 2, 1] {
        refused(&scene, 1002, &[Outgoing { reserved, ..Outgoing::whole(opcode::BINARY, &frame) }]).await?;
    }
    for unknown in [3, 11] {
        refused(&scene, 1002, &[Outgoing::whole(unknown, b"")]).await?;
    }
    passed("Close 1002 to each reserved bit and to opcodes 3 and 11", "Close 1002 to each")
}

/// Case `bad-control`: a control frame that is too long or fragmented, and a continuation without a message, are
/// refused with 1002.
pub(super) async fn bad_control(scene: Scene) -> Verdict {
    let long = [0; 126];
    refused(&scene, 1002, &[Outgoing::whole(opcode::PING, &long)]).await?;
    refused(&scene, 1002, &[Outgoing { last: false, ..Outgoing::whole(opcode::PING, b"part") }]).await?;
    refused(&scene, 1002, &[Outgoing::whole(opcode::CONTINUATION, b"of nothing")]).await?;
    let expectation = "Close 1002 to a ping of 126 bytes, a ping in parts and a continuation of nothing";
    passed(expectation, "Close 1002 to each")
}

/// Case `oversized`: a message in one frame above the limit is refused with 1009.
pub(super) async fn oversized(scene: Scene) -> Verdict {
    refused(&scene, 1009, &[Outgoing::whole(opcode::BINARY, &vec![0; TOO_LONG])]).await
}

/// Case `oversized-fragments`: a message above the limit is refused with 1009, though each of its fragments is below
/// it.
pub(super) async fn oversized_fragments(scene: Scene) -> Verdict {
    let part = vec![0; TOO_LONG / 4 + 1];
    let frame = |opcode, last| Outgoing { last, ..Outgoing::whole(opcode, &part) };
    let continuations = [false, false, true].map(|last| frame(opcode::CONTINUATION, last));
    let frames: Vec<_> = std::iter::once(frame(opcode::BINARY, false)).chain(continuations).collect();
    refused(&scene, 1009, &frames).await
}

/// Case `fragmentation`: a fragmented start and a fragmented frame of audio, with a ping between fragments, are
/// accepted.
pub(super) async fn fragmentation(scene: Scene) -> Verdict {
    let expectation = "start and a frame in parts are put together: a partial with the golden checksum";
    let mut client = scene.connect().await?;
    let (head, tail) = START.as_bytes().split_at(7);
    client.send(&Outgoing { last: false, ..Outgoing::whole(opcode::TEXT, head) }).await?;
    client.send(&Outgoing::whole(opcode::CONTINUATION, tail)).await?;
    let frame = payload::golden_frame();
    client.send(&Outgoing { last: false, ..Outgoing::whole(opcode::BINARY, &frame[..100]) }).await?;
    client.send(&Outgoing { last: false, ..Outgoing::whole(opcode::CONTINUATION, &frame[100..100]) }).await?;
    client.send(&Outgoing::whole(opcode::PING, b"between")).await?;
    client.send(&Outgoing::whole(opcode::CONTINUATION, &frame[100..])).await?;
    let checksum = format!("\"checksum\":{}", payload::infer(&frame, scene.settings().passes).checksum);
    loop {
        match client.next(scene.settings().interval * 2 + PROMPT).await.map(|received| received.event) {
            Some(Event::Pong(_)) => {}
            Some(Event::Text(text)) if text.replace(' ', "").contains(&checksum) => return passed(expectation, text),
            Some(event) => return Err(failed(expectation, event.description())),
            None => return Err(failed(expectation, "nothing in time")),
        }
    }
}

/// Sends a ping, whose pong must come within 500 ms. Returns the time that it took, in milliseconds.
async fn ping(client: &mut crate::conformance::client::Client, payload: &[u8]) -> Result<u128, NotPassed> {
    let expectation = || format!("a ping of {} bytes is answered with its payload within 500 ms", payload.len());
    let started = std::time::Instant::now();
    client.send(&Outgoing::whole(opcode::PING, payload)).await?;
    loop {
        let remaining = std::time::Duration::from_millis(500).saturating_sub(started.elapsed());
        match client.next(remaining).await.map(|received| (received.at, received.event)) {
            Some((at, Event::Pong(echo))) if echo == payload => return Ok(at.duration_since(started).as_millis()),
            Some((_, Event::Text(_) | Event::Ping)) => {}
            Some((_, event)) => return Err(failed(expectation(), event.description())),
            None => return Err(failed(expectation(), "nothing in time")),
        }
    }
}

/// Case `ping-before-start`: a ping before start is answered, an unsolicited pong is accepted, and so is the start
/// after them.
pub(super) async fn ping_before_start(scene: Scene) -> Verdict {
    let mut client = scene.connect().await?;
    let duration = ping(&mut client, b"early").await?;
    client.send(&Outgoing::whole(opcode::PONG, b"unasked")).await?;
    client.text(START).await?;
    let after = ping(&mut client, b"started").await?;
    passed(
        "pongs within 500 ms before start, and start is taken after them",
        format!("after {duration} ms and {after} ms"),
    )
}

/// Case `ping-after-start`: pings in a session are answered for payloads of 0 to 125 bytes, also while audio comes.
pub(super) async fn ping_after_start(scene: Scene) -> Verdict {
    let mut session = scene.session(Vec::new()).await?;
    let mut slowest = 0;
    for payload in [&b""[..], b"x", &[0xff; 125]] {
        slowest = slowest.max(ping(&mut session.client, payload).await?);
    }
    for _ in 0..20 {
        session.burst(2).await?;
        slowest = slowest.max(ping(&mut session.client, b"between frames").await?);
    }
    passed("23 pings are answered within 500 ms each", format!("the slowest after {slowest} ms"))
}
