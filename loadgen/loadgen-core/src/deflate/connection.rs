//! The compression of one connection, and what the connections of a thread share.
//!
//! A connection whose messages don't refer to earlier ones keeps no stream of its own: a compressor has 256 KiB.

use super::{Deflater, Inflater, Negotiated, Uninflatable};

/// Size of the buffers that a thread keeps after a large message, in bytes.
const KEPT: usize = 1 << 20;

/// The compression of one connection.
#[derive(Debug)]
pub(crate) struct Deflate {
    negotiated: Negotiated,
    /// Whether what the client sends is compressed.
    pub(crate) compresses_sent: bool,
    /// Whether the message is compressed whose first frame has arrived and whose last one hasn't.
    pub(crate) is_assembling: bool,
    /// Present from the first message on, and only if messages refer to earlier ones.
    deflater: Option<Box<Deflater>>,
    inflater: Option<Box<Inflater>>,
}

/// What the connections of a thread share: buffers, and streams that forget each message.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    deflater: Option<Box<Deflater>>,
    inflater: Option<Box<Inflater>>,
    deflated: Vec<u8>,
    pub(crate) inflated: Vec<u8>,
}

impl Deflate {
    pub(crate) fn new(negotiated: Negotiated, compresses_sent: bool) -> Self {
        Self { negotiated, compresses_sent, is_assembling: false, deflater: None, inflater: None }
    }

    /// The payload of a message, compressed.
    pub(crate) fn deflate<'a>(&mut self, shared: &'a mut Shared, payload: &[u8]) -> &'a [u8] {
        let window_bits = self.negotiated.client_max_window_bits;
        let new = || Box::new(Deflater::new(window_bits));
        if self.negotiated.client_no_context_takeover {
            let deflater = match &mut shared.deflater {
                Some(deflater) if deflater.window_bits == window_bits => {
                    deflater.reset();
                    deflater
                }
                other => other.insert(new()),
            };
            deflater.deflate(payload, &mut shared.deflated);
        } else {
            self.deflater.get_or_insert_with(new).deflate(payload, &mut shared.deflated);
        }
        &shared.deflated
    }

    /// Inflates a message into the shared buffer.
    pub(crate) fn inflate(&mut self, shared: &mut Shared, payload: &[u8], largest: usize) -> Result<(), Uninflatable> {
        let inflater = if self.negotiated.server_no_context_takeover {
            let inflater = shared.inflater.get_or_insert_default();
            inflater.reset();
            inflater
        } else {
            self.inflater.get_or_insert_default()
        };
        inflater.inflate(payload, &mut shared.inflated, largest)
    }
}

impl Shared {
    /// Returns the memory of a large message.
    pub(crate) fn shrink(&mut self) {
        if self.inflated.capacity() > KEPT {
            self.inflated = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiated(no_context_takeover: bool, window_bits: u8) -> Negotiated {
        Negotiated {
            server_no_context_takeover: no_context_takeover,
            client_no_context_takeover: no_context_takeover,
            server_max_window_bits: 15,
            client_max_window_bits: window_bits,
        }
    }

    #[test]
    fn connections_share_a_stream_only_if_it_forgets_each_message() {
        let mut shared = Shared::default();
        let mut connections = [(true, 15), (false, 15), (true, 9), (false, 9)]
            .map(|(forgets, bits)| (forgets, Deflate::new(negotiated(forgets, bits), true)));
        for _ in 0..3 {
            for (forgets, connection) in &mut connections {
                let compressed = connection.deflate(&mut shared, b"Hello, Hello").to_vec();
                connection.inflate(&mut shared, &compressed, 100).unwrap();
                assert_eq!(shared.inflated, b"Hello, Hello");
                assert_eq!((connection.deflater.is_none(), connection.inflater.is_none()), (*forgets, *forgets));
            }
        }
    }

    #[test]
    fn the_memory_of_a_large_message_is_not_kept() {
        let mut shared = Shared { inflated: vec![0; KEPT + 1], ..Shared::default() };
        shared.shrink();
        assert_eq!(shared.inflated.capacity(), 0);
    }
}
