//! Passes errors of the app's R code on to the live page: to the supervisor if this process is a
//! worker, and otherwise to the admin listener of this process.
//!
//! The live page must not show what clients have sent in confidence. The text of an error may quote
//! it, so text that the client has sent in cookies, in the query, in credentials or in the body is
//! masked, and so are long hexadecimal numbers, such as the tokens of Shiny's sessions. If what the
//! client has sent is not known here (any more), only the class of the error is passed on.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use rookery_exchange::{Exchange, is_secret_name};
use rookery_server::cookies;
use rookery_worker_protocol::ErrorReport;

use crate::core::{self, Core, WorkerState};
use crate::{Bytes, entry};

/// The maximum number of errors that are passed on within [`PERIOD`]. The control channel to the
/// supervisor has little space, which other messages need.
const MAX_ERRORS: u32 = 10;
const PERIOD: Duration = Duration::from_secs(1);

/// The number of consecutive bytes that must be the same as in a request for them to be masked.
const RUN: usize = 8;

/// The minimum length of a whole cookie or query value to be masked. Shorter values occur by
/// chance.
const MIN_VALUE: usize = 4;

/// The minimum length of a hexadecimal number to be masked. The tokens of Shiny's sessions have 32
/// digits.
const HEX_DIGITS: usize = 16;

/// The number of bytes at the beginning of a request body that are looked for in the text.
const MAX_BODY: usize = 64 << 10;

/// The maximum number of bytes of a message or traceback that are searched for secrets and passed
/// on. A report has less space for them.
const MAX_TEXT: usize = 8 << 10;

/// The maximum number of short values of a request that are looked for. The text of an error of a
/// request with more values is not passed on.
const MAX_VALUES: usize = 20_000;

/// The maximum length in bytes of the name of a class.
const MAX_CLASS: usize = 100;

/// The decoder of the scheme `Basic`, as lenient as the decoders of R packages.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const MASK: &str = "<...>";

thread_local! {
    static SHARED: RefCell<SharedErrors> = RefCell::default();
}

/// The number of errors that were passed on in the current period.
#[derive(Debug, Default)]
struct SharedErrors {
    began: Option<Instant>,
    count: u32,
}

impl SharedErrors {
    /// Counts an error, and returns true if it should be passed on.
    fn count(&mut self, now: Instant) -> bool {
        if self.began.is_none_or(|began| now.duration_since(began) >= PERIOD) {
            (self.began, self.count) = (Some(now), 0);
        }
        self.count += 1;
        self.count <= MAX_ERRORS
    }
}

impl Core {
    fn share_error(&self, mut report: ErrorReport, class: &str) {
        match self.known_request(report.request_id.as_bytes()).map(Secrets::of) {
            Some(secrets) if secrets.len() <= MAX_VALUES => {
                report.message = secrets.mask(&report.message, beginning(&report.message));
                report.trace = secrets.mask(&report.trace, end(&report.trace));
            }
            known => {
                let why = if known.is_some() {
                    "the request has too many values"
                } else {
                    "the request is over or its body is not kept"
                };
                report.message = withheld(class, why);
                report.trace.clear();
            }
        }
        if let WorkerState::Worker(worker) = &self.worker_state {
            worker.supervision.report_error(&report);
        } else if let Some(admin) = &self.admin {
            admin.one.on_error(&report);
        }
    }
}

/// Returns the message of an error whose text is not passed on.
fn withheld(class: &str, why: &str) -> String {
    let class: String = class.chars().take(MAX_CLASS).collect();
    format!("<{class}> (the message is only in the server's log, because {why})")
}

/// The data of a request that no error report may show.
#[derive(Debug, Default)]
struct Secrets {
    /// All sequences of [`RUN`] bytes.
    runs: HashSet<[u8; RUN]>,
    /// Values that are shorter than a run. Those of `MIN_VALUE + i` bytes are at the index `i`, so
    /// that looking for all of them costs one look-up for each length and position in a text.
    values: [HashSet<Vec<u8>>; RUN - MIN_VALUE],
}

