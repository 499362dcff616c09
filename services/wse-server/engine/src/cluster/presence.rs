//! Presence between instances: each change when it happens, and all users when a link is made.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{
    frame::{self, Frame, Kind},
    hello::PRESENCE,
    mesh::Mesh,
    peer::Peer,
};
use crate::{
    hub::Hub,
    presence::Full,
    presence_change::{Change, Move},
};

/// How many bytes of the list of all users go into one frame.
const PART_BYTES: usize = 256 << 10;

/// The payload of an update: the change, its time (milliseconds, little endian), the user, and the user's data.
fn encode(kind: Move, updated_at: u64, user: &str, data: &str) -> Bytes {
    let mut payload = BytesMut::with_capacity(11 + user.len() + data.len());
    payload.put_u8(match kind {
        Move::Join => 0,
        Move::Leave => 1,
        Move::Update => 2,
    });
    payload.put_u64_le(updated_at);
    payload.put_u16_le(user.len() as u16);
    payload.put_slice(user.as_bytes());
    payload.put_slice(data.as_bytes());
    payload.freeze()
}

/// Decodes the payload of an update; `None` if it is invalid.
fn parse(mut payload: &[u8]) -> Option<(Move, u64, &str, &str)> {
    let kind = match payload.try_get_u8().ok()? {
        0 => Move::Join,
        1 => Move::Leave,
        2 => Move::Update,
        _ => return None,
    };
    let updated_at = payload.try_get_u64_le().ok()?;
    let length = usize::from(payload.try_get_u16_le().ok()?);
    let (user, data) = payload.split_at_checked(length)?;
    Some((kind, updated_at, std::str::from_utf8(user).ok()?, std::str::from_utf8(data).ok()?))
}

/// Encodes all users as frames, at least one. A topic that is too large for one frame is split.
fn frames(full: Full) -> Vec<Bytes> {
    let (mut frames, mut part, mut bytes) = (Vec::new(), Full::new(), 0);
    let mut flush = |part: &mut Full| {
        let json = serde_json::to_vec(&std::mem::take(part)).expect("users are JSON");
        if frame::fits(b"", &json) {
            frames.push(frame::encode(Kind::PresenceFull, 0, b"", &json));
        }
    };
    for (topic, users) in full {
        for (user, told) in users {
            bytes += topic.len() + user.len() + told.data.get().len() + 64;
            part.entry(topic.clone()).or_default().insert(user, told);
            if bytes > PART_BYTES {
                flush(&mut part);
                bytes = 0;
            }
        }
    }
    flush(&mut part);
    frames
}

impl Mesh {
    /// Implements [`crate::links::Carrier::tell_change`].
    pub(super) fn spread_change(&self, change: &Change) {
        let Some(kind) = change.elsewhere else { return };
        let payload = encode(kind, change.updated_at, &change.user, &change.data);
        let fits = change.user.len() <= usize::from(u16::MAX) && frame::fits(change.topic.as_bytes(), &payload);
        if fits {
            self.tell_all(PRESENCE, &frame::encode(Kind::PresenceUpdate, 0, change.topic.as_bytes(), &payload));
        }
    }

    /// Sends the list of all users here to a peer, and expects the same from it.
    pub(super) fn introduce_users(&self, peer: &Peer) {
        let Some(shared) = self.shared.upgrade() else { return };
        let Some(presence) = &shared.presence else { return };
        presence.begin_naming(&peer.instance);
        presence.with_own(|full| {
            for frame in frames(full) {
                self.tell(peer, PRESENCE, frame);
            }
        });
    }

    /// Removes the users of a peer that is gone.
    pub(super) fn lose_users(&self, peer: &Peer) {
        let Some(shared) = self.shared.upgrade() else { return };
        if let Some(presence) = &shared.presence {
            presence.remote_gone(&peer.instance, |change| shared.tell_here(0, &change));
        }
    }
}

/// Handles a change of one of the peer's users. An invalid update is skipped.
pub(super) fn updated(shared: &Hub, origin: &Arc<str>, frame: &Frame<'_>) {
    let Some(presence) = &shared.presence else { return };
    let (Ok(topic), Some((kind, updated_at, user, data))) = (std::str::from_utf8(frame.topic), parse(frame.payload))
    else {
        return;
    };
    let tell = |change: Change| shared.tell_here(0, &change);
    match kind {
        Move::Join | Move::Update => presence.remote_join(origin, (topic, user), data, updated_at, tell),
        Move::Leave => presence.remote_leave(origin, (topic, user), tell),
    }
}

/// Handles the list of the peer's users, or a part of it.
pub(super) fn named(shared: &Hub, origin: &Arc<str>, frame: &Frame<'_>) {
    let Some(presence) = &shared.presence else { return };
    let full: Full = serde_json::from_slice(frame.payload).unwrap_or_default();
    for (topic, users) in &full {
        for (user, told) in users {
            let tell = |change: Change| shared.tell_here(0, &change);
            presence.remote_join(origin, (topic, user), told.data.get(), told.updated_at, tell);
        }
    }
}

/// Ends the list of the peer's users: those that are not in it are removed.
pub(super) fn all_named(shared: &Hub, origin: &str) {
    if let Some(presence) = &shared.presence {
        presence.end_naming(origin, |change| shared.tell_here(0, &change));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_update_lies_on_the_wire_as_the_protocol_says() {
        let payload = encode(Move::Leave, 5, "ann", "{}");
        assert_eq!(&payload[..], b"\x01\x05\0\0\0\0\0\0\0\x03\0ann{}");
        assert_eq!(parse(&payload), Some((Move::Leave, 5, "ann", "{}")));
        assert_eq!((parse(&payload[..12]), parse(b"\x03\0\0\0\0\0\0\0\0\0\0"), parse(b"")), (None, None, None));
    }

    #[test]
    fn everybody_is_told_in_as_many_frames_as_it_takes() {
        assert_eq!(&frames(Full::new())[..], [frame::encode(Kind::PresenceFull, 0, b"", b"{}")]);
        let text = format!(r#"{{"data":"{}","updated_at":1}}"#, "x".repeat(4000));
        let mut full = Full::new();
        for user in 0..200 {
            let told = serde_json::from_str(&text).unwrap();
            full.entry("a".into()).or_default().insert(user.to_string(), told);
        }
        let frames = frames(full);
        let parts = frames.iter().map(|frame| frame::parse(frame).unwrap().unwrap().0.payload);
        let parts: Vec<Full> = parts.map(|payload| serde_json::from_slice(payload).unwrap()).collect();
        let users: usize = parts.iter().flat_map(Full::values).map(|users| users.len()).sum();
        assert!(parts.len() > 2 && users == 200, "{} {users}", parts.len());
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_update_or_none(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some((kind, at, user, data)) = parse(&bytes) {
                prop_assert_eq!(&encode(kind, at, user, data)[..], &bytes[..]);
            }
        }
    }
}
