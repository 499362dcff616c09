//! Who a peer is by its certificate: the names in it, which the cluster's authority has confirmed.
//!
//! An instance draws its own name, so the name is in no certificate. Instead, a name belongs to the certificate with
//! which it was linked first, for as long as the instance is remembered: a peer whose certificate has other names can't
//! call itself the same. And the address that a peer announces must be one of its certificate's names.

use rustls::{
    client::verify_server_name,
    pki_types::{CertificateDer, ServerName},
    server::ParsedCertificate,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use super::host::split;

/// The DER tags that are looked for (X.690, 8.1.2): SEQUENCE, and the tag of a certificate's extensions.
const SEQUENCE: u8 = 0x30;
const EXTENSIONS: u8 = 0xA3;
/// The object identifier of the subject alternative names (RFC 5280, 4.2.1.6), in DER.
const ALTERNATIVE_NAMES: &[u8] = &[0x06, 0x03, 0x55, 0x1D, 0x11];
/// The subject is the fourth sequence of a certificate: after the signature's algorithm, the issuer and the validity.
const SUBJECT: usize = 3;

/// The certificate of a peer, which was verified.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity(CertificateDer<'static>);

impl Identity {
    /// The identity of the other side of a stream, after the handshake.
    pub(super) fn of(stream: &TlsStream<TcpStream>) -> Option<Self> {
        let (_, session) = stream.get_ref();
        Some(Self(session.peer_certificates()?.first()?.clone().into_owned()))
    }

    /// Whether both certificates have the same names. A renewed certificate has those of the old one.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0 || names(&self.0).is_some_and(|own| names(&other.0) == Some(own))
    }

    /// Whether the host of an address is one of the certificate's names.
    pub(super) fn has_address(&self, address: &str) -> bool {
        let host = split(address).and_then(|(host, _)| ServerName::try_from(host).ok());
        let certificate = ParsedCertificate::try_from(&self.0);
        host.zip(certificate.ok()).is_some_and(|(host, certificate)| verify_server_name(&certificate, &host).is_ok())
    }
}

/// The names in a certificate, in DER: its subject alternative names, or its subject if it has none.
fn names(certificate: &[u8]) -> Option<&[u8]> {
    let (_, certificate, _) = element(certificate)?;
    let (_, fields, _) = element(certificate)?;
    let (mut subject, mut sequences) = (None, 0);
    for (tag, content) in elements(fields) {
        match tag {
            SEQUENCE => {
                subject = subject.or((sequences == SUBJECT).then_some(content));
                sequences += 1;
            }
            EXTENSIONS => {
                let (_, extensions, _) = element(content)?;
                let names = elements(extensions).find_map(|(_, extension)| extension.strip_prefix(ALTERNATIVE_NAMES));
                if names.is_some() {
                    return names;
                }
            }
            _ => {}
        }
    }
    subject
}

/// The elements that follow each other in DER, up to the first one that isn't complete.
fn elements(mut der: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, content, rest) = element(der)?;
        der = rest;
        Some((tag, content))
    })
}

/// The tag and the content of the first element in DER (X.690, 8.1), and the bytes after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let ([tag, first], rest) = der.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7F => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], &content].concat()
    }

    /// What the names of a certificate are taken from, and nothing else of it.
    fn certificate(subject: &[u8], alternative: Option<&[u8]>) -> Vec<u8> {
        let sequence = |content: &[u8]| der(SEQUENCE, &[content]);
        let mut fields = vec![der(0xA0, &[b"version"]), der(0x02, &[b"serial"])];
        fields.extend([sequence(b"algorithm"), sequence(b"issuer"), sequence(b"validity"), sequence(subject)]);
        fields.push(sequence(b"key"));
        let usage = sequence(b"\x06\x03\x55\x1D\x0Fusage");
        let names = alternative.map(|names| der(SEQUENCE, &[ALTERNATIVE_NAMES, names])).unwrap_or_default();
        fields.push(der(EXTENSIONS, &[&der(SEQUENCE, &[&usage, &names])]));
        der(SEQUENCE, &[&der(SEQUENCE, &[&fields.concat()]), &sequence(b"signature")])
    }

    #[test]
    fn the_names_are_the_alternative_ones_or_else_the_subject() {
        assert_eq!(names(&certificate(b"subject", Some(b"names"))), Some(&b"names"[..]));
        assert_eq!(names(&certificate(b"subject", None)), Some(&b"subject"[..]));
        let whole = certificate(b"subject", Some(b"names"));
        for length in 0..10 {
            assert_eq!(names(&whole[..length]), None, "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_names_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            names(&bytes);
        }
    }
}
