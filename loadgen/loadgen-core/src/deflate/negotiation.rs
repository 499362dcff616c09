//! Offers `permessage-deflate`, and reads the service's response (RFC 7692, sections 5 and 7.1). Pure.

use std::fmt;

/// Name of the extension.
const NAME: &str = "permessage-deflate";
const SERVER_NO_CONTEXT_TAKEOVER: &str = "server_no_context_takeover";
const CLIENT_NO_CONTEXT_TAKEOVER: &str = "client_no_context_takeover";
const SERVER_MAX_WINDOW_BITS: &str = "server_max_window_bits";
const CLIENT_MAX_WINDOW_BITS: &str = "client_max_window_bits";
/// Largest window: 2^15 bytes. It is used where neither side names another.
pub(super) const MOST_WINDOW_BITS: u8 = 15;
/// Smallest window that zlib can compress with: it has no raw stream of 2^8 bytes.
const LEAST_WINDOW_BITS_TO_COMPRESS: u8 = 9;

/// The response accepts what wasn't offered, or isn't one that RFC 7692 allows; a key in results.
const UNACCEPTABLE: Unacceptable = Unacceptable("upgrade_deflate");
/// The window is smaller than the client can compress with; a key in results.
const WINDOW_TOO_SMALL: Unacceptable = Unacceptable("deflate_window_too_small");

/// What the client offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeflateOffer {
    /// Whether the client compresses the messages that it sends; if not, it only inflates.
    pub compress_sent: bool,
    /// Whether the service has to begin each message without the ones before it.
    pub server_no_context_takeover: bool,
    /// Whether the client begins each message without the ones before it, also where the service does not require it.
    pub client_no_context_takeover: bool,
    /// Largest window of the service, from 8 to 15 bits; absent if the service chooses.
    pub server_max_window_bits: Option<u8>,
    /// Largest window of the client, from 8 to 15 bits; absent if the service chooses.
    pub client_max_window_bits: Option<u8>,
}

/// What both sides have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Whether the service begins each message without the ones before it.
    pub server_no_context_takeover: bool,
    /// Whether the client begins each message without the ones before it.
    pub client_no_context_takeover: bool,
    /// Window of the service, in bits.
    pub server_max_window_bits: u8,
    /// Window of the client, in bits.
    pub client_max_window_bits: u8,
}

/// Why a response can't be accepted; a key in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unacceptable(pub &'static str);

impl DeflateOffer {
    /// The value of the header `Sec-WebSocket-Extensions` in the upgrade request.
    pub fn header(&self) -> String {
        let mut header = NAME.to_owned();
        let mut add = |parameter: &str| {
            header.push_str("; ");
            header.push_str(parameter);
        };
        if self.server_no_context_takeover {
            add(SERVER_NO_CONTEXT_TAKEOVER);
        }
        if self.client_no_context_takeover {
            add(CLIENT_NO_CONTEXT_TAKEOVER);
        }
        if let Some(bits) = self.server_max_window_bits {
            add(&format!("{SERVER_MAX_WINDOW_BITS}={bits}"));
        }
        // Always there: without it the service may not name a window.
        match self.client_max_window_bits {
            Some(bits) => add(&format!("{CLIENT_MAX_WINDOW_BITS}={bits}")),
            None => add(CLIENT_MAX_WINDOW_BITS),
        }
        header
    }

