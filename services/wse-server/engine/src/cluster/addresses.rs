//! The known addresses, and which instance answers at each. Pure.

use std::{collections::HashMap, sync::Arc};

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{config::MAX_PEERS, host::split};

/// An address that is dialled.
#[derive(Clone, Debug, Default)]
struct KnownAddress {
    /// The instance that answered there last.
    instance: Option<Arc<str>>,
    /// The address was configured: it is never given up.
    is_configured: bool,
}

/// The addresses that are dialled, and those of this instance.
#[derive(Debug, Default)]
pub(super) struct AddressBook {
    known: HashMap<String, KnownAddress>,
    /// The addresses at which this instance is reached itself.
    own: Vec<String>,
}

impl AddressBook {
    /// Notes an address of this instance: it is never dialled.
    pub(super) fn add_own(&mut self, address: &str) {
        self.known.remove(address);
        // A host has few names; further ones can only come from a faulty peer and are ignored.
        if !self.own.iter().any(|own| own == address) && self.own.len() < MAX_PEERS {
            self.own.push(address.into());
        }
    }

    /// Adds an address. Returns whether it is new, so that it has to be dialled.
    pub(super) fn add(&mut self, address: &str, is_configured: bool) -> bool {
        let is_invalid = split(address).is_none() || self.own.iter().any(|own| own == address);
        if is_invalid || self.known.contains_key(address) || self.known.len() >= MAX_PEERS {
            return false;
        }
        self.known.insert(address.into(), KnownAddress { instance: None, is_configured });
        true
    }

    /// Removes an address at which no instance answers, unless it was configured. Returns whether it was removed.
    pub(super) fn give_up(&mut self, address: &str) -> bool {
        let is_discovered = self.known.get(address).is_none_or(|known| !known.is_configured);
        is_discovered && {
            self.known.remove(address);
            true
        }
    }

    /// Notes that `instance` answers there. Returns the instance that did before, if it was another.
    pub(super) fn record_instance(&mut self, address: &str, instance: &Arc<str>) -> Option<Arc<str>> {
        let known = self.known.get_mut(address)?;
        known.instance.replace(Arc::clone(instance)).filter(|previous| previous != instance)
    }

    /// Notes that `instance` claims to be reached there. The claim counts only for an address that wasn't configured,
    /// so that no peer can keep this instance from dialling a configured address.
    pub(super) fn record_claim(&mut self, address: &str, instance: &Arc<str>) {
        if let Some(known) = self.known.get_mut(address).filter(|known| !known.is_configured) {
            known.instance.get_or_insert_with(|| Arc::clone(instance));
        }
    }

    /// The instance that answered there last.
    pub(super) fn instance(&self, address: &str) -> Option<Arc<str>> {
        self.known.get(address)?.instance.clone()
    }
}

/// Encodes a list of addresses; those beyond twice the largest number of peers are left out.
pub(super) fn encode<'a>(addresses: impl Iterator<Item = &'a str>) -> Bytes {
    let (mut list, mut count) = (BytesMut::new(), 0_u16);
    for address in addresses.take(2 * MAX_PEERS) {
        list.put_u16_le(address.len() as u16);
        list.put_slice(address.as_bytes());
        count += 1;
    }
    let mut payload = BytesMut::with_capacity(2 + list.len());
    payload.put_u16_le(count);
    payload.put_slice(&list);
    payload.freeze()
}

/// Decodes a list of addresses, up to the first entry that is incomplete. Invalid addresses are left out.
pub(super) fn parse(mut payload: &[u8]) -> Vec<String> {
    let mut addresses = Vec::new();
    let count = payload.try_get_u16_le().unwrap_or_default();
    for _ in 0..usize::from(count).min(2 * MAX_PEERS) {
        let Ok(length) = payload.try_get_u16_le() else { break };
        let Some((address, rest)) = payload.split_at_checked(usize::from(length)) else { break };
        payload = rest;
        addresses
            .extend(std::str::from_utf8(address).ok().filter(|address| split(address).is_some()).map(str::to_owned));
    }
    addresses
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_address_is_new_once_and_our_own_never() {
        let mut book = AddressBook::default();
        book.add_own("me:1");
        assert!(book.add("a:1", true) && !book.add("a:1", false) && !book.add("me:1", true) && !book.add("a", true));
        assert!(book.add("also-me:1", false));
        book.add_own("also-me:1");
        assert!(!book.add("also-me:1", false));
    }

    #[test]
    fn reported_addresses_are_bounded_and_evicted_when_none_answers() {
        let mut book = AddressBook::default();
        assert!((0..MAX_PEERS).all(|n| book.add(&format!("a:{}", n + 1), n == 0)));
        assert!(!book.add("b:1", false));
        assert!(!book.give_up("a:1") && book.give_up("a:2") && book.give_up("a:2"));
        assert!(book.add("b:1", false));
    }

    #[test]
    fn another_instance_at_an_address_is_detected() {
        let mut book = AddressBook::default();
        book.add("a:1", true);
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        assert_eq!(book.record_instance("a:1", &one), None);
        assert_eq!(book.record_instance("a:1", &one), None);
        assert_eq!(book.record_instance("a:1", &other), Some(one));
        assert_eq!((book.instance("a:1"), book.instance("b:1")), (Some(other), None));
    }

    #[test]
    fn a_claim_counts_only_for_reported_addresses() {
        let mut book = AddressBook::default();
        book.add("configured:1", true);
        book.add("announced:1", false);
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        for address in ["configured:1", "announced:1", "unknown:1"] {
            book.record_claim(address, &one);
            book.record_claim(address, &other);
        }
        assert_eq!((book.instance("configured:1"), book.instance("announced:1")), (None, Some(one)));
    }

    #[test]
    fn a_list_is_encoded_as_the_protocol_specifies() {
        assert_eq!(&encode(["a:1", "bc:2"].into_iter())[..], b"\x02\0\x03\0a:1\x04\0bc:2");
        assert_eq!(parse(b"\x02\0\x03\0a:1\x04\0bc:2"), ["a:1", "bc:2"]);
        assert_eq!(parse(b"\x02\0\x03\0a:1\x09\0bc:2"), ["a:1"]);
        assert_eq!(parse(b"\x02\0\x01\0a\x03\0b:1"), ["b:1"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_list(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            parse(&bytes);
        }
    }
}
