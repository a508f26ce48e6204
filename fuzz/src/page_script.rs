//! The insertion of a script into pages of an app, with the page's policy.

use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use rookery_server::PageScript;

/// Inserts a script into a page. The first line of `data` is the page's policy, and the rest is the
/// page. The page must stay the same apart from one script element, whose nonce cannot end its
/// attribute.
pub fn page_script(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (policy, page) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
    if let Ok(policy) = HeaderValue::from_bytes(policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    let script = PageScript::new("reload.js");
    let Some(changed) = script.insert(1, StatusCode::OK, &mut headers, page, |_| ()) else {
        return;
    };
    let same = changed.iter().zip(page).take_while(|(a, b)| a == b).count();
    let added = changed.len() - page.len();
    // The page may continue with the bytes with which the element begins.
    let is_inserted = (0..=same).rev().any(|at| {
        let element = &changed[at..at + added];
        changed[at + added..] == page[at..]
            && element.starts_with(b"<script src=\"")
            && element.ends_with(b"></script>")
            && element.iter().filter(|byte| matches!(byte, b'<' | b'>')).count() == 4
            && element.iter().filter(|byte| **byte == b'"').count() % 2 == 0
    });
    assert!(is_inserted, "{:?}", String::from_utf8_lossy(&changed));
}
