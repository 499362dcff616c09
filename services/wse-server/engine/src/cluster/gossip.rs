//! Who hears of whom: where instances say that they are reached, and who dials there.

use std::sync::Arc;

use super::{
    addresses,
    config::split,
    dial,
    frame::{self, Kind},
    mesh::Mesh,
    peer::Peer,
};
use crate::lock::lock;

impl Mesh {
    /// Dials an address from now on, if that is news.
    pub(super) fn dial(self: &Arc<Self>, address: &str, is_given: bool) -> bool {
        let is_news = lock(&self.addresses).add(address, is_given);
        if is_news {
            self.tasks.spawn(dial::keep_linked(Arc::clone(self), address.to_owned()));
        }
        is_news
    }

    /// A peer says where it is reached.
    pub(super) fn announced(self: &Arc<Self>, peer: &Arc<Peer>, address: &str) {
        if split(address).is_none() {
            return;
        }
        lock(&peer.state).address = Some(address.to_owned());
        // First of all, so that nobody dials whom we have a link with.
        let is_news = self.gossips() && lock(&self.addresses).add(address, false);
        lock(&self.addresses).claimed(address, &peer.instance);
        if is_news {
            self.tasks.spawn(dial::keep_linked(Arc::clone(self), address.to_owned()));
            self.pass_on(&[address.to_owned()]);
        }
    }

    /// A peer says where others are reached.
    pub(super) fn heard_of(self: &Arc<Self>, addresses: &[String]) {
        if !self.gossips() {
            return;
        }
        let news: Vec<String> = addresses.iter().filter(|address| self.dial(address, false)).cloned().collect();
        if !news.is_empty() {
            self.pass_on(&news);
        }
    }

    /// Whether we go by what others say: those who say where they are reached themselves.
    fn gossips(&self) -> bool {
        self.advertised.is_some()
    }

    fn pass_on(&self, news: &[String]) {
        let list = addresses::encode(news.iter().map(String::as_str));
        self.tell_all(0, &frame::encode(Kind::Addresses, 0, b"", &list));
    }

    /// Says where all are reached to all peers again.
    pub(super) fn gossip(&self) {
        self.tell_all(0, &self.directory());
    }
}
