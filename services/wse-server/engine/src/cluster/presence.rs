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
    presence::PresenceSnapshot,
    presence_change::{ChangeKind, PresenceChange},
};

/// How many bytes of the list of all users go into one frame.
const PART_BYTES: usize = 256 << 10;

/// The payload of an update: the change, its time (milliseconds, little endian), the user, and the user's data.
fn encode(kind: ChangeKind, updated_at: u64, user: &str, data: &str) -> Bytes {
    let mut payload = BytesMut::with_capacity(11 + user.len() + data.len());
    payload.put_u8(match kind {
        ChangeKind::Join => 0,
        ChangeKind::Leave => 1,
        ChangeKind::Update => 2,
    });
    payload.put_u64_le(updated_at);
    payload.put_u16_le(user.len() as u16);
    payload.put_slice(user.as_bytes());
    payload.put_slice(data.as_bytes());
    payload.freeze()
}

/// Decodes the payload of an update; `None` if it is invalid.
fn parse(mut payload: &[u8]) -> Option<(ChangeKind, u64, &str, &str)> {
    let kind = match payload.try_get_u8().ok()? {
        0 => ChangeKind::Join,
        1 => ChangeKind::Leave,
        2 => ChangeKind::Update,
        _ => return None,
    };
    let updated_at = payload.try_get_u64_le().ok()?;
    let length = usize::from(payload.try_get_u16_le().ok()?);
    let (user, data) = payload.split_at_checked(length)?;
    Some((kind, updated_at, std::str::from_utf8(user).ok()?, std::str::from_utf8(data).ok()?))
}

/// Encodes all users as frames, at least one. A topic that is too large for one frame is split.
fn frames(snapshot: PresenceSnapshot) -> Vec<Bytes> {
    let (mut frames, mut part, mut bytes) = (Vec::new(), PresenceSnapshot::new(), 0);
    let mut flush = |part: &mut PresenceSnapshot| {
        let json = serde_json::to_vec(&std::mem::take(part)).expect("users are JSON");
        if frame::fits(b"", &json) {
            frames.push(frame::encode(Kind::PresenceFull, 0, b"", &json));
        }
    };
    for (topic, users) in snapshot {
        for (user, shared_data) in users {
            bytes += topic.len() + user.len() + shared_data.data.get().len() + 64;
            part.entry(topic.clone()).or_default().insert(user, shared_data);
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
    /// Implements [`crate::links::Carrier::notify_change`].
    pub(super) fn send_presence_update(&self, change: &PresenceChange) {
        let Some(kind) = change.remote_kind else { return };
        let payload = encode(kind, change.updated_at, &change.user, &change.data);
        let fits = change.user.len() <= usize::from(u16::MAX) && frame::fits(change.topic.as_bytes(), &payload);
        if fits {
            self.send_to_all(PRESENCE, &frame::encode(Kind::PresenceUpdate, 0, change.topic.as_bytes(), &payload));
        }
    }

    /// Sends the list of all users here to a peer, and expects the same from it.
    pub(super) fn send_users(&self, peer: &Peer) {
        let Some(shared) = self.shared.upgrade() else { return };
        let Some(presence) = &shared.presence else { return };
        presence.begin_user_list(&peer.instance);
        presence.with_local_users(|snapshot| {
            for frame in frames(snapshot) {
                self.enqueue(peer, PRESENCE, frame);
            }
        });
    }

    /// Removes the users of a peer that is gone.
    pub(super) fn remove_users(&self, peer: &Peer) {
        let Some(shared) = self.shared.upgrade() else { return };
        if let Some(presence) = &shared.presence {
            presence.remove_origin(&peer.instance, |change| shared.notify_local(0, &change));
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
    let notify = |change: PresenceChange| shared.notify_local(0, &change);
    match kind {
        ChangeKind::Join | ChangeKind::Update => presence.join_remote(origin, (topic, user), data, updated_at, notify),
        ChangeKind::Leave => presence.leave_remote(origin, (topic, user), notify),
    }
}

/// Handles the list of the peer's users, or a part of it.
pub(super) fn users_listed(shared: &Hub, origin: &Arc<str>, frame: &Frame<'_>) {
    let Some(presence) = &shared.presence else { return };
    let snapshot: PresenceSnapshot = serde_json::from_slice(frame.payload).unwrap_or_default();
    for (topic, users) in &snapshot {
        for (user, shared_data) in users {
            let notify = |change: PresenceChange| shared.notify_local(0, &change);
            presence.join_remote(origin, (topic, user), shared_data.data.get(), shared_data.updated_at, notify);
        }
    }
}

/// Ends the list of the peer's users: those that are not in it are removed.
pub(super) fn user_list_complete(shared: &Hub, origin: &str) {
    if let Some(presence) = &shared.presence {
        presence.end_user_list(origin, |change| shared.notify_local(0, &change));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_update_is_encoded_as_the_protocol_specifies() {
        let payload = encode(ChangeKind::Leave, 5, "ann", "{}");
        assert_eq!(&payload[..], b"\x01\x05\0\0\0\0\0\0\0\x03\0ann{}");
        assert_eq!(parse(&payload), Some((ChangeKind::Leave, 5, "ann", "{}")));
        assert_eq!((parse(&payload[..12]), parse(b"\x03\0\0\0\0\0\0\0\0\0\0"), parse(b"")), (None, None, None));
    }

    #[test]
    fn a_list_of_users_is_sent_in_several_frames() {
        assert_eq!(&frames(PresenceSnapshot::new())[..], [frame::encode(Kind::PresenceFull, 0, b"", b"{}")]);
        let text = format!(r#"{{"data":"{}","updated_at":1}}"#, "x".repeat(4000));
        let mut snapshot = PresenceSnapshot::new();
        for user in 0..200 {
            let shared_data = serde_json::from_str(&text).unwrap();
            snapshot.entry("a".into()).or_default().insert(user.to_string(), shared_data);
        }
        let frames = frames(snapshot);
        let parts = frames.iter().map(|frame| frame::parse(frame).unwrap().unwrap().0.payload);
        let parts: Vec<PresenceSnapshot> = parts.map(|payload| serde_json::from_slice(payload).unwrap()).collect();
        let users: usize = parts.iter().flat_map(PresenceSnapshot::values).map(|users| users.len()).sum();
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
