//! Access for the fuzz targets to three private parts: recovery, the data that users publish as their presence, and the
//! cursors of the books of connections.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    key::ConnectionKey,
    presence::{Presence, PresenceConfig, PresenceError},
    recovery::{Position, Recovery, RecoveryConfig},
    stats::Cursor,
};

/// The result of a recovery request.
#[derive(Debug)]
pub struct RecoveryResult {
    /// The topic's current position.
    pub position: Position,
    /// Whether the client named the topic's epoch.
    pub knows_epoch: bool,
    /// The offsets that the client missed; `None` if it can't be caught up from the log.
    pub missed: Option<Vec<i64>>,
}

/// Publishes `published` messages to a topic that keeps sixteen, then requests at most `maximum` messages after `offset`
/// in `epoch` (`None`: the topic's own).
#[must_use]
pub fn recover(published: usize, epoch: Option<u32>, offset: i64, maximum: usize) -> RecoveryResult {
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
        let missed = log.after(Position { epoch, offset }, maximum).map(|frames| frames.map(offset_of).collect());
        RecoveryResult { position, knows_epoch: epoch == position.epoch, missed }
    })
}

/// A user joins a topic with `data`. Returns what the topic's subscribers and what the application receive.
///
/// # Errors
/// [`PresenceError`] if `data` is refused.
pub fn join(user: &str, data: &str, maximum: usize) -> Result<(String, String), PresenceError> {
    let presence = Presence::new(PresenceConfig { max_data_size: maximum, ..PresenceConfig::default() });
    let data: Arc<str> = presence.check(data)?;
    let mut result_xx = None;
    presence.join(ConnectionKey::from_u64(1), user, &["topic".to_owned()], &data, |change| {
        result_xx = change.event().map(|event| (event.message(), event.detail()));
    });
    Ok(result_xx.expect("the first member to join is reported"))
}

/// The text of the cursor that this text is parsed to; `None` if it is no cursor.
#[must_use]
pub fn cursor(text: &str) -> Option<String> {
    text.parse::<Cursor>().ok().map(|cursor| cursor.to_string())
}
