//! The page that browsers get while the app cannot be started.

use rookery_exchange::Exchange;
use rookery_status::html_text;

/// The style of the page, which has no other resources.
const STYLE: &str = include_str!("failure_page.css");

/// The policy of the page: only its own style, and the script that reloads the page.
const POLICY: &[u8] = b"default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'";

/// The failure of a start of the app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartFailure {
    /// The page that R has made, as HTML; `None` if R could not.
    pub page: Option<Vec<u8>>,
    /// The description of the failure, as lines of text.
    pub text: String,
}

impl StartFailure {
    /// Writes the response to a request while the app cannot be started. The details, which
    /// contain source code, are left out unless `has_access`.
    pub(crate) fn write(&self, exchange: &mut Exchange, has_access: bool) {
        let is_page = accepts_html(exchange);
        exchange.begin_response(500);
        let kind: &[u8] =
            if is_page { b"text/html; charset=utf-8" } else { b"text/plain; charset=utf-8" };
        let mut headers = vec![
            (&b"Content-Type"[..], kind),
            (b"Cache-Control", b"no-store"),
            (b"X-Content-Type-Options", b"nosniff"),
            (b"Referrer-Policy", b"no-referrer"),
        ];
        if is_page {
            headers.push((b"Content-Security-Policy", POLICY));
        }
        for (name, value) in headers {
            // The exchange accepts these names and values, so no error can occur.
            let _ = exchange.push_response_header(name, value);
        }
        match (is_page, has_access, &self.page) {
            (true, true, Some(page)) => exchange.set_response_body(page),
            (true, true, None) => {
                exchange.set_response_body(page(&self.text).as_bytes());
            }
            (true, false, _) => exchange.set_response_body(page(WITHOUT_ACCESS).as_bytes()),
            (false, true, _) => {
                exchange.set_response_body(format!("{HEADING}.\n{}\n", self.text).as_bytes());
            }
            (false, false, _) => {
                exchange.set_response_body(format!("{HEADING}.\n{WITHOUT_ACCESS}\n").as_bytes());
            }
        }
    }
}

const HEADING: &str = "The app could not be started";

/// The text that a client without the token gets in place of the details of an error.
pub(crate) const WITHOUT_ACCESS: &str = "The terminal shows the error. This page shows it as well \
    if you open the address with the token, which `rookery dev` has printed.";

fn page(text: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=en>\n<head><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width\">\
         <title>{HEADING}</title>\n<style>{STYLE}</style></head>\n<body>\n<main>\n\
         <h1>{HEADING}</h1>\n<pre>{}</pre>\n\
         <p>Save a file of the app to start it again. This page then reloads by itself.</p>\n\
         </main>\n</body>\n</html>\n",
        html_text(text)
    )
}

/// Returns true if the client of a request accepts HTML.
pub(crate) fn accepts_html(exchange: &Exchange) -> bool {
    let accept = exchange.header(b"accept").unwrap_or_default();
    accept.split(|byte| *byte == b',').any(|range| {
        let name = range.split(|byte| *byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"text/html")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn respond(failure: &StartFailure, accept: &str, has_access: bool) -> (String, String) {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        exchange.push_header(b"accept", accept.as_bytes());
        exchange.end_head(None, None, false);
        failure.write(&mut exchange, has_access);
        assert_eq!(exchange.response().status(), 500);
        let kind = exchange.response_headers().next().unwrap().1;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (text(kind), text(exchange.response_copy().unwrap()))
    }

    #[test]
    fn the_response_is_a_page_or_text_and_has_details_only_with_access() {
        let text = "Error in f(): <secret>".to_owned();
        let mut failure = StartFailure { page: None, text };
        let (kind, body) = respond(&failure, "text/html,*/*", true);
        assert!(kind.starts_with("text/html") && body.contains("Error in f(): &lt;secret&gt;"));
        let (kind, body) = respond(&failure, "*/*", true);
        assert!(kind.starts_with("text/plain") && body.contains("Error in f(): <secret>"));
        failure.page = Some(b"<p>made by R: secret</p>".to_vec());
        assert_eq!(respond(&failure, "text/html", true).1, "<p>made by R: secret</p>");
        for accept in ["text/html", "*/*", "application/json"] {
            let (_, body) = respond(&failure, accept, false);
            assert!(!body.contains("secret") && body.contains("token"), "{body}");
        }
    }
}
