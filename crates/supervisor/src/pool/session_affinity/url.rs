//! What the URL of a request says of its worker. A cookie is the browser's, and `w=` is the page's: with two pages open, or where cookies
//! are refused, only that says whose something is.

use crate::worker_id::WorkerId;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) enum UrlAffinity {
    /// Nothing.
    Absent,
    /// It is of this worker, if that is still there.
    Worker(WorkerId),
    /// That its worker is not to be gone back to: `w=` with nothing behind it, which our script sends when a page's WebSocket has ended.
    NewSession,
}

/// What a query tells; it may begin with `?`.
pub(in crate::pool) fn told(query: &[u8]) -> UrlAffinity {
    let query = query.strip_prefix(b"?").unwrap_or(query);
    let mut values = query.split(|byte| *byte == b'&').filter_map(|pair| pair.strip_prefix(b"w="));
    match values.next() {
        Some(b"") => UrlAffinity::NewSession,
        Some(text) => WorkerId::parse(text).map_or(UrlAffinity::Absent, UrlAffinity::Worker),
        None => UrlAffinity::Absent,
    }
}

/// Whether there is nothing in a query but what our script has put there: the app is not to see it, since without us it would not be there.
pub(in crate::pool) fn is_ours_alone(query: &[u8]) -> bool {
    query
        .strip_prefix(b"?w=")
        .is_some_and(|value| value.is_empty() || WorkerId::parse(value).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00112233445566778899aabbccddeeff";

    #[test]
    fn what_a_query_tells() {
        let id = WorkerId::parse(ID.as_bytes()).unwrap();
        for (query, expected, ours) in [
            (format!("?w={ID}"), UrlAffinity::Worker(id), true),
            (format!("?w={ID}&nonce=1"), UrlAffinity::Worker(id), false),
            (format!("?a=w&w={ID}"), UrlAffinity::Worker(id), false),
            // The first counts, whatever it is.
            (format!("?w=x&w={ID}"), UrlAffinity::Absent, false),
            ("?w=".to_owned(), UrlAffinity::NewSession, true),
            ("?w=&b=1".to_owned(), UrlAffinity::NewSession, false),
            ("?w".to_owned(), UrlAffinity::Absent, false),
            (format!("?ww={ID}"), UrlAffinity::Absent, false),
            (format!("?w={ID}0"), UrlAffinity::Absent, false),
            ("?".to_owned(), UrlAffinity::Absent, false),
            (String::new(), UrlAffinity::Absent, false),
        ] {
            assert_eq!(told(query.as_bytes()), expected, "{query}");
            assert_eq!(is_ours_alone(query.as_bytes()), ours, "{query}");
        }
    }
}
