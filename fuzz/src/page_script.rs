//! The insertion of a script into pages of an app, with the page's policy.

use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use rookery_server::PageScript;

/// Inserts a script into a page. The first line of `data` is the page's policy, and the rest is the
/// page. The page must stay the same apart from one script element, whose nonce cannot end its
/// attribute. The script must not be inserted into the page if the page is a quoted value or a
/// comment.
pub fn page_script(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (policy, page) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
    if let Ok(policy) = HeaderValue::from_bytes(policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    let script = PageScript::new("reload.js");
    check_quoted(&script, page);
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

/// Checks that the script is not inserted into `text` where that is the value of an attribute or a
/// comment of a page.
fn check_quoted(script: &PageScript, text: &[u8]) {
    for (start, end) in [
        (&b"<p title=\""[..], &b"\">"[..]),
        (b"<p id=a title = '", b"'/>"),
        (b"<title>t</title><input/value='", b"'disabled>"),
        (b"<!-- ", b" -->"),
    ] {
        let is_ended = match start.last() {
            Some(b' ') => text.windows(2).any(|two| two == b"--"),
            quote => quote.is_some_and(|quote| text.contains(quote)),
        };
        if is_ended {
            continue;
        }
        let page = [start, text, end, b"</head>"].concat();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
        let changed = script.insert(1, StatusCode::OK, &mut headers, &page, |_| ());
        let changed = changed.expect("the page has an end of its head");
        let kept = page.len() - b"</head>".len();
        assert!(
            changed.starts_with(&page[..kept]) && changed[kept..].starts_with(b"<script src="),
            "{:?}",
            String::from_utf8_lossy(&changed)
        );
    }
}