impl Secrets {
    fn of(exchange: &Exchange) -> Secrets {
        let mut secrets = Secrets::default();
        let query = exchange.query().get(1..).unwrap_or_default();
        for pair in query.split(|byte| *byte == b'&') {
            // A query may consist of a value alone.
            let value = if pair.contains(&b'=') { split_pair(pair).1 } else { pair };
            secrets.add(value);
            secrets.add(&percent_decoded(value));
        }
        let cookies = exchange.header(b"cookie").unwrap_or_default();
        for (_, value) in cookies::pairs(cookies) {
            secrets.add(value);
            secrets.add(&percent_decoded(value));
        }
        let is_other = |name: &[u8]| name != b"cookie" && is_secret_name(name);
        for header in exchange.headers().filter(|header| is_other(header.name)) {
            let space = header.value.iter().position(|byte| *byte == b' ');
            // The name of the scheme is no secret.
            let scheme = space.filter(|_| header.name.ends_with(b"authorization"));
            let credentials = header.value[scheme.map_or(0, |at| at + 1)..].trim_ascii();
            secrets.add(credentials);
            secrets.add_words(credentials);
            // The name and the password of the scheme `Basic`.
            let decoded = BASE64.decode(credentials).unwrap_or_default();
            decoded.splitn(2, |byte| *byte == b':').for_each(|part| secrets.add(part));
        }
        let mut body = vec![0; MAX_BODY];
        // A body that cannot be read cannot be quoted either.
        let len = exchange.body().read_at(0, &mut body).unwrap_or(0);
        secrets.add(&body[..len]);
        // The fields of a form. R sees their decoded values.
        for pair in body[..len].split(|byte| *byte == b'&') {
            secrets.add(&percent_decoded(split_pair(pair).1));
        }
        let kind = exchange.header(b"content-type").unwrap_or_default().to_ascii_lowercase();
        if contains(&kind, b"json") {
            secrets.add_words(&body[..len]);
            // Strings, which may have other characters than letters and digits.
            body[..len].split(|byte| *byte == b'"').for_each(|part| secrets.add_short(part));
        }
        secrets
    }

    /// Returns the number of short values.
    fn len(&self) -> usize {
        self.values.iter().map(HashSet::len).sum()
    }

    /// Adds the short words of a text: its sequences of letters, digits and characters beyond
    /// ASCII.
    fn add_words(&mut self, text: &[u8]) {
        let is_separator = |byte: &u8| byte.is_ascii() && !byte.is_ascii_alphanumeric();
        text.split(is_separator).for_each(|word| self.add_short(word));
    }

    fn add(&mut self, value: &[u8]) {
        self.runs.extend(value.windows(RUN).filter_map(|run| <[u8; RUN]>::try_from(run).ok()));
        self.add_short(value);
    }

    fn add_short(&mut self, value: &[u8]) {
        let is_empty = value.trim_ascii().is_empty();
        if (MIN_VALUE..RUN).contains(&value.len()) && !is_empty {
            self.values[value.len() - MIN_VALUE].insert(value.to_vec());
        }
    }

    /// Returns the part `shown` of a text, with secrets replaced by `<...>`. A secret that is only
    /// partly in `shown` is recognized.
    fn mask(&self, text: &str, shown: Range<usize>) -> String {
        let first = shown.start.saturating_sub(HEX_DIGITS);
        let bytes = &text.as_bytes()[first..(shown.end + HEX_DIGITS).min(text.len())];
        let mut is_secret = vec![false; bytes.len()];
        for (at, run) in bytes.windows(RUN).enumerate() {
            if <[u8; RUN]>::try_from(run).is_ok_and(|run| self.runs.contains(&run)) {
                is_secret[at..at + RUN].fill(true);
            }
        }
        for (len, values) in (MIN_VALUE..).zip(&self.values).filter(|(_, set)| !set.is_empty()) {
            for (at, run) in bytes.windows(len).enumerate() {
                if values.contains(run) {
                    is_secret[at..at + len].fill(true);
                }
            }
        }
        let mut at = 0;
        while at < bytes.len() {
            let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
            if digits >= HEX_DIGITS {
                is_secret[at..at + digits].fill(true);
            }
            at += digits + 1;
        }
        let mut masked = String::with_capacity(shown.len());
        let mut was_secret = false;
        let offset = shown.start - first;
        for (at, char) in text[shown].char_indices().map(|(at, char)| (at + offset, char)) {
            // A character is masked if any of its bytes is.
            let is_secret = is_secret[at..at + char.len_utf8()].contains(&true);
            match (is_secret, was_secret) {
                (true, false) => masked.push_str(MASK),
                (true, true) => {}
                (false, _) => masked.push(char),
            }
            was_secret = is_secret;
        }
        masked
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

/// Returns the range of the first [`MAX_TEXT`] bytes of a message.
fn beginning(text: &str) -> Range<usize> {
    let mut end = MAX_TEXT.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    0..end
}

/// Returns the range of the last lines of a traceback, at most [`MAX_TEXT`] bytes. The innermost
/// calls, which say most, are at the end.
fn end(text: &str) -> Range<usize> {
    let mut start = text.len().saturating_sub(MAX_TEXT);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    start..text.len()
}

fn split_pair(pair: &[u8]) -> (&[u8], &[u8]) {
    let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
    (&pair[..at], pair.get(at + 1..).unwrap_or_default())
}

/// Decodes a value of a query or form. Malformed escapes stay as they are.
fn percent_decoded(value: &[u8]) -> Vec<u8> {
    let digit = |at: usize| value.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut decoded = Vec::with_capacity(value.len());
    let mut at = 0;
    while let Some(byte) = value.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', ..) => decoded.push(b' '),
            _ => decoded.push(*byte),
        }
        at += 1;
    }
    decoded
}

