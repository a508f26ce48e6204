//! Chooses the format of an error response from the request's `Accept` header and the client's
//! address.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rookery_exchange::Exchange;

use crate::{core, entry};

/// The value of `enum rk_error_format` (in rookery.h) that means an error response in plain text.
const TEXT: c_int = 0;
const JSON: c_int = 1;
const PAGE: c_int = 2;

/// Returns the format of the error response to a request: text, JSON, or a page with details. The
/// format is text if R does not hold the request.
#[unsafe(no_mangle)]
pub extern "C" fn rk_error_format(slot: u32, id: u64) -> c_int {
    entry(TEXT, || {
        core::with(|core| core.held(slot, id).map_or(TEXT, |exchange| error_format(exchange)))
    })
}

fn error_format(exchange: &Exchange) -> c_int {
    let accept = exchange.header(b"accept").unwrap_or_default();
    if accepts(accept, b"text/html") {
        if is_of_this_machine(exchange) { PAGE } else { TEXT }
    } else if accepts(accept, b"application/json") || accepts(accept, b"application/problem+json") {
        JSON
    } else {
        TEXT
    }
}

fn accepts(accept: &[u8], kind: &[u8]) -> bool {
    accept.split(|byte| *byte == b',').any(|range| {
        let name = range.split(|byte| *byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(kind)
    })
}

/// The headers by which a proxy passes on the address of its client.
const FORWARDED: [&[u8]; 5] =
    [b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"];

/// Returns true if the client is a developer's own browser on this machine, which may see details
/// of an error. Returns false if a proxy has forwarded the request. Also returns false if the
/// `Host` header does not name this machine, because a page of another site may then have made the
/// request (DNS rebinding).
fn is_of_this_machine(exchange: &Exchange) -> bool {
    exchange.remote().is_some_and(|remote| remote.ip().to_canonical().is_loopback())
        && !FORWARDED.iter().any(|name| exchange.header(name).is_some())
        && exchange.header(b"host").is_some_and(is_loopback_host)
}

fn is_loopback_host(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => {
            return address
                .parse::<Ipv6Addr>()
                .is_ok_and(|ip| IpAddr::V6(ip).to_canonical().is_loopback());
        }
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let is_localhost = |label: &str| label.eq_ignore_ascii_case("localhost");
    is_localhost(name.rsplit('.').next().unwrap_or_default())
        || name.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use rookery_exchange::Version;

    use super::*;

    fn format_for(remote: Option<&str>, headers: &[(&str, &str)]) -> c_int {
        let mut exchange = Exchange::new();
        exchange.set_request_line(b"GET", b"/", Version::Http11);
        for (name, value) in headers {
            exchange.push_header(name.as_bytes(), value.as_bytes());
        }
        exchange.end_head(remote.map(|at| at.parse().unwrap()), None, false);
        error_format(&exchange)
    }

    #[test]
    fn the_accept_header_chooses_the_format() {
        let local = |accept| {
            format_for(Some("127.0.0.1:1"), &[("accept", accept), ("host", "localhost:80")])
        };
        for (accept, expected) in [
            ("*/*", TEXT),
            ("application/json", JSON),
            ("text/plain, Application/Problem+JSON ;q=0.5", JSON),
            ("application/json, text/html;q=0.5", PAGE),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", PAGE),
            ("text/htmlx", TEXT),
        ] {
            assert_eq!(local(accept), expected, "{accept}");
        }
        assert_eq!(format_for(Some("127.0.0.1:1"), &[("host", "localhost")]), TEXT);
    }

    #[test]
    fn only_this_machine_gets_a_page() {
        let page = |remote, host, also: &[(&str, &str)]| {
            format_for(remote, &[&[("accept", "text/html"), ("host", host)], also].concat())
        };
        let local = Some("127.0.0.1:1");
        for host in [
            "localhost",
            "LOCALHOST:8000",
            "app.localhost:1",
            "127.0.0.1:80",
            "127.9.9.9",
            "[::1]:80",
            "[::1]",
        ] {
            assert_eq!(page(local, host, &[]), PAGE, "{host}");
            assert_eq!(page(Some("[::1]:1"), host, &[]), PAGE, "{host}");
            assert_eq!(page(Some("[::ffff:127.0.0.1]:1"), host, &[]), PAGE, "{host}");
            assert_eq!(page(Some("192.0.2.1:1"), host, &[]), TEXT, "{host}");
            assert_eq!(page(None, host, &[]), TEXT, "{host}: a Unix socket is a proxy's");
        }
        for host in [
            "example.org",
            "localhost.example.org",
            "127.0.0.1.example.org",
            "0.0.0.0",
            "[::2]",
            "[::1",
            "notlocalhost",
            "",
        ] {
            assert_eq!(page(local, host, &[]), TEXT, "{host}");
        }
        for name in ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"] {
            assert_eq!(page(local, "localhost", &[(name, "1")]), TEXT, "{name}");
        }
        assert_eq!(format_for(local, &[("accept", "text/html")]), TEXT, "no Host");
    }
}