    /// Reads the response; `value` is that of its header `Sec-WebSocket-Extensions`.
    ///
    /// # Errors
    /// [`Unacceptable`] if the response isn't one to this offer.
    pub fn accept(&self, value: &[u8]) -> Result<Negotiated, Unacceptable> {
        let response = Response::parse(value).ok_or(UNACCEPTABLE)?;
        let lacks_takeover = self.server_no_context_takeover && !response.server_no_context_takeover;
        if lacks_takeover
            || exceeds(self.server_max_window_bits, response.server_max_window_bits, MOST_WINDOW_BITS)
            || response.client_max_window_bits.is_some_and(|bits| bits > self.client_window_bits())
        {
            return Err(UNACCEPTABLE);
        }
        let client_max_window_bits = response.client_max_window_bits.unwrap_or(self.client_window_bits());
        if self.compress_sent && client_max_window_bits < LEAST_WINDOW_BITS_TO_COMPRESS {
            return Err(WINDOW_TOO_SMALL);
        }
        Ok(Negotiated {
            server_no_context_takeover: response.server_no_context_takeover,
            client_no_context_takeover: self.client_no_context_takeover || response.client_no_context_takeover,
            server_max_window_bits: response.server_max_window_bits.unwrap_or(MOST_WINDOW_BITS),
            client_max_window_bits,
        })
    }

    fn client_window_bits(&self) -> u8 {
        self.client_max_window_bits.unwrap_or(MOST_WINDOW_BITS)
    }
}

/// Whether a limit that was offered isn't kept by the response.
fn exceeds(offered: Option<u8>, responded: Option<u8>, without: u8) -> bool {
    offered.is_some_and(|most| responded.unwrap_or(without) > most)
}

/// The parameters of a response.
#[derive(Default)]
struct Response {
    server_no_context_takeover: bool,
    client_no_context_takeover: bool,
    server_max_window_bits: Option<u8>,
    client_max_window_bits: Option<u8>,
}

impl Response {
    /// `None` for another extension, an unknown parameter, one that is there twice, or a wrong value.
    fn parse(value: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(value).ok()?.split(';').map(str::trim);
        (parts.next()? == NAME).then_some(())?;
        let mut response = Self::default();
        for part in parts {
            let (name, value) = part.split_once('=').map_or((part, None), |(name, value)| (name, Some(value)));
            let is_new = match (name.trim_end(), value) {
                (SERVER_NO_CONTEXT_TAKEOVER, None) => {
                    !std::mem::replace(&mut response.server_no_context_takeover, true)
                }
                (CLIENT_NO_CONTEXT_TAKEOVER, None) => {
                    !std::mem::replace(&mut response.client_no_context_takeover, true)
                }
                (SERVER_MAX_WINDOW_BITS, Some(bits)) => {
                    response.server_max_window_bits.replace(window_bits(bits)?).is_none()
                }
                (CLIENT_MAX_WINDOW_BITS, Some(bits)) => {
                    response.client_max_window_bits.replace(window_bits(bits)?).is_none()
                }
                _ => false,
            };
            is_new.then_some(())?;
        }
        Some(response)
    }
}

/// A number of bits from 8 to 15 in digits without a leading zero, with or without quotes (RFC 7692, section 7.1.2).
fn window_bits(text: &str) -> Option<u8> {
    let text = text.trim_start();
    let digits = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    match digits.as_bytes() {
        [digit @ b'8'..=b'9'] | [b'1', digit @ b'0'..=b'5'] => {
            Some(if digits.len() == 1 { digit - b'0' } else { 10 + digit - b'0' })
        }
        _ => None,
    }
}

/// Formats what was agreed on as a response's header; a key in results.
impl fmt::Display for Negotiated {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(NAME)?;
        if self.server_no_context_takeover {
            write!(f, "; {SERVER_NO_CONTEXT_TAKEOVER}")?;
        }
        if self.client_no_context_takeover {
            write!(f, "; {CLIENT_NO_CONTEXT_TAKEOVER}")?;
        }
        let (server, client) = (self.server_max_window_bits, self.client_max_window_bits);
        write!(f, "; {SERVER_MAX_WINDOW_BITS}={server}; {CLIENT_MAX_WINDOW_BITS}={client}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: DeflateOffer = DeflateOffer {
        compress_sent: true,
        server_no_context_takeover: false,
        client_no_context_takeover: false,
        server_max_window_bits: None,
        client_max_window_bits: None,
    };

