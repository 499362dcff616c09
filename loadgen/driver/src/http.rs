//! The HTTP client for everything that is read from services, pods and operators.
//!
//! These are not trusted with this process's memory, its time or its connections: a body has a bound, a request ends,
//! and a redirect is an answer like any other, because following it would make this process ask others.

use std::time::Duration;

use reqwest::{Client, Response, StatusCode, redirect::Policy};

/// Most bytes of a body: the books of 500 000 connections have about as many.
pub const LARGEST_BODY: usize = 64 << 20;
/// Longest wait for a connection.
const CONNECTING: Duration = Duration::from_secs(10);

/// How long a connection is kept for the next request: less than servers keep it ([`crate::http_server::LONGEST_HEAD`]),
/// so that none is closed under a request.
const IDLE: Duration = Duration::from_secs(10);

/// Why there is no response, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// No response came, or it broke off.
    #[error("{}", chain(.0))]
    Request(#[from] reqwest::Error),
    /// The body is longer than the bound.
    #[error("the answer has more than {0} bytes")]
    TooLarge(u64),
}

/// A client without proxy and without redirects, whose bodies are bounded.
#[derive(Clone, Debug)]
pub struct HttpClient(Client);

impl HttpClient {
    /// Creates a client whose requests end, body included, after `patience`.
    pub fn new(patience: Duration) -> Self {
        Self::build(Client::builder().timeout(patience))
    }

    /// Creates a client for files of any length: each part of a body must come within `patience`.
    pub fn for_files(patience: Duration) -> Self {
        Self::build(Client::builder().read_timeout(patience))
    }

    fn build(builder: reqwest::ClientBuilder) -> Self {
        let builder = builder.no_proxy().redirect(Policy::none()).connect_timeout(CONNECTING).pool_idle_timeout(IDLE);
        Self(builder.build().expect("no option of it can fail"))
    }

    /// The status of a page; its body isn't read.
    ///
    /// # Errors
    /// [`HttpError::Request`] if there is no response.
    pub async fn status(&self, url: &str) -> Result<StatusCode, HttpError> {
        Ok(self.open(url).await?.status())
    }

    /// The status and the body of a page.
    ///
    /// # Errors
    /// [`HttpError`] if there is no response or its body exceeds [`LARGEST_BODY`].
    pub async fn get(&self, url: &str) -> Result<(StatusCode, Vec<u8>), HttpError> {
        let response = self.open(url).await?;
        let status = response.status();
        Ok((status, body(response, LARGEST_BODY as u64).await?))
    }

    /// A response whose body hasn't been read.
    ///
    /// # Errors
    /// [`HttpError::Request`] if there is none.
    pub async fn open(&self, url: &str) -> Result<Response, HttpError> {
        Ok(self.0.get(url).send().await?)
    }
}

/// Reads a body of at most `most` bytes.
///
/// # Errors
/// [`HttpError`] if it breaks off or is longer. The rest isn't read then.
pub async fn body(mut response: Response, most: u64) -> Result<Vec<u8>, HttpError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if (bytes.len() + chunk.len()) as u64 > most {
            return Err(HttpError::TooLarge(most));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// An error with its causes, on one line. A cause whose text is already included isn't repeated.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut description = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !description.contains(&more) {
            description = format!("{description}: {more}");
        }
        source = cause.source();
    }
    description
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering::Relaxed},
        },
        thread,
    };

    use axum::{Router, response::Redirect, routing::get};
    use tokio::net::TcpListener;

    use super::*;

    /// Serves routes on a free port; returns the URL.
    async fn serve(routes: Router) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, routes).await });
        url
    }

    /// Answers each connection with a page of spaces that never ends; returns the URL.
    fn endless() -> String {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    // A response before its request would be an error.
                    let _ = stream.read(&mut [0; 1024]);
                    let mut more = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
                    while more.is_ok() {
                        more = stream.write_all(&[b' '; 1 << 16]);
                    }
                });
            }
        });
        url
    }

    #[tokio::test]
    async fn a_page_that_never_ends_is_given_up_at_the_bound() {
        let url = endless();
        let client = HttpClient::new(Duration::from_secs(600));
        let error = body(client.open(&url).await.unwrap(), 1 << 20).await.unwrap_err();
        assert_eq!(error.to_string(), "the answer has more than 1048576 bytes");
        assert!(matches!(client.get(&url).await, Err(HttpError::TooLarge(most)) if most == LARGEST_BODY as u64));
    }

    #[tokio::test]
    async fn a_redirect_is_not_followed() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let secret = move || async move {
            count.fetch_add(1, Relaxed);
            "secret"
        };
        let other = serve(Router::new().route("/", get(secret))).await;
        let url = serve(Router::new().route("/", get(move || async move { Redirect::temporary(&other) }))).await;
        let (status, body) = HttpClient::new(Duration::from_secs(60)).get(&url).await.unwrap();
        assert_eq!((status.as_u16(), body.as_slice()), (307, &b""[..]));
        assert_eq!(asked.load(Relaxed), 0);
    }
}
