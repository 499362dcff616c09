//! `throughput`: trade updates without replies; the service's application is the witness. Closed: a flood, as fast as
//! the sockets accept it. Open: at a rate.

use anyhow::bail;
use bench_format::plan::{Load, Message};
use loadgen_core::Pattern;

use crate::{
    payload::{Format, varied::MOST_SHAPES},
    protocol::Use,
};

/// Largest message that the services accept, in bytes.
const LARGEST_MESSAGE: u32 = 1 << 20;

pub(super) fn plan(load: &Load, message: &Message) -> anyhow::Result<(Pattern, Use)> {
    let Some(format) = Format::from_name(&message.format) else {
        bail!("there is no format {:?}; known are json, msgpack, compressed", message.format);
    };
    if message.size_bytes > LARGEST_MESSAGE {
        bail!("messages of {} bytes exceed the {LARGEST_MESSAGE} that services accept", message.size_bytes);
    }
    if message.coalesce == 0 {
        bail!("0 messages per write send nothing; give at least 1");
    }
    if !(1..=MOST_SHAPES).contains(&message.shapes) || (message.shapes > 1 && format != Format::Json) {
        bail!("{} shapes of {}; give 1 to {MOST_SHAPES}, more than one only of json", message.shapes, message.format);
    }
    let pattern = match load {
        Load::Open { rate_per_second, arrivals } => {
            Pattern::Open { rate_per_second: *rate_per_second, arrivals: *arrivals }
        }
        Load::Closed { messages_per_connection: Some(count), .. } => {
            bail!("a flood has no count of messages per connection, but {count} are asked for; leave it out")
        }
        _ => Pattern::Flood,
    };
    Ok((pattern, Use::Trade { format, size_bytes: message.size_bytes as usize, shapes: message.shapes }))
}
