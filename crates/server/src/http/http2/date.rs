//! The `Date` header of HTTP/2 responses (RFC 9110, 6.6.1), formatted once a second. Over HTTP/1.1,
//! hyper adds the header.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderValue;

thread_local! {
    /// The last value of the `Date` header, and the Unix time in seconds for which it was
    /// formatted.
    static LAST: RefCell<Option<(u64, HeaderValue)>> = const { RefCell::new(None) };
}

/// Returns the current value of the `Date` header.
pub(super) fn now() -> HeaderValue {
    let time = SystemTime::now();
    let second = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    LAST.with_borrow_mut(|last| match last {
        Some((of, value)) if *of == second => value.clone(),
        _ => {
            let text = httpdate::fmt_http_date(time);
            let value = HeaderValue::try_from(text).expect("a date is printable");
            *last = Some((second, value.clone()));
            value
        }
    })
}
