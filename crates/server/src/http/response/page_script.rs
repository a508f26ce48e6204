//! The insertion of a script into the pages of an app, by which a page that is open in a browser
//! learns that the app has changed. Used only for development.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};

use content_security_policy::{Permission, permission};
use html_scan::HtmlScan;

mod content_security_policy;
mod html_scan;

/// The maximum length in bytes of a page into which the script is inserted.
pub const MAX_PAGE_SIZE: u64 = 4 << 20;

/// The header in which a browser says what it needs the response for.
const DESTINATION: &str = "sec-fetch-dest";

/// Headers of a response whose body must not be changed, because they describe the exact bytes.
const DIGESTS: [&str; 5] = ["content-digest", "repr-digest", "digest", "content-md5", "signature"];

/// The script that is inserted into HTML pages, as a `<script>` element with a URL of the same
/// server. Listeners that share the script also share its [version](Self::set_version).
#[derive(Debug)]
pub struct PageScript {
    /// The path of the script without a slash at its beginning.
    path: &'static str,
    version: AtomicU64,
    /// Whether the notice about a policy that forbids the script has been given.
    has_noticed: AtomicBool,
}

impl PageScript {
    /// Creates a script with version 0. `path` is the path of its URL, without a slash at its
    /// beginning.
    pub fn new(path: &'static str) -> PageScript {
        PageScript { path, version: AtomicU64::new(0), has_noticed: AtomicBool::new(false) }
    }

    /// Returns true if a path belongs to the folder of the script, whose requests the application
    /// gets although a static path may match them.
    pub(crate) fn is_reserved(&self, path: &str) -> bool {
        let folder = self.path.rfind('/').map_or(self.path, |end| &self.path[..=end]);
        path.strip_prefix('/').is_some_and(|path| path.starts_with(folder))
    }

    /// Sets the version of the app. Each page contains the version that was current when the page
    /// was sent.
    pub fn set_version(&self, version: u64) {
        self.version.store(version, Ordering::Release);
    }

    /// Returns the version of the app.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Inserts the script into the body of a response, and corrects the headers. Returns `None`,
    /// and leaves the headers unchanged, if the response is not an HTML page or must stay as it is.
    ///
    /// `depth` is the number of folders in the path of the page's URL. `notice` is called with the
    /// reason, at most once per `PageScript`, if the page's Content Security Policy forbids the
    /// script.
    pub fn insert(
        &self,
        depth: u16,
        status: StatusCode,
        headers: &mut HeaderMap,
        body: &[u8],
        notice: impl FnOnce(&str),
    ) -> Option<Bytes> {
        if !is_page(status, headers) {
            return None;
        }
        let scan = html_scan::scan(body);
        let at = scan.end_of_head.or(scan.end_of_body)?;
        let policies = headers.get_all(CONTENT_SECURITY_POLICY);
        let nonce = match permission(policies.iter().map(HeaderValue::as_bytes)) {
            Permission::Granted => None,
            Permission::WithNonce if scan.nonce.is_some() => scan.nonce,
            Permission::WithNonce | Permission::Denied => {
                if !self.has_noticed.swap(true, Ordering::Relaxed) {
                    notice(
                        "the page does not reload by itself, because its Content-Security-Policy \
                         forbids scripts or connections of this server (`script-src 'self'; \
                         connect-src 'self'` allows them)",
                    );
                }
                return None;
            }
        };
        let mut page = Vec::with_capacity(body.len() + 160);
        page.extend_from_slice(&body[..at]);
        self.write_element(&mut page, depth, &scan, nonce);
        page.extend_from_slice(&body[at..]);
        correct_headers(headers);
        Some(page.into())
    }

    fn write_element(
        &self,
        out: &mut Vec<u8>,
        depth: u16,
        scan: &HtmlScan<'_>,
        nonce: Option<&[u8]>,
    ) {
        out.extend_from_slice(b"<script src=\"");
        if scan.has_base {
            out.push(b'/');
        } else {
            // A relative URL also reaches this server through a proxy that serves the app below a
            // path of its own, such as that of RStudio Server.
            (0..depth).for_each(|_| out.extend_from_slice(b"../"));
        }
        out.extend_from_slice(self.path.as_bytes());
        out.extend_from_slice(b"\" data-version=\"");
        out.extend_from_slice(self.version().to_string().as_bytes());
        out.push(b'"');
        if let Some(nonce) = nonce {
            out.extend_from_slice(b" nonce=\"");
            out.extend_from_slice(nonce);
            out.push(b'"');
        }
        out.extend_from_slice(b"></script>");
    }
}

