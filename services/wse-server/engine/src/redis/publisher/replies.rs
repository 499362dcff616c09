//! The replies of Redis on the publishing connection, matched with its tasks in the order of the commands.

use std::{borrow::Cow, sync::atomic::Ordering};

use super::{
    super::{
        DEAD_LETTERS, Inner,
        connection::{Problem, error_text},
        dead_letters::DeadLetter,
        header::Header,
        outbox::{Batch, dead_letter},
        resp::{self, RedisReply},
    },
    Conversation, Task, put,
};

/// The outcome of the replies of one round.
#[derive(Default)]
struct Tally {
    sent: u64,
    unwanted: u64,
    refused: Vec<DeadLetter>,
    done: usize,
}

impl Conversation<'_> {
    /// Matches the replies that have arrived with their tasks, and reports the outcome to the outbox.
    pub(super) fn read_replies(&mut self) -> Result<(), Problem> {
        let incoming = std::mem::take(&mut self.connection.incoming);
        let (mut used, mut tally) = (0, Tally::default());
        let result = loop {
            match resp::reply(&incoming[used..]) {
                Ok(Some((reply, length))) => {
                    used += length;
                    if let Err(problem) = self.apply_reply(&reply, &mut tally) {
                        break Err(problem);
                    }
                }
                Ok(None) => break Ok(()),
                Err(malformed) => break Err(malformed.into()),
            }
        };
        self.connection.incoming = incoming;
        self.connection.used(used);
        if !tally.refused.is_empty() {
            tracing::warn!(refused = tally.refused.len(), error = %tally.refused[0].error, "Redis refused publications");
            self.inner.errors.fetch_add(tally.refused.len() as u64, Ordering::Relaxed);
        }
        self.inner.outbox.settle(tally.sent, tally.unwanted, tally.refused, tally.done);
        result
    }

    fn apply_reply(&mut self, reply: &RedisReply<'_>, tally: &mut Tally) -> Result<(), Problem> {
        let Some(task) = self.tasks.front_mut() else { return Err("a reply without a command".into()) };
        let is_done = match task {
            Task::Publish(batch) => {
                let mut copies = |batch: &mut Batch| own_copies(self.inner, &mut self.copies, batch);
                match reply {
                    RedisReply::Integer(count) if *count as u64 > copies(batch) => tally.sent += 1,
                    RedisReply::Integer(_) => tally.unwanted += 1,
                    RedisReply::Error(_) => {
                        let (topic, payload) = batch.next();
                        let error = error_text(reply).unwrap_or_default();
                        tally.refused.push(dead_letter(topic, payload, Cow::Owned(error)));
                    }
                    _ => return Err("the reply to PUBLISH is not a number".into()),
                }
                batch.advance();
                batch.pending_replies() == 0
            }
            Task::Save(_, replies, dead_letters) => {
                *replies -= 1;
                if let Some(error) = error_text(reply) {
                    tracing::warn!(error, topic = &*dead_letters[0].topic, "Redis refused dead letters");
                }
                *replies == 0
            }
            Task::Audience(..) | Task::DeadLetters(..) | Task::Forget(_) => true,
        };
        if !is_done {
            return Ok(());
        }
        self.written.0 = self.written.0.checked_sub(1).ok_or("a reply to a command that was not sent completely")?;
        let task = self.tasks.pop_front().expect("the queue's first task was there above");
        self.bytes -= task.commands().len();
        match task {
            Task::Publish(batch) => tally.done += batch.commands.len(),
            // Sending fails if the thread that asked no longer waits.
            Task::Audience(_, own, waiting) => drop(waiting.send(audience(reply).saturating_sub(own) as usize)),
            Task::DeadLetters(_, topic, waiting) => drop(waiting.send(self.replay(&topic, reply))),
            Task::Save(..) | Task::Forget(_) => {}
        }
        Ok(())
    }

    /// Publishes the dead letters that Redis returned, and has Redis delete them.
    fn replay(&mut self, topic: &str, reply: &RedisReply<'_>) -> Result<usize, String> {
        if let Some(error) = error_text(reply) {
            return Err(error);
        }
        let RedisReply::Array(Some(saved)) = reply else { return Err("the reply to LRANGE is not a list".into()) };
        let mut dead_letters = Vec::with_capacity(saved.len());
        // LPUSH adds at the front, so the last is the oldest.
        for saved in saved.iter().rev() {
            match saved {
                RedisReply::Bulk(Some(saved)) => dead_letters.extend(DeadLetter::read(saved)),
                _ => return Err("the reply to LRANGE has elements that are not strings".into()),
            }
        }
        if dead_letters.len() < saved.len() {
            tracing::warn!(
                topic,
                skipped = saved.len() - dead_letters.len(),
                "skipped entries of the list that are not dead letters"
            );
        }
        if !saved.is_empty() {
            let mut commands = Vec::new();
            let last = format!("-{}", saved.len() + 1);
            put(&mut commands, &["LTRIM", &format!("{DEAD_LETTERS}{topic}"), "0", &last]);
            self.push(Task::Forget(commands));
        }
        self.inner.outbox.publish_again(&dead_letters);
        Ok(dead_letters.len())
    }
}

/// How many of the receivers of a batch's next message are this instance itself.
fn own_copies(inner: &Inner, cached: &mut (String, u64, u64), batch: &mut Batch) -> u64 {
    let version = inner.interest.version();
    if version == 0 {
        return 0;
    }
    let (topic, payload) = batch.next();
    let is_own = |header: Header| header.origin == inner.origin;
    if !Header::split(payload).is_ok_and(|(header, _)| header.is_some_and(is_own)) {
        // A dead letter of another instance: this instance counts as one of its receivers.
        return 0;
    }
    if cached.0 != topic || cached.1 != version {
        *cached = (topic.to_owned(), version, inner.interest.copies(topic));
    }
    cached.2
}

/// The count that PUBSUB NUMSUB reports for the one channel in the request; 0 if the reply has another form.
fn audience(reply: &RedisReply<'_>) -> u64 {
    match reply {
        RedisReply::Array(Some(parts)) => match parts.as_slice() {
            [_, RedisReply::Integer(count)] => u64::try_from(*count).unwrap_or(0),
            _ => 0,
        },
        _ => 0,
    }
}
