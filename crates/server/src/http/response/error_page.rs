//! The pages by which the server itself says why a request has no other response.
//!
//! The client's `Accept` header selects the form of such a page: HTML for browsers, JSON for
//! programs that ask for it. All other clients get the plain text of the error. [`ErrorPages`]
//! replaces the HTML of some statuses.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};

/// The maximum size in bytes of a file with an error page.
const MAX_PAGE_SIZE: u64 = 256 << 10;

/// The form of an error page that a client prefers to the plain text of the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A page for a browser.
    Html,
    /// An object with the members `error` and `request_id`.
    Json,
}

impl Form {
    /// Returns the form that a client prefers according to the `Accept` headers of its request (RFC
    /// 9110, 12.5.1). Returns `None` for plain text. A client gets a form only if the headers name
    /// it, because `*/*` is sent by programs of all kinds, and by browsers for scripts and images.
    /// Allocates no memory.
    pub(crate) fn preferred(headers: &HeaderMap) -> Option<Form> {
        let (mut html, mut json, mut text) = (0, 0, 0);
        for value in headers.get_all(ACCEPT) {
            for range in value.as_bytes().split(|byte| *byte == b',') {
                let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
                let name = parts.next().unwrap_or_default();
                let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
                let quality = if is("text/html") || is("application/xhtml+xml") {
                    &mut html
                } else if is("application/json") || is("application/problem+json") {
                    &mut json
                } else if is("text/plain") {
                    &mut text
                } else {
                    continue;
                };
                *quality = (*quality).max(parts.find_map(read_quality).unwrap_or(1000));
            }
        }
        if html > 0 && html >= json.max(text) {
            Some(Form::Html)
        } else {
            (json > 0 && json >= text).then_some(Form::Json)
        }
    }
}

/// Reads the weight of a media range in thousandths, if `parameter` is one (RFC 9110, 12.4.2).
fn read_quality(parameter: &[u8]) -> Option<u32> {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))?;
    let digits = value.iter().filter(|byte| **byte != b'.').take(4);
    let (number, len) = digits.fold((0, 0), |(number, len), byte| {
        (number * 10 + u32::from(byte.wrapping_sub(b'0').min(9)), len + 1)
    });
    Some(number * 10_u32.pow(4_u32.saturating_sub(len)))
}

/// The HTML pages of a folder that replace the server's own error pages.
#[derive(Debug, Default)]
pub struct ErrorPages(Vec<(StatusCode, Bytes)>);