/// Returns 1 if the next error should be passed to `rk_share_error`. Returns 0 if nobody can see
/// it, or if too many errors have occurred lately.
#[unsafe(no_mangle)]
pub extern "C" fn rk_shares_errors() -> i32 {
    entry(0, || {
        let is_seen = core::with(|core| core.scoreboard().is_some());
        i32::from(is_seen && SHARED.with_borrow_mut(|shared| shared.count(Instant::now())))
    })
}

/// Passes an error on to the live page. The texts are those of [`ErrorReport`] and the class of the
/// error, in UTF-8.
///
/// # Safety
/// - The texts are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_share_error(
    request_id: Bytes,
    route: Bytes,
    label: Bytes,
    class: Bytes,
    message: Bytes,
    trace: Bytes,
) {
    entry((), || {
        let texts = [request_id, route, label, class, message, trace];
        let [request_id, route, label, class, message, trace] = texts.map(|text| {
            // SAFETY: guaranteed by the caller, see `# Safety`.
            String::from_utf8_lossy(unsafe { text.get() }).into_owned()
        });
        let report = ErrorReport { request_id, route, label, message, trace };
        core::with(|core| core.share_error(report, &class));
    });
}

#[cfg(test)]
mod tests {
    use rookery_exchange::Version;

    use super::*;

    fn exchange(target: &str, headers: &[(&str, &str)], body: &str) -> Box<Exchange> {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        exchange.set_request_line(b"POST", target.as_bytes(), Version::Http11);
        for (name, value) in headers {
            exchange.push_header(name.as_bytes(), value.as_bytes());
        }
        exchange.end_head(None, None, false);
        exchange.push_body(body.as_bytes());
        exchange
    }

    fn mask(secrets: &Secrets, text: &str) -> String {
        secrets.mask(text, 0..text.len())
    }

    #[test]
    fn masking_takes_little_time_however_many_values_the_client_has_sent() {
        let distinct: String =
            (0..18_000).map(|number| format!("a={number:04x}")).collect::<Vec<_>>().join("&");
        for query in ["=bcde&".repeat(15_000), distinct] {
            let exchange = exchange(&format!("/?{query}"), &[], "");
            let text = "x bcd ".repeat(100_000);
            let began = Instant::now();
            let secrets = Secrets::of(&exchange);
            assert_eq!(secrets.mask(&text, beginning(&text)).len(), MAX_TEXT);
            assert_eq!(secrets.mask(&text, end(&text)).len(), MAX_TEXT);
            assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        }
    }

    #[test]
    fn a_secret_that_is_cut_off_is_masked() {
        let secrets = Secrets::of(&exchange("/?a=abcdefghij&b=wxyz", &[], ""));
        for secret in ["abcdefghij", "wxyz", "0123456789abcdef"] {
            for cut in 1..secret.len() {
                let text =
                    format!("{}{secret}{}", " ".repeat(MAX_TEXT - cut), " ".repeat(MAX_TEXT));
                assert!(
                    secrets.mask(&text, beginning(&text)).ends_with(" <...>"),
                    "{secret} {cut}"
                );
                let text =
                    format!("{}{secret}{}", " ".repeat(MAX_TEXT), " ".repeat(MAX_TEXT - cut));
                assert!(secrets.mask(&text, end(&text)).starts_with("<...> "), "{secret} {cut}");
            }
        }
    }

