//! The header map of a request, which the server keeps for the response.
//!
//! A map of many headers takes much more memory than their lines: about 150 bytes for each. It is
//! therefore not kept while the application has the request or the response waits for its client.

use http::header::{ACCEPT, CONNECTION, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue};

use super::head::{TRACEPARENT, X_REQUEST_ID, has_token};

/// The largest capacity of a header map that is included in the charge of each connection in use.
/// A map of up to 48 header lines has this capacity.
const MAX_CAPACITY: usize = 48;

/// The maximum length in bytes of a header value that is kept from a large map.
const MAX_VALUE: usize = 1024;

/// The maximum number of values of a header that are kept from a large map.
const MAX_VALUES: usize = 8;

/// Returns true if the memory of a header map must not be kept.
pub(crate) fn is_large(headers: &HeaderMap) -> bool {
    headers.capacity() > MAX_CAPACITY
}

/// Removes all headers from a map, which a response then reuses. Frees the memory of a large map.
pub(crate) fn clear(headers: &mut HeaderMap) {
    if is_large(headers) {
        *headers = HeaderMap::new();
    } else {
        headers.clear();
    }
}

/// Returns a small map with the headers of a request on which its response depends.
pub(crate) fn compact(headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for name in [&ACCEPT, &X_REQUEST_ID, &TRACEPARENT] {
        let values = headers.get_all(name).iter().filter(|value| value.len() <= MAX_VALUE);
        for value in values.take(MAX_VALUES) {
            kept.append(name, value.clone());
        }
    }
    let mut connection = headers.get_all(CONNECTION).iter();
    if connection.any(|value| has_token(value.as_bytes(), b"close")) {
        kept.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(coding) = headers.get(TRANSFER_ENCODING) {
        kept.insert(TRANSFER_ENCODING, coding.clone());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compact_map_has_what_the_response_depends_on() {
        let mut headers = HeaderMap::new();
        for _ in 0..1000 {
            headers.append(ACCEPT, HeaderValue::from_static("text/html"));
            headers.append(CONNECTION, HeaderValue::from_static("x"));
        }
        headers.append("x-other", HeaderValue::from_static("1"));
        headers.append(&TRACEPARENT, HeaderValue::from_static("t"));
        headers.append(&X_REQUEST_ID, HeaderValue::from_bytes(&[b'x'; MAX_VALUE + 1]).unwrap());
        headers.append(CONNECTION, HeaderValue::from_static("upgrade, Close"));
        headers.append(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        let kept = compact(&headers);
        assert!(!is_large(&kept));
        let count = |name: &http::HeaderName| kept.get_all(name).iter().count();
        assert_eq!((kept.len(), count(&ACCEPT), count(&TRACEPARENT)), (11, MAX_VALUES, 1));
        assert_eq!(kept[CONNECTION], "close");
        assert_eq!(kept[TRANSFER_ENCODING], "chunked");
    }

    #[test]
    fn a_large_map_is_not_reused() {
        let mut headers = HeaderMap::new();
        for at in 0..48 {
            headers.insert(
                http::HeaderName::try_from(format!("x-{at}")).unwrap(),
                HeaderValue::from(at),
            );
        }
        assert!(!is_large(&headers));
        clear(&mut headers);
        assert!(headers.is_empty() && headers.capacity() > 0);
        for at in 0..49 {
            headers.insert(
                http::HeaderName::try_from(format!("x-{at}")).unwrap(),
                HeaderValue::from(at),
            );
        }
        assert!(is_large(&headers));
        clear(&mut headers);
        assert_eq!(headers.capacity(), 0);
    }
}
