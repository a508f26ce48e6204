//! The parameter `w=` in the URL of a request, which names the worker of a Shiny session. A browser
//! has one session cookie for all pages of an app, but each page has its own `w=`. The parameter
//! therefore also works if several pages are open or if the browser rejects cookies.

use crate::worker_id::WorkerId;

/// The value of the parameter `w=` in the URL of a request, which names the worker of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) enum UrlAffinity {
    /// The URL's query has no valid `w=` parameter.
    Absent,
    /// The request belongs to a session at this worker. The worker may have ended.
    Worker(WorkerId),
    /// The request belongs to no worker, because `w=` is empty. Rookery's script in the page sends
    /// an empty `w=` after the page's WebSocket has ended.
    NewSession,
}

/// Reads the parameter `w=`, which names a worker, from a query. The query may begin with `?`.
pub(in crate::pool) fn read_query(query: &[u8]) -> UrlAffinity {
    let query = query.strip_prefix(b"?").unwrap_or(query);
    let mut values = query.split(|byte| *byte == b'&').filter_map(|pair| pair.strip_prefix(b"w="));
    match values.next() {
        Some(b"") => UrlAffinity::NewSession,
        Some(text) => WorkerId::parse(text).map_or(UrlAffinity::Absent, UrlAffinity::Worker),
        None => UrlAffinity::Absent,
    }
}

/// Returns true if a query consists only of the parameter `w=`, which names a worker. Such a query
/// was added by Rookery's script in the page and is not passed to the app.
pub(in crate::pool) fn is_only_affinity(query: &[u8]) -> bool {
    query
        .strip_prefix(b"?w=")
        .is_some_and(|value| value.is_empty() || WorkerId::parse(value).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00112233445566778899aabbccddeeff";

    #[test]
    fn reads_the_affinity_of_a_query() {
        let id = WorkerId::parse(ID.as_bytes()).unwrap();
        for (query, expected, is_only) in [
            (format!("?w={ID}"), UrlAffinity::Worker(id), true),
            (format!("?w={ID}&nonce=1"), UrlAffinity::Worker(id), false),
            (format!("?a=w&w={ID}"), UrlAffinity::Worker(id), false),
            // Only the first `w=` counts, even if its value is invalid.
            (format!("?w=x&w={ID}"), UrlAffinity::Absent, false),
            ("?w=".to_owned(), UrlAffinity::NewSession, true),
            ("?w=&b=1".to_owned(), UrlAffinity::NewSession, false),
            ("?w".to_owned(), UrlAffinity::Absent, false),
            (format!("?ww={ID}"), UrlAffinity::Absent, false),
            (format!("?w={ID}0"), UrlAffinity::Absent, false),
            ("?".to_owned(), UrlAffinity::Absent, false),
            (String::new(), UrlAffinity::Absent, false),
        ] {
            assert_eq!(read_query(query.as_bytes()), expected, "{query}");
            assert_eq!(is_only_affinity(query.as_bytes()), is_only, "{query}");
        }
    }
}
