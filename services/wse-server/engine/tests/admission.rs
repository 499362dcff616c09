//! Who is admitted: web pages of other sites, requests that proxies read in different ways, and tokens that expire.

mod client;

use client::{Client, SECRET, config, request, start, until};
use serde_json::json;
use wse_engine::{Config, Server};

/// The status with which the server answers a request with these headers, `Host: localhost` among them.
fn status(server: &Server, headers: &str) -> String {
    let mut client = Client::tcp(server.address());
    client.write(request("/wse", headers).as_bytes());
    client.http()[9..12].to_owned()
}

fn token() -> String {
    client::token(&client::claims(), SECRET)
}

#[test]
fn a_page_of_another_site_does_not_get_in_with_the_user_s_cookie() {
    let server = start(config());
    let cookie = format!("Cookie: access_token={}\r\n", token());
    for origin in ["https://evil.example", "null", "https://localhost.evil.example", "http://localhost:8080"] {
        assert_eq!(status(&server, &format!("Origin: {origin}\r\n{cookie}")), "403", "{origin}");
    }
    until("counting", || server.stats().connections.rejected.get("origin") == Some(&4));
    assert_eq!(status(&server, &format!("Origin: http://localhost\r\n{cookie}")), "101", "the same host");
    assert_eq!(status(&server, &cookie), "101", "a program that is not a browser sends no origin");
}

#[test]
fn a_token_that_no_browser_sends_by_itself_is_taken_from_pages_of_all_sites() {
    let server = start(config());
    let bearer = format!("Authorization: Bearer {}\r\n", token());
    assert_eq!(status(&server, &format!("Origin: https://evil.example\r\n{bearer}")), "101");
    let other_cookie = "Cookie: theme=dark; access_token=undefined\r\n";
    assert_eq!(status(&server, &format!("Origin: null\r\n{other_cookie}{bearer}")), "101", "the cookie holds no token");
}

#[test]
fn listed_origins_may_use_the_cookie() {
    let allowed_origins = vec!["https://app.example".to_owned()];
    let server = start(Config { allowed_origins: allowed_origins.clone(), ..config() });
    let cookie = format!("Cookie: access_token={}\r\n", token());
    assert_eq!(status(&server, &format!("Origin: https://app.example\r\n{cookie}")), "101");
    assert_eq!(status(&server, &format!("Origin: https://evil.example\r\n{cookie}")), "403");
    // An application that checks the cookie itself is protected as well, once it lists its origins.
    let server = start(Config { jwt: None, allowed_origins, ..config() });
    assert_eq!(status(&server, "Origin: https://evil.example\r\nCookie: a=b\r\n"), "403");
    assert_eq!(status(&server, "Origin: https://evil.example\r\n"), "101");
    let server = start(Config { jwt: None, ..config() });
    assert_eq!(status(&server, "Origin: https://evil.example\r\nCookie: a=b\r\n"), "101");
}

#[test]
fn a_request_with_a_body_or_two_hosts_is_not_upgraded() {
    let server = start(config());
    let bearer = format!("Authorization: Bearer {}\r\n", token());
    for headers in ["Host: other\r\n", "Transfer-Encoding: chunked\r\n", "Content-Length: 5\r\n"] {
        assert_eq!(status(&server, &format!("{bearer}{headers}")), "400", "{headers}");
    }
    assert_eq!(status(&server, &format!("{bearer}Content-Length: 0\r\n")), "101");
}

#[test]
fn a_connection_ends_with_its_token_where_that_is_wanted() {
    // The token has expired, and still admits clients because the issuer's clock may differ.
    let mut claims = client::claims();
    claims["exp"] = json!(claims["iat"].as_u64().unwrap() - 27);
    let bearer = format!("Authorization: Bearer {}\r\n", client::token(&claims, SECRET));
    let server = start(Config { disconnect_at_expiry: true, ..config() });
    let (_lasting, lasting_id) = Client::ready(server.address());
    let mut client = Client::open_with(server.address(), "/wse", &bearer);
    client.text();
    assert_eq!(client.close_code(), Some(4401));
    drop(client);
    until("counting", || server.stats().connections.closed.get("expired") == Some(&1));
    assert_eq!(server.connections(), [lasting_id], "the other's token lasts for an hour");
}
