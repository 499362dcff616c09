//! A room, for tests: `sub` gets `subscribed`, and each `p …` goes to all subscribers, unless the room has a flaw.

use futures_util::{SinkExt, StreamExt};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    sync::broadcast::{self, Sender},
};
use tokio_tungstenite::{
    accept_async,
    tungstenite::{Error, Message},
};

/// What the room does wrong to each tenth publication of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// It does nothing wrong.
    None,
    /// It isn't sent to this subscriber.
    Drops,
    /// It is sent twice.
    Repeats,
    /// It is sent after the next one.
    Reorders,
    /// It is sent without its number.
    Mutilates,
}

pub(crate) struct Room {
    pub(crate) address: String,
    _runtime: Runtime,
}

impl Room {
    pub(crate) fn open(flaw: Flaw) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        runtime.spawn(async move {
            let (publications, _) = broadcast::channel(1 << 16);
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, publications.clone(), flaw));
            }
        });
        Self { address, _runtime: runtime }
    }
}

async fn serve(socket: TcpStream, publications: Sender<String>, flaw: Flaw) -> Result<(), Error> {
    let mut ws = accept_async(socket).await?;
    let mut inbox = publications.subscribe();
    let (mut is_subscribed, mut count, mut held) = (false, 0, None);
    loop {
        tokio::select! {
            message = ws.next() => match message {
                Some(Ok(Message::Text(text))) if text.as_str() == "sub" => {
                    is_subscribed = true;
                    ws.send(Message::text("subscribed")).await?;
                }
                // Without a subscriber the channel reports an error, and nothing is lost.
                Some(Ok(Message::Text(text))) => drop(publications.send(text.to_string())),
                Some(Ok(_)) => {}
                _ => return Ok(()),
            },
            Ok(text) = inbox.recv(), if is_subscribed => {
                count += 1;
                for text in flawed(text, flaw, count % 10 == 0, &mut held) {
                    ws.send(Message::text(text)).await?;
                }
            }
        }
    }
}

/// What is sent of a publication.
fn flawed(text: String, flaw: Flaw, is_tenth: bool, held: &mut Option<String>) -> Vec<String> {
    match flaw {
        Flaw::Drops if is_tenth => vec![],
        Flaw::Repeats if is_tenth => vec![text.clone(), text],
        Flaw::Reorders if is_tenth => {
            *held = Some(text);
            vec![]
        }
        Flaw::Mutilates if is_tenth => vec!["p of nobody".into()],
        _ => std::iter::once(text).chain(held.take()).collect(),
    }
}
