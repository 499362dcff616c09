//! What the fuzz targets reach of what is private: the past that a client asks for, and what users say about themselves.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    key::ConnectionKey,
    presence::{Presence, PresenceConfig, PresenceError},
    recovery::{Position, Recovery, RecoveryConfig},
};

/// What became of a wish to recover.
#[derive(Debug)]
pub struct Told {
    /// Where the topic stands.
    pub position: Position,
    /// Whether the client named its epoch.
    pub knows_epoch: bool,
    /// The offsets that it missed; nothing where it starts anew.
    pub missed: Option<Vec<i64>>,
}

/// Publishes to a topic, and asks for what came after `offset` in `epoch` (the right one, if there is none), `most` at most.
/// The topic keeps sixteen.
#[must_use]
pub fn recover(published: usize, epoch: Option<u32>, offset: i64, most: usize) -> Told {
    let recovery = Recovery::new(RecoveryConfig { buffer_size: 16, ..RecoveryConfig::default() });
    recovery.with("topic", 0, |log| {
        for _ in 0..published {
            let text = log.stamp("topic", "{}");
            log.push(Bytes::from(text), recovery.config.buffer_size);
        }
        let position = log.position();
        let epoch = epoch.unwrap_or(position.epoch);
        let offset_of = |frame: &Bytes| {
            let stamp: serde_json::Value = serde_json::from_slice(frame).expect("a stamped text is JSON");
            stamp["o"].as_i64().expect("it has an offset")
        };
        let missed = log.after(Position { epoch, offset }, most).map(|frames| frames.map(offset_of).collect());
        Told { position, knows_epoch: epoch == position.epoch, missed }
    })
}

/// A user joins a topic, saying this: what the topic's subscribers and the application are told.
///
/// # Errors
/// What can't be said.
pub fn join(user: &str, data: &str, most: usize) -> Result<(String, String), PresenceError> {
    let presence = Presence::new(PresenceConfig { max_data_size: most, ..PresenceConfig::default() });
    let data: Arc<str> = presence.check(data)?;
    let mut told = None;
    presence.join(ConnectionKey::from_u64(1), user, &["topic".to_owned()], &data, |change| {
        told = change.event().map(|event| (event.message(), event.detail()));
    });
    Ok(told.expect("the first to come is told of"))
}