impl ErrorPages {
    /// Reads the pages of a folder. The name of each is the status of the response for which it is
    /// the body, followed by `.html`, such as `503.html`. Other files are ignored.
    ///
    /// # Errors
    /// Fails if the folder or a page cannot be read, or if a page is larger than 256 KiB.
    pub fn read(folder: &Path) -> io::Result<ErrorPages> {
        // A folder that does not exist is an error, and one without pages is not.
        std::fs::read_dir(folder)?;
        let mut pages = Vec::new();
        for status in (400..600).filter_map(|status| StatusCode::from_u16(status).ok()) {
            let path = folder.join(format!("{}.html", status.as_str()));
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(named(&path, &error)),
            };
            let mut page = Vec::new();
            let read = file.take(MAX_PAGE_SIZE + 1).read_to_end(&mut page);
            read.map_err(|error| named(&path, &error))?;
            if page.len() as u64 > MAX_PAGE_SIZE {
                let too_large = io::Error::other("an error page has at most 256 KiB");
                return Err(named(&path, &too_large));
            }
            pages.push((status, page.into()));
        }
        Ok(ErrorPages(pages))
    }

    /// Returns the page for a status, if the folder has one.
    fn page(&self, status: StatusCode) -> Option<&Bytes> {
        self.0.iter().find(|(own, _)| *own == status).map(|(_, page)| page)
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Returns an error page, and adds the headers that describe the page to `headers`. `text` is the
/// error as plain text: its status, and after a colon the reason. `id` is the id of the request,
/// and `own` are the pages that replace those of the server.
pub(crate) fn render(
    form: Form,
    status: StatusCode,
    text: &str,
    id: &[u8],
    own: Option<&ErrorPages>,
    headers: &mut HeaderMap,
) -> Bytes {
    let text = text.trim_end();
    let id = std::str::from_utf8(id).unwrap_or_default();
    let (content_type, body) = match form {
        Form::Html => (
            "text/html; charset=utf-8",
            own.and_then(|own| own.page(status)).cloned().unwrap_or_else(|| html(status, text, id)),
        ),
        Form::Json => ("application/json", json(text, id)),
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    body
}

const STYLE: &str = ":root{color-scheme:light dark}\
    body{margin:0;font:16px/1.5 system-ui,sans-serif;color:#1c1e21;background:#f6f7f9}\
    main{max-width:34rem;margin:0 auto;padding:18vh 1.5rem 2rem}\
    h1{font-size:1.4rem;margin:0 0 .6rem}p{margin:.6rem 0}.quiet{color:#5b6169;font-size:.85rem}\
    a{display:inline-block;margin:.6rem 0;padding:.4rem 1.1rem;border-radius:6px;color:#fff;\
    background:#0a58ca;text-decoration:none}\
    @media(prefers-color-scheme:dark){body{color:#e3e5e8;background:#15171a}\
    .quiet{color:#a0a7b0}a{color:#15171a;background:#7db1ff}}";

/// Returns the page for a browser. The link loads the same URL again.
fn html(status: StatusCode, text: &str, id: &str) -> Bytes {
    let (title, reason) = text.split_once(": ").unwrap_or((text, ""));
    let mut page = String::with_capacity(STYLE.len() + 1024);
    page.push_str(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>",
    );
    push_escaped(title, &mut page);
    // Writing to a `String` cannot fail.
    let _ = write!(page, "</title><style>{STYLE}</style></head>\n<body><main><h1>");
    push_escaped(title, &mut page);
    let _ = write!(page, "</h1><p>{}</p><p><a href=\"\">Reload</a></p>", explanation(status));
    if !reason.is_empty() {
        page.push_str("<p class=\"quiet\">Reason: ");
        push_escaped(reason, &mut page);
        page.push_str("</p>");
    }
    page.push_str("<p class=\"quiet\">Request <code>");
    push_escaped(id, &mut page);
    page.push_str("</code></p></main></body></html>\n");
    page.into()
}

/// Returns a sentence for users that says what they can do about a status.
fn explanation(status: StatusCode) -> &'static str {
    match status.as_u16() {
        403 => "You may not see this page.",
        404 => "There is no such page here.",
        408 => "The request took too long to arrive.",
        413 => "What you have sent is larger than this server accepts.",
        400..=499 => "This server does not accept the request.",
        502 => "The app has ended before it responded.",
        503 => "The app is busy or is being restarted. Try again in a moment.",
        504 => "The app took too long to respond.",
        _ => "The app could not respond.",
    }
}

fn push_escaped(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
}

/// Returns the object for a program. The status is left out of the text, because the response has
/// it.
fn json(text: &str, id: &str) -> Bytes {
    let text = text.trim_start_matches(|character: char| character.is_ascii_digit()).trim_start();
    let mut body = String::with_capacity(text.len() + id.len() + 40);
    body.push_str("{\"error\":\"");
    push_json(text, &mut body);
    body.push_str("\",\"request_id\":\"");
    push_json(id, &mut body);
    body.push_str("\"}\n");
    body.into()
}

fn push_json(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            // Neither an error nor an id has control characters.
            other if other.is_control() => out.push(' '),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preferred(accept: &[&str]) -> Option<Form> {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(ACCEPT, HeaderValue::from_str(value).unwrap());
        }
        Form::preferred(&headers)
    }

    #[test]
    fn the_form_is_the_one_that_the_client_prefers() {
        let chromium = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,\
                        image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7";
        for (accept, form) in [
            (&[][..], None),
            (&["*/*"], None),
            (&["text/*"], None),
            (&["image/avif,image/webp,*/*;q=0.8"], None),
            (&["text/event-stream"], None),
            (&[chromium], Some(Form::Html)),
            (&["TEXT/HTML; charset=utf-8"], Some(Form::Html)),
            (&["*/*", "text/html"], Some(Form::Html)),
            (&["application/json, text/plain, */*"], Some(Form::Json)),
            (&["application/problem+json"], Some(Form::Json)),
            (&["application/json;q=0.5, text/html;q=0.4"], Some(Form::Json)),
            (&["application/json;q=0.5, text/html"], Some(Form::Html)),
            (&["text/html;q=0"], None),
            (&["text/html;q=0.000, application/json;q=0.001"], Some(Form::Json)),
            (&["text/plain, application/json;q=0.9"], None),
            (&[";;,,q=1;q=,text/html;q=x"], Some(Form::Html)),
        ] {
            assert_eq!(preferred(accept), form, "{accept:?}");
        }
    }

    fn body(form: Form, own: Option<&ErrorPages>) -> (String, HeaderMap) {
        let mut headers = HeaderMap::new();
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let text = "503 Service Unavailable: it says \"<no>\"\n";
        let body = render(form, status, text, b"ab-<1>", own, &mut headers);
        (String::from_utf8(body.to_vec()).unwrap(), headers)
    }

    #[test]
    fn each_form_names_the_error_and_the_request() {
        let (html, headers) = body(Form::Html, None);
        assert!(html.contains("<h1>503 Service Unavailable</h1>"), "{html}");
        assert!(html.contains("it says &quot;&lt;no&gt;&quot;</p>"), "{html}");
        assert!(html.contains("<code>ab-&lt;1&gt;</code>"), "{html}");
        assert!(html.contains("<a href=\"\">Reload</a>") && html.contains("dark"), "{html}");
        assert_eq!(headers[CONTENT_TYPE], "text/html; charset=utf-8");
        assert_eq!(headers[CACHE_CONTROL], "no-store");
        let (json, headers) = body(Form::Json, None);
        let wanted = "{\"error\":\"Service Unavailable: it says \\\"<no>\\\"\",\
                      \"request_id\":\"ab-<1>\"}\n";
        assert_eq!(json, wanted);
        assert_eq!(headers[CONTENT_TYPE], "application/json");
    }

    #[test]
    fn pages_of_a_folder_replace_the_html_of_their_status_only() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("503.html"), "<p>own").unwrap();
        std::fs::write(folder.path().join("notes.html"), "").unwrap();
        let own = ErrorPages::read(folder.path()).unwrap();
        assert_eq!(body(Form::Html, Some(&own)).0, "<p>own");
        assert!(body(Form::Json, Some(&own)).0.starts_with('{'));
        assert_eq!(own.page(StatusCode::NOT_FOUND), None);
        std::fs::write(folder.path().join("404.html"), vec![b'x'; (256 << 10) + 1]).unwrap();
        assert!(ErrorPages::read(folder.path()).unwrap_err().to_string().contains("404.html: "));
        assert!(ErrorPages::read(&folder.path().join("none")).is_err());
    }
}
