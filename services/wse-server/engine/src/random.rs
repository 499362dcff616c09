//! UUIDs of version 7 with random bits from the kernel.

use rustix::rand::{GetRandomFlags, getrandom};
use uuid::Uuid;

/// Random bytes that a UUID of version 7 needs.
const RANDOM_BYTES: usize = 10;
/// Bytes that one call fetches from the kernel. Up to 256 bytes, `getrandom` is neither interrupted nor short.
const POOL_BYTES: usize = 25 * RANDOM_BYTES;

/// A shard's pool of random bytes, which saves a system call per id.
pub(crate) struct Random {
    pool: [u8; POOL_BYTES],
    used: usize,
}

impl Default for Random {
    fn default() -> Self {
        Self { pool: [0; POOL_BYTES], used: POOL_BYTES }
    }
}

impl Random {
    fn bytes(&mut self) -> [u8; RANDOM_BYTES] {
        if self.used + RANDOM_BYTES > POOL_BYTES {
            let filled = getrandom(&mut self.pool[..], GetRandomFlags::empty());
            debug_assert_eq!(filled, Ok(POOL_BYTES));
            self.used = 0;
        }
        let bytes = self.pool[self.used..].first_chunk().copied().expect("there are enough left");
        self.used += RANDOM_BYTES;
        bytes
    }

    /// A new UUID of version 7; `wall_millis` is the time in milliseconds since the Unix epoch.
    pub(crate) fn id(&mut self, wall_millis: u64) -> Uuid {
        uuid::Builder::from_unix_timestamp_millis(wall_millis, &self.bytes()).into_uuid()
    }
}

/// A new UUID of version 7, outside of a shard. It uses no pool: after a fork, parent and child would have the same
/// one.
pub(crate) fn id(wall_millis: u64) -> Uuid {
    uuid::Builder::from_unix_timestamp_millis(wall_millis, &bytes()).into_uuid()
}

/// At most 256 random bytes from the kernel, for example a nonce.
///
/// # Panics
/// If the kernel has no random bytes, which doesn't happen once it has started: a predictable nonce would be worse.
pub(crate) fn bytes<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let filled = getrandom(&mut bytes[..], GetRandomFlags::empty());
    assert_eq!(filled, Ok(BYTES), "the kernel gives random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_of_version_7_with_the_time_in_front_and_never_the_same() {
        let ids: HashSet<Uuid> = (0..1000).map(|_| id(1_795_217_595_492)).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.get_version_num() == 7 && id.to_string().starts_with("01a1fb4e-9c64-7")));
    }
}
