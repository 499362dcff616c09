//! The ring that says when each session sends: its sessions ordered by their phase within 20 ms, walked lap by lap.

use crate::{
    audio::FRAME_NS,
    session::{Session, Stage},
};

/// A session's place in the ring.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub(super) phase_ns: u32,
    /// First lap in which the session has a frame; [`u32::MAX`] once it has ended.
    pub(super) first_lap: u32,
    pub(super) slot: u32,
}

/// A place in the ring, and the lap.
pub(super) struct Cursor {
    pub(super) lap: u64,
    pub(super) at: usize,
}

impl Cursor {
    /// When the next frame is due, in nanoseconds; [`u64::MAX`] in an empty ring.
    #[inline]
    pub(super) fn due_ns(&self, ring: &[Spot], start_ns: u64) -> u64 {
        match ring.get(self.at) {
            Some(spot) => start_ns + self.lap * FRAME_NS + u64::from(spot.phase_ns),
            None => u64::MAX,
        }
    }

    /// The session whose frame is next; `None` when it hasn't started or has ended.
    #[inline]
    pub(super) fn session<'a>(&self, ring: &mut [Spot], sessions: &'a mut [Session]) -> Option<&'a mut Session> {
        let spot = &mut ring[self.at];
        if u64::from(spot.first_lap) > self.lap {
            return None;
        }
        let session = &mut sessions[spot.slot as usize];
        if session.stage != Stage::Open {
            // A session that ended has no more frames due.
            spot.first_lap = u32::MAX;
            return None;
        }
        Some(session)
    }

    /// Moves to the next place; returns whether a lap is complete.
    #[inline]
    pub(super) fn advance(&mut self, ring: &[Spot]) -> bool {
        self.at += 1;
        if self.at < ring.len() {
            return false;
        }
        (self.at, self.lap) = (0, self.lap + 1);
        true
    }
}
