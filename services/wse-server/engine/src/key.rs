//! The number by which the engine identifies a connection.

/// Identifies the connection of a message: unique for the server's life, cheap to copy, compare and hash.
///
/// From the highest bit: shard (8 bits), serial number within the shard (32 bits), slot in its table (24 bits). A slot
/// is reused, a serial number isn't.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionKey(u64);

const SLOT_BITS: u32 = 24;
const SERIAL_BITS: u32 = 32;

impl ConnectionKey {
    /// The most connections that one shard can hold.
    pub(crate) const SLOTS: usize = 1 << SLOT_BITS;

    pub(crate) fn new(shard: u8, serial: u32, slot: usize) -> Self {
        debug_assert!(slot < Self::SLOTS);
        Self(u64::from(shard) << (SERIAL_BITS + SLOT_BITS) | u64::from(serial) << SLOT_BITS | slot as u64)
    }

    /// The key as one integer, for use in another language.
    pub fn as_u64(self) -> u64 {
        self.0
    }

    /// The key of an integer from [`ConnectionKey::as_u64`].
    pub fn from_u64(value: u64) -> Self {
        Self(value)
    }

    pub(crate) fn shard(self) -> usize {
        (self.0 >> (SERIAL_BITS + SLOT_BITS)) as usize
    }

    pub(crate) fn slot(self) -> usize {
        (self.0 & (Self::SLOTS as u64 - 1)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_contains_its_shard_and_slot() {
        let key = ConnectionKey::new(255, u32::MAX, ConnectionKey::SLOTS - 1);
        assert_eq!((key.shard(), key.slot()), (255, ConnectionKey::SLOTS - 1));
        assert_eq!(ConnectionKey::from_u64(key.as_u64()), key);
    }

    #[test]
    fn a_slot_used_again_has_another_key() {
        assert_ne!(ConnectionKey::new(0, 1, 7), ConnectionKey::new(0, 2, 7));
    }
}