/// Returns the number of folders in the path of a request for a page. Returns `None` if the
/// response to the request is not shown as a page, such as the response to a script's request.
pub(crate) fn page_depth(head: &Parts) -> Option<u16> {
    let has_destination = |destination: &HeaderValue| {
        matches!(destination.as_bytes(), b"document" | b"iframe" | b"frame")
    };
    let is_page = head.method == Method::GET
        && head.version >= Version::HTTP_11
        && head.headers.get(DESTINATION).is_none_or(has_destination);
    let folders = head.uri.path().bytes().filter(|byte| *byte == b'/').count();
    is_page.then(|| u16::try_from(folders.saturating_sub(1)).ok()).flatten()
}

/// Removes the conditions of a browser's request for a page. The browser may have a copy from
/// before the development mode, which has no script. Browsers do not send `Sec-Fetch-Dest` over
/// plain HTTP from another machine, but they accept HTML only for pages, and not for images or in
/// `fetch()`.
pub(crate) fn remove_conditions(head: &mut Parts) {
    let accepts_html = || {
        let values = head.headers.get_all(ACCEPT).iter();
        values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).any(is_html)
    };
    if page_depth(head).is_some() && (head.headers.contains_key(DESTINATION) || accepts_html()) {
        head.headers.remove(IF_NONE_MATCH);
        head.headers.remove(IF_MODIFIED_SINCE);
    }
}

/// Returns true if a value of `Content-Type` is that of an HTML page.
pub(crate) fn is_html(kind: &[u8]) -> bool {
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"text/html")
}

/// Returns true if a response is a complete HTML page whose bytes may be changed.
fn is_page(status: StatusCode, headers: &HeaderMap) -> bool {
    let is_download =
        |value: &HeaderValue| !value.as_bytes().trim_ascii_start().starts_with(b"inl");
    status != StatusCode::PARTIAL_CONTENT
        && headers.get(CONTENT_TYPE).is_some_and(|kind| is_html(kind.as_bytes()))
        && !headers.contains_key(CONTENT_ENCODING)
        && !headers.contains_key(CONTENT_RANGE)
        && !headers.get(CONTENT_DISPOSITION).is_some_and(is_download)
        && !DIGESTS.iter().any(|name| headers.contains_key(*name))
}