    fn accepted(offer: &DeflateOffer, value: &str) -> Result<String, &'static str> {
        offer.accept(value.as_bytes()).map(|negotiated| negotiated.to_string()).map_err(|unacceptable| unacceptable.0)
    }

    #[test]
    fn an_offer_has_the_parameters_that_are_set_and_lets_the_service_choose_the_clients_window() {
        assert_eq!(OFFER.header(), "permessage-deflate; client_max_window_bits");
        let all = DeflateOffer {
            server_no_context_takeover: true,
            client_no_context_takeover: true,
            server_max_window_bits: Some(10),
            client_max_window_bits: Some(9),
            ..OFFER
        };
        assert_eq!(
            all.header(),
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=10; \
             client_max_window_bits=9"
        );
    }

    #[test]
    fn what_a_response_leaves_out_is_the_default_and_what_it_adds_holds() {
        let windows = "server_max_window_bits=15; client_max_window_bits=15";
        assert_eq!(accepted(&OFFER, "permessage-deflate").unwrap(), format!("permessage-deflate; {windows}"));
        let all = "permessage-deflate; server_no_context_takeover; client_no_context_takeover; \
                   server_max_window_bits=8; client_max_window_bits=12";
        assert_eq!(accepted(&OFFER, all).unwrap(), all);
        let spaced = "permessage-deflate ;server_no_context_takeover;client_max_window_bits = \"10\"";
        assert!(accepted(&OFFER, spaced).unwrap().ends_with("client_max_window_bits=10"));
    }

    #[test]
    fn the_client_keeps_to_what_it_offered_where_the_response_does_not_mention_it() {
        let offer = DeflateOffer { client_no_context_takeover: true, client_max_window_bits: Some(10), ..OFFER };
        let expected =
            "permessage-deflate; client_no_context_takeover; server_max_window_bits=15; client_max_window_bits=10";
        assert_eq!(accepted(&offer, "permessage-deflate").unwrap(), expected);
    }

    #[test]
    fn a_response_that_the_rfc_forbids_is_refused() {
        for wrong in [
            "",
            "permessage-bzip2",
            "permessage-deflate, permessage-deflate",
            "permessage-deflate; unknown",
            "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; client_max_window_bits",
            "permessage-deflate; client_max_window_bits=7",
            "permessage-deflate; client_max_window_bits=16",
            "permessage-deflate; client_max_window_bits=010",
            "permessage-deflate; server_max_window_bits=",
            "permessage-deflate; server_max_window_bits=10; server_max_window_bits=10",
            "permessage-deflate;",
        ] {
            assert_eq!(accepted(&OFFER, wrong), Err("upgrade_deflate"), "{wrong:?}");
        }
        assert_eq!(OFFER.accept(b"permessage-deflate\xFF"), Err(UNACCEPTABLE));
    }

    #[test]
    fn a_response_beyond_the_offer_is_refused() {
        let bits = DeflateOffer { server_max_window_bits: Some(10), client_max_window_bits: Some(10), ..OFFER };
        let takeover = DeflateOffer { server_no_context_takeover: true, ..OFFER };
        for (offer, wrong) in [
            (&bits, "permessage-deflate"),
            (&bits, "permessage-deflate; server_max_window_bits=11"),
            (&bits, "permessage-deflate; server_max_window_bits=10; client_max_window_bits=11"),
            (&takeover, "permessage-deflate"),
        ] {
            assert_eq!(accepted(offer, wrong), Err("upgrade_deflate"), "{wrong:?}");
        }
        assert!(accepted(&bits, "permessage-deflate; server_max_window_bits=9; client_max_window_bits=9").is_ok());
    }

    #[test]
    fn a_window_of_eight_bits_is_possible_only_for_a_client_that_does_not_compress() {
        let response = "permessage-deflate; client_max_window_bits=8";
        assert_eq!(accepted(&OFFER, response), Err("deflate_window_too_small"));
        assert!(accepted(&DeflateOffer { compress_sent: false, ..OFFER }, response).is_ok());
    }
}
