//! From the application to the shards: mailboxes of commands, and the backlog of a connection that its client hasn't
//! read.

mod backlog;
mod mailbox;

pub(crate) use self::{
    backlog::{Backlog, Chunk},
    mailbox::{Command, Mailbox, Target},
};
