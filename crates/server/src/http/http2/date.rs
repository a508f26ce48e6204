//! The date of a reply, which hyper adds over HTTP/1.1 (RFC 9110, 6.6.1): made once a second.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderValue;

thread_local! {
    /// The last one, and the second that it is of.
    static LAST: RefCell<Option<(u64, HeaderValue)>> = const { RefCell::new(None) };
}

/// That of now.
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
