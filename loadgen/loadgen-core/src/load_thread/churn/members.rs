//! The connections of one thread while they come and go, in the orders in which the load needs them. Pure.

use std::{collections::VecDeque, iter::StepBy, ops::RangeFrom};

use crate::session::{Session, Stage};

/// A connection: its slot, and its number among all connections. The slot may have another connection since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) slot: u32,
    pub(super) index: u32,
}

/// The connections in their orders. An entry of a connection that has ended stays until its turn.
pub(super) struct Members {
    /// In the order in which they came; `None` for one that was due and not attempted.
    ages: VecDeque<Option<Member>>,
    /// Those that get messages, the next one first.
    carriers: VecDeque<Member>,
    /// Attempts in the order of their due times.
    pub(super) attempts: VecDeque<Member>,
    /// Those that have to go and wait for answers, with the end of that wait.
    pub(super) leaving: VecDeque<(Member, u64)>,
    /// Those whose Close frame was sent, with the end of the wait for the service's.
    pub(super) closing: VecDeque<(Member, u64)>,
    /// Slots without a connection.
    free: Vec<u32>,
    numbers: StepBy<RangeFrom<u64>>,
}

impl Members {
    /// The connections at the start of the load; `numbers` are those of the ones that come.
    pub(super) fn of(sessions: &[Session], numbers: StepBy<RangeFrom<u64>>) -> Self {
        let member = |(slot, session): (usize, &Session)| Member { slot: slot as u32, index: session.index };
        let is_open = |(_, session): &(usize, &Session)| session.stage == Stage::Open;
        Self {
            ages: sessions.iter().enumerate().map(member).map(Some).collect(),
            carriers: sessions.iter().enumerate().filter(is_open).map(member).collect(),
            attempts: VecDeque::new(),
            leaving: VecDeque::new(),
            closing: VecDeque::new(),
            free: Vec::new(),
            numbers,
        }
    }

    /// A slot for a connection that comes: a free one, or the next after `slots` of them if `most` are not yet in use.
    pub(super) fn free_slot(&mut self, slots: usize, most: usize) -> Option<u32> {
        self.free.pop().or_else(|| (slots < most).then_some(slots as u32))
    }

    /// The number of the next connection.
    pub(super) fn next_number(&mut self) -> u32 {
        // More than four thousand million connections would take months.
        self.numbers.next().unwrap_or_default() as u32
    }

    /// Adds a connection that is attempted.
    pub(super) fn came(&mut self, member: Member) {
        self.ages.push_back(Some(member));
        self.attempts.push_back(member);
    }

    /// Keeps the place of a connection that is not attempted, so that no other one goes earlier for it.
    pub(super) fn skip(&mut self) {
        self.ages.push_back(None);
    }

    /// The oldest connection, which has to go now; `None` if it was never attempted.
    pub(super) fn oldest(&mut self) -> Option<Member> {
        self.ages.pop_front().flatten()
    }

    /// Lets a connection carry messages.
    pub(super) fn carry(&mut self, member: Member) {
        self.carriers.push_back(member);
    }

    /// The slot of the connection that carries the next message: they take turns.
    pub(super) fn next_carrier(&mut self, sessions: &[Session]) -> Option<u32> {
        while let Some(member) = self.carriers.pop_front() {
            let session = &sessions[member.slot as usize];
            if session.index == member.index && session.stage == Stage::Open && !session.is_leaving {
                self.carriers.push_back(member);
                return Some(member.slot);
            }
        }
        None
    }

    /// Lets a slot be used again.
    pub(super) fn free(&mut self, slot: u32) {
        self.free.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(count: u32) -> Vec<Session> {
        (0..count)
            .map(|slot| {
                let mut session = Session::new(slot, slot);
                session.stage = Stage::Open;
                session
            })
            .collect()
    }

    #[test]
    fn connections_carry_messages_in_turn_until_they_have_to_go() {
        let mut sessions = open(3);
        let mut members = Members::of(&sessions, (3..).step_by(1));
        let mut next = |sessions: &[Session]| members.next_carrier(sessions);
        assert_eq!([next(&sessions), next(&sessions)], [Some(0), Some(1)]);
        sessions[2].is_leaving = true;
        assert_eq!([next(&sessions), next(&sessions)], [Some(0), Some(1)]);
        sessions[0] = Session::new(0, 7);
        sessions[0].stage = Stage::Open;
        assert_eq!(
            [next(&sessions), next(&sessions)],
            [Some(1), Some(1)],
            "another connection in the slot carries none"
        );
        sessions[1].stage = Stage::Ended;
        assert_eq!(next(&sessions), None);
    }

    #[test]
    fn the_oldest_goes_first_and_slots_are_used_again() {
        let sessions = open(2);
        let mut members = Members::of(&sessions, (10..).step_by(4));
        assert_eq!(members.oldest(), Some(Member { slot: 0, index: 0 }));
        members.free(0);
        let slot = members.free_slot(2, 3).unwrap();
        let index = members.next_number();
        members.came(Member { slot, index });
        assert_eq!((slot, index, members.next_number()), (0, 10, 14));
        assert_eq!([members.free_slot(2, 3), members.free_slot(3, 3)], [Some(2), None]);
        members.skip();
        let oldest: Vec<_> = (0..3).map(|_| members.oldest().map(|member| member.index)).collect();
        assert_eq!(oldest, [Some(1), Some(10), None]);
    }
}