    #[test]
    fn text_that_the_client_has_sent_is_masked() {
        let exchange = exchange(
            "/report?user=ann%20smith&pin=4711&n=1",
            &[
                ("cookie", "session=abcdefghij; theme=dark"),
                ("authorization", "Bearer top-secret-token"),
            ],
            "{\"password\":\"correct horse\"}",
        );
        let secrets = Secrets::of(&exchange);
        for (text, masked) in [
            ("object 'x' not found", "object 'x' not found"),
            ("no user ann smith here", "no user <...> here"),
            ("no user ann%20smith here", "no user <...> here"),
            ("pin 4711 is wrong", "pin <...> is wrong"),
            ("n is 1", "n is 1"),
            ("abcdefghij has expired", "<...> has expired"),
            ("a dark theme", "a <...> theme"),
            ("Bearer top-secret-token", "Bearer <...>"),
            ("wrong: correct horse.", "wrong: <...>."),
            ("/session/0123456789abcdef0123456789abcdef/x", "/session/<...>/x"),
            ("döner", "döner"),
        ] {
            assert_eq!(mask(&secrets, text), masked);
        }
        assert_eq!(mask(&Secrets::default(), ""), "");
    }

    #[test]
    fn names_and_passwords_are_masked_as_r_decodes_them() {
        // `ann:hunter2!`
        let headers = [("authorization", "Basic YW5uOmh1bnRlcjIh")];
        let secrets = Secrets::of(&exchange("/", &headers, ""));
        assert_eq!(mask(&secrets, "wrong: hunter2!, YW5uOmh1bnRlcjIh"), "wrong: <...>, <...>");
    }

    #[test]
    fn unpadded_credentials_are_decoded_and_a_password_may_contain_a_colon() {
        // `ann:a:b:c`
        for text in ["Basic YW5uOmE6Yjpj", "basic YW5uOmE6Yjpj"] {
            let secrets = Secrets::of(&exchange("/", &[("authorization", text)], ""));
            assert_eq!(mask(&secrets, "wrong: a:b:c"), "wrong: <...>");
        }
        // `ann:hunter2` without `=`
        let secrets =
            Secrets::of(&exchange("/", &[("authorization", "Basic YW5uOmh1bnRlcjI")], ""));
        assert_eq!(mask(&secrets, "wrong: hunter2"), "wrong: <...>");
    }

    #[test]
    fn headers_whose_names_say_so_are_secret() {
        for name in ["x-api-key", "x-csrf-token", "apikey", "x-session-id", "proxy-authorization"] {
            let secrets = Secrets::of(&exchange("/", &[(name, "s3cr")], ""));
            assert_eq!(mask(&secrets, "bad: s3cr"), "bad: <...>", "{name}");
        }
        let secrets =
            Secrets::of(&exchange("/", &[("accept", "text/html"), ("keyed", "abcd")], ""));
        assert_eq!(mask(&secrets, "text/html abcd"), "text/html abcd");
        let digest = [("authorization", "Digest username=\"anna\", uri=\"/\"")];
        assert_eq!(mask(&Secrets::of(&exchange("/", &digest, "")), "no anna"), "no <...>");
    }

    #[test]
    fn short_values_of_json_are_masked() {
        let body = "{\"pin\":4711,\"name\": \"J\u{fc}rg\",\"pass\":\"p@ss!\"}";
        let json = [("content-type", "application/problem+JSON; charset=utf-8")];
        let secrets = Secrets::of(&exchange("/", &json, body));
        let text = "4711 is no pin of J\u{fc}rg or p@ss!\n    f()";
        assert_eq!(mask(&secrets, text), "<...> is no pin of <...> or <...>\n    f()");
    }

    #[test]
    fn an_error_without_its_request_is_shared_without_its_text() {
        assert_eq!(
            withheld("my_error", "the request is over"),
            "<my_error> (the message is only in the server's log, because the request is over)"
        );
        assert!(withheld(&"x".repeat(MAX_TEXT), "").len() < 2 * MAX_CLASS);
    }

    #[test]
    fn a_form_is_masked_as_r_decodes_it() {
        let secrets = Secrets::of(&exchange("/", &[], "name=J%C3%BCrgen+M%C3%BCller&x=%zz"));
        assert_eq!(mask(&secrets, "unknown: Jürgen Müller"), "unknown: <...>");
    }

    #[test]
    fn only_some_errors_of_a_second_are_shared() {
        let (mut shared, now) = (SharedErrors::default(), Instant::now());
        let passed_on =
            |shared: &mut SharedErrors, now| (0..100).filter(|_| shared.count(now)).count();
        assert_eq!(passed_on(&mut shared, now), MAX_ERRORS as usize);
        assert_eq!(passed_on(&mut shared, now + PERIOD / 2), 0);
        assert_eq!(passed_on(&mut shared, now + PERIOD), MAX_ERRORS as usize);
    }
}
