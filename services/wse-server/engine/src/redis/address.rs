//! The address and credentials of a Redis, from a URL. Error messages never quote the URL: any part of it may contain a
//! password.

use std::fmt;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

/// The port of a URL that names none.
const PORT: u16 = 6379;

/// Why a text is not a valid Redis URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It can't be parsed as a URL.
    #[error("{FORM}: this one can't be read ({0})")]
    Unreadable(url::ParseError),
    /// It has another scheme than `redis`.
    #[error("{FORM}: this one has another scheme")]
    Scheme,
    /// It has the scheme `rediss` (TLS), which is not supported.
    #[error("{FORM}: rediss:// (TLS) is not supported, put a TLS tunnel beside the server")]
    Tls,
    /// It has no host.
    #[error("{FORM}: this one has no host")]
    Host,
    /// Its path is not a database number.
    #[error("{FORM}: this one's database is not a number from 0 to 4294967295")]
    Database,
    /// It has a query or a fragment.
    #[error("{FORM}: this one has a query or a fragment ('?' or '#'), which is not supported")]
    Extra,
    /// Its host, user or password isn't UTF-8 after percent-decoding.
    #[error("{FORM}: this one's host, user or password is not UTF-8 after percent-decoding")]
    Credentials,
}

const FORM: &str = "a Redis URL is redis://[[user]:password@]host[:port][/database]";

/// The address of a Redis, with the credentials to log in. `Display` and `Debug` omit the credentials.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: u32,
}

impl Address {
    /// Parses a URL. Without a port it means 6379, without a path database 0.
    pub(super) fn parse(url: &str) -> Result<Self, AddressError> {
        let url = Url::parse(url.trim()).map_err(AddressError::Unreadable)?;
        match url.scheme() {
            "redis" => {}
            "rediss" => return Err(AddressError::Tls),
            _ => return Err(AddressError::Scheme),
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(AddressError::Extra);
        }
        let host = match url.host() {
            Some(Host::Domain(name)) if !name.is_empty() => decoded(name)?,
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            Some(Host::Domain(_)) | None => return Err(AddressError::Host),
        };
        let database = match url.path().trim_start_matches('/') {
            "" => 0,
            database => database.parse().map_err(|_| AddressError::Database)?,
        };
        let user = Some(url.username()).filter(|user| !user.is_empty()).map(decoded).transpose()?;
        let password = url.password().map(decoded).transpose()?;
        Ok(Self { host, port: url.port().unwrap_or(PORT), user, password, database })
    }
}

fn decoded(text: &str) -> Result<String, AddressError> {
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| AddressError::Credentials)?;
    Ok(decoded.into_owned())
}

/// Host and port without user and password; an IPv6 address is in brackets.
impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(formatter, "[{}]:{}", self.host, self.port),
            false => write!(formatter, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_parts_of_a_url_have_their_defaults() {
        let plain = Address::parse("redis://localhost").unwrap();
        assert_eq!((plain.to_string().as_str(), plain.database), ("localhost:6379", 0));
        assert_eq!((plain.user, plain.password), (None, None));
        let full = Address::parse("redis://ann:p%40ss%2Fword@[::1]:7000/3").unwrap();
        assert_eq!((full.to_string().as_str(), full.database), ("[::1]:7000", 3));
        assert_eq!((full.user.as_deref(), full.password.as_deref()), (Some("ann"), Some("p@ss/word")));
        let old = Address::parse("redis://:secret@10.0.0.1/").unwrap();
        assert_eq!((old.host.as_str(), old.user, old.password.as_deref()), ("10.0.0.1", None, Some("secret")));
    }

    #[test]
    fn an_error_never_contains_the_url() {
        for (url, why) in [
            ("hunter2", "can't be read"),
            ("hunter2://host", "another scheme"),
            ("rediss://:hunter2@host", "TLS"),
            ("redis://", "no host"),
            ("redis://:hunter2@", "can't be read"),
            ("redis://u:hun/ter2@host", "can't be read"),
            ("redis://:h@host:hunter2", "can't be read"),
            ("redis://host:123456", "can't be read"),
            ("redis://host/hunter2", "database"),
            ("redis://host/-1", "database"),
            ("redis://host/0?password=hunter2", "'?'"),
            ("redis://host/0#hunter2", "'?'"),
            ("redis://:%ffhunter2@host", "UTF-8"),
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("hunter2") && !error.contains("ter2"), "{url}: {error}");
        }
    }

    #[test]
    fn a_logged_address_contains_no_secret() {
        let address = Address::parse("redis://ann:hunter2@host/1").unwrap();
        assert_eq!((format!("{address:?}"), address.to_string()), ("Address(host:6379)".into(), "host:6379".into()));
    }
}