/// Corrects the headers of a response whose body has been changed. The entity tag differs from that
/// of the unchanged body, so that no browser keeps using a copy without the script.
fn correct_headers(headers: &mut HeaderMap) {
    headers.remove(CONTENT_LENGTH);
    headers.remove(ACCEPT_RANGES);
    headers.remove(LAST_MODIFIED);
    if let Some(etag) = headers.get_mut(ETAG) {
        let changed = etag.as_bytes().strip_suffix(b"\"").map(|tag| [tag, b"-dev\""].concat());
        if let Some(Ok(changed)) = changed.map(|tag| HeaderValue::from_bytes(&tag)) {
            *etag = changed;
        } else {
            headers.remove(ETAG);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "<script src=\"__rookery__/reload.js\" data-version=\"7\"></script>";

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let lines = lines.iter().map(|(name, value)| {
            (http::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        });
        lines.collect()
    }

    fn insert(headers: &mut HeaderMap, body: &str, depth: u16) -> (Option<String>, usize) {
        let script = PageScript::new("__rookery__/reload.js");
        script.set_version(7);
        let mut notices = 0;
        let mut page = None;
        for _ in 0..2 {
            let status = StatusCode::OK;
            let mut own = headers.clone();
            page = script.insert(depth, status, &mut own, body.as_bytes(), |_| notices += 1);
            if page.is_some() {
                *headers = own;
                break;
            }
        }
        (page.map(|page| String::from_utf8(page.to_vec()).unwrap()), notices)
    }

    const HTML: (&str, &str) = ("content-type", "text/html; charset=utf-8");

    #[test]
    fn the_script_is_inserted_at_the_end_of_the_head_or_of_the_body() {
        for (page, expected) in [
            ("<head><title>a</title></head><body>", "<head><title>a</title>|</head><body>"),
            ("<HEAD></HEAD ><body></body>", "<HEAD>|</HEAD ><body></body>"),
            ("<p>a</p></body></html>", "<p>a</p>|</body></html>"),
            ("<head><!-- </head> --></head>", "<head><!-- </head> -->|</head>"),
            ("<script>'</head>'</script></head>", "<script>'</head>'</script>|</head>"),
            ("<head></header></head>", "<head></header>|</head>"),
            ("<template></head></template></head>", "<template></head></template>|</head>"),
            ("<!doctype html><p>1 < 2 <3</p></body>", "<!doctype html><p>1 < 2 <3</p>|</body>"),
        ] {
            let (got, _) = insert(&mut headers(&[HTML]), page, 0);
            assert_eq!(got.unwrap(), expected.replace('|', SCRIPT), "{page}");
        }
        for page in ["", "<p>a fragment</p>", "<!-- </head>", "<script></head>", "</hea"] {
            assert_eq!(insert(&mut headers(&[HTML]), page, 0).0, None, "{page}");
        }
    }

    #[test]
    fn the_script_is_never_inserted_into_an_attribute_a_comment_or_text() {
        let bait = "</head></body><img src=x onerror=alert(1)>";
        for before in [
            "<title>t</title><input value=\"|\">",
            "<input value = '\"|'>",
            "<input value='a'value=\"|\">",
            "<input =\"a=\"|\">",
            "<input/value=\"|\"/>",
            "<br/><p a='\"'><p title='|'>",
            "</p title='|'>",
            "<link href='|'>",
            "<script src='|'></script>",
            "<!---|-->",
            "<!----!><!-- |--!>",
            "<!--><p a='|'>",
            "<!--->--><p a='|'>",
            "<!doctype \"><p a=\"|\">",
            "</ '><p a='|'>",
            "<template><p a='</template>|'></template>",
            "<iframe>'|</iframe><xmp><p a=\"|</xmp>",
            "<svg><title>a</title></svg><p a='|'>",
        ] {
            let page = format!("{}</head>", before.replace('|', bait));
            let expected = format!("{}{SCRIPT}</head>", before.replace('|', bait));
            assert_eq!(insert(&mut headers(&[HTML]), &page, 0).0, Some(expected), "{page}");
        }
        for before in [
            "<input value='",
            "<!--",
            "<plaintext>",
            "<svg><style><p a='</style>|'></style></svg>",
            "<svg><![CDATA[><p a=']]>|'>",
            "<script><!--<script></script>|--></script>",
        ] {
            let page = format!("{}</head>", before.replace('|', bait));
            assert_eq!(insert(&mut headers(&[HTML]), &page, 0).0, None, "{page}");
        }
    }

    #[test]
    fn the_url_of_the_script_is_relative_unless_the_page_has_a_base() {
        let (got, _) = insert(&mut headers(&[HTML]), "</head>", 2);
        assert!(got.unwrap().starts_with("<script src=\"../../__rookery__/reload.js\""));
        let (got, _) = insert(&mut headers(&[HTML]), "<base href=x></head>", 2);
        assert!(got.unwrap().starts_with("<base href=x><script src=\"/__rookery__/reload.js\""));
    }

    #[test]
    fn the_headers_fit_the_changed_page() {
        let mut with_tag = headers(&[
            HTML,
            ("etag", "W/\"abc\""),
            ("content-length", "7"),
            ("last-modified", "x"),
            ("accept-ranges", "bytes"),
        ]);
        insert(&mut with_tag, "</head>", 0).0.unwrap();
        assert_eq!(with_tag, headers(&[HTML, ("etag", "W/\"abc-dev\"")]));
    }

    #[test]
    fn responses_that_are_not_pages_stay_as_they_are() {
        for lines in [
            &[("content-type", "application/json")][..],
            &[("content-type", "text/htmlx")],
            &[],
            &[HTML, ("content-encoding", "gzip")],
            &[HTML, ("content-range", "bytes 0-1/2")],
            &[HTML, ("content-disposition", "attachment; filename=a.html")],
            &[HTML, ("content-digest", "sha-256=:x:")],
        ] {
            assert_eq!(insert(&mut headers(lines), "</head>", 0).0, None, "{lines:?}");
        }
        let inline = ("content-disposition", "inline");
        assert!(insert(&mut headers(&[HTML, inline]), "</head>", 0).0.is_some());
        let script = PageScript::new("a");
        let part = StatusCode::PARTIAL_CONTENT;
        assert!(script.insert(0, part, &mut headers(&[HTML]), b"</head>", |_| ()).is_none());
        let error = StatusCode::INTERNAL_SERVER_ERROR;
        assert!(script.insert(0, error, &mut headers(&[HTML]), b"</head>", |_| ()).is_some());
    }

    #[test]
    fn the_nonce_of_the_first_script_is_used_and_a_forbidden_script_is_noticed_once() {
        let policy = ("content-security-policy", "script-src 'nonce-q+/=' 'strict-dynamic'");
        let page = "<script nonce='q+/='></script><script nonce=b></script></head>";
        let (got, notices) = insert(&mut headers(&[HTML, policy]), page, 0);
        assert!(got.unwrap().contains("data-version=\"7\" nonce=\"q+/=\"></script></head>"));
        assert_eq!(notices, 0);
        assert_eq!(insert(&mut headers(&[HTML, policy]), "</head>", 0), (None, 1));
        let none = ("content-security-policy", "default-src 'self'; script-src 'none'");
        assert_eq!(insert(&mut headers(&[HTML, none]), page, 0), (None, 1));
    }

    #[test]
    fn the_folder_of_the_script_is_reserved() {
        let script = PageScript::new("__rookery__/reload.js");
        for path in ["/__rookery__/reload.js", "/__rookery__/live", "/__rookery__/"] {
            assert!(script.is_reserved(path), "{path}");
        }
        for path in ["/", "/__rookery__", "/a/__rookery__/live", "__rookery__/live", "*"] {
            assert!(!script.is_reserved(path), "{path}");
        }
    }

    #[test]
    fn only_requests_for_documents_get_the_script() {
        let depth = |method: &str, path: &str, destination: Option<&str>| {
            let mut request = http::Request::builder().method(method).uri(path);
            if let Some(destination) = destination {
                request = request.header("sec-fetch-dest", destination);
            }
            page_depth(&request.body(()).unwrap().into_parts().0)
        };
        for (path, folders) in [("/", 0), ("/a", 0), ("/a/", 1), ("/a/b?c=/", 1), ("/a/b/c", 2)] {
            assert_eq!(depth("GET", path, None), Some(folders), "{path}");
            assert_eq!(depth("GET", path, Some("iframe")), Some(folders), "{path}");
        }
        assert_eq!(depth("GET", "/", Some("empty")), None);
        assert_eq!(depth("HEAD", "/", None), None);
        assert_eq!(depth("POST", "/", Some("document")), None);
    }

    #[test]
    fn only_requests_of_browsers_for_pages_lose_their_conditions() {
        let keeps = |method: &str, lines: &[(&str, &str)]| {
            let mut request = http::Request::builder()
                .method(method)
                .uri("/")
                .header(IF_NONE_MATCH, "\"a\"")
                .header(IF_MODIFIED_SINCE, "Thu, 26 Nov 2026 07:00:00 GMT");
            for (name, value) in lines {
                request = request.header(*name, *value);
            }
            let mut head = request.body(()).unwrap().into_parts().0;
            remove_conditions(&mut head);
            let [none_match, modified] =
                [IF_NONE_MATCH, IF_MODIFIED_SINCE].map(|name| head.headers.contains_key(name));
            assert_eq!(none_match, modified);
            modified
        };
        // What Chromium and Firefox send for a page, with and without a secure context.
        let html = ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
        let document = ("sec-fetch-dest", "document");
        for lines in [
            &[html][..],
            &[html, document],
            &[document],
            &[("sec-fetch-dest", "iframe")],
            &[("accept", "application/xml"), ("accept", "*/*, Text/HTML;q=0.5")],
        ] {
            assert!(!keeps("GET", lines), "{lines:?}");
        }
        // curl, an image over plain HTTP from another machine, fetch().
        for lines in [
            &[][..],
            &[("accept", "*/*")],
            &[("accept", "application/json")],
            &[("accept", "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8")],
            &[("accept", "text/htmlx")],
            &[html, ("sec-fetch-dest", "image")],
            &[html, ("sec-fetch-dest", "empty")],
        ] {
            assert!(keeps("GET", lines), "{lines:?}");
        }
        assert!(keeps("HEAD", &[html]));
        assert!(keeps("POST", &[html, document]));
    }
}
