//! Which web pages may use a user's cookie (RFC 6454).
//!
//! A browser sends the cookie with every page's request, also with that of a page of another site, and says in `Origin`
//! which page it is. Programs that aren't browsers send what they like there: the check protects users, not the server.

/// Why a configured origin is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "allowed_origins has {given:?}, which is not an origin: give scheme, host and, if it is not the scheme's own, the port, as \"https://app.example:8443\", or \"*\" for every page"
)]
pub struct OriginError {
    /// The origin as it was given.
    pub given: String,
}

/// The entry that allows every page, those without an origin (`null`) included.
const EVERY: &str = "*";

/// Checks that a configured text is an origin, as browsers write them, or `*`.
///
/// # Errors
/// [`OriginError`] if it isn't.
pub(crate) fn check(given: &str) -> Result<(), OriginError> {
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', '@', '*', ' ', ',']);
    match given == EVERY || Origin::of(given).is_some_and(|origin| is_host(origin.authority)) {
        true => Ok(()),
        false => Err(OriginError { given: given.into() }),
    }
}

/// Whether a page of `origin` may use the cookies that its request carries: a page of the server's own host, by the
/// request's `Host`, or of one of `allowed`.
pub(crate) fn is_allowed(origin: &str, host: &str, allowed: &[String]) -> bool {
    if allowed.iter().any(|allowed| allowed == EVERY) {
        return true;
    }
    let Some(origin) = Origin::of(origin) else { return false };
    origin.is_of(host) || allowed.iter().filter_map(|allowed| Origin::of(allowed)).any(|allowed| origin.is(&allowed))
}

/// Scheme, and host with or without a port.
struct Origin<'a> {
    scheme: &'a str,
    authority: &'a str,
}

impl<'a> Origin<'a> {
    /// `None` for the origin `null`, which a page without an address has.
    fn of(text: &'a str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        Some(Self { scheme, authority })
    }

    fn is(&self, other: &Self) -> bool {
        self.scheme.eq_ignore_ascii_case(other.scheme) && self.is_of(other.authority)
    }

    /// Whether it has this host and port. A host without a port has the scheme's own.
    fn is_of(&self, host: &str) -> bool {
        let (own, other) = (self.without_port(self.authority), self.without_port(host));
        !own.is_empty() && own.eq_ignore_ascii_case(other)
    }

    /// A host without the port that the scheme has where none is named.
    fn without_port<'b>(&self, host: &'b str) -> &'b str {
        let port = match self.scheme {
            scheme if scheme.eq_ignore_ascii_case("https") => ":443",
            scheme if scheme.eq_ignore_ascii_case("http") => ":80",
            _ => return host,
        };
        host.strip_suffix(port).unwrap_or(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_the_same_host_and_port_is_allowed_and_no_other() {
        for (origin, host) in [
            ("https://app.example", "app.example"),
            ("https://App.Example", "app.example:443"),
            ("http://app.example:80", "app.example"),
            ("http://localhost:5006", "localhost:5006"),
            ("http://[::1]:5006", "[::1]:5006"),
        ] {
            assert!(is_allowed(origin, host, &[]), "{origin} {host}");
        }
        for (origin, host) in [
            ("https://evil.example", "app.example"),
            ("https://app.example.evil.example", "app.example"),
            ("https://app.example:8443", "app.example"),
            ("http://app.example:443", "app.example"),
            ("http://app.example", "app.example:443"),
            ("null", "null"),
            ("", ""),
            ("https://", ""),
            ("app.example", "app.example"),
        ] {
            assert!(!is_allowed(origin, host, &[]), "{origin} {host}");
        }
    }

    #[test]
    fn listed_origins_are_allowed_with_their_scheme_and_a_star_allows_all() {
        let allowed = |origin: &str, list: &[&str]| {
            is_allowed(origin, "api.example", &list.iter().map(|origin| (*origin).to_owned()).collect::<Vec<_>>())
        };
        let list = ["https://app.example", "http://localhost:3000"];
        assert!(allowed("https://app.example", &list) && allowed("http://localhost:3000", &list));
        assert!(allowed("https://api.example", &list), "the same host is always allowed");
        assert!(
            !allowed("http://app.example", &list) && !allowed("http://localhost", &list) && !allowed("null", &list)
        );
        assert!(allowed("null", &["*"]) && allowed("https://evil.example", &["*"]));
    }

    #[test]
    fn an_invalid_origin_is_refused_and_the_error_shows_a_valid_one() {
        for good in ["https://app.example", "http://localhost:3000", "https://[::1]", "*"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["", "null", "app.example", "https://", "https://app.example/", "https://*.example", "https://a b"] {
            let error = check(bad).unwrap_err().to_string();
            assert!(error.starts_with(&format!("allowed_origins has {bad:?}")), "{error}");
        }
    }
}
