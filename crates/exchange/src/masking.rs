//! The masking of secrets in request targets and other URLs, for logs, messages and the status
//! report. These parts are secrets:
//!
//! - The token of a Shiny session, which follows `session/` in the path. Anyone who knows it can
//!   fetch the session's downloads.
//! - The id of the session's worker, which the query may contain as `w=`.
//! - The value of a parameter whose [name](is_secret_name) says that it is a credential, such as
//!   `access_token`.
//! - The user information of a URL within the URL, such as `user:password` in
//!   `https://user:password@example.org/`.

use crate::secret_names::{MAX_NAME_LEN, is_secret_name};

/// The text that replaces a secret in a logged URL.
const MASK: &[u8] = b"<...>";

/// The minimum length of a string of hexadecimal digits that counts as a secret. The tokens of
/// Shiny sessions have 32 digits.
const SECRET: usize = 16;

/// The minimum length of `session/` with a secret.
const MIN_SESSION: usize = b"session/".len() + SECRET;

/// The maximum length of the part of a URL in which its user information is searched for. If the
/// part is longer, all of it is masked.
const MAX_USER_INFO_LEN: usize = 256;

/// Replaces the secrets in a request target or another URL with `<...>`. Returns the result as a
/// sequence of parts. Joined, the parts are for example `/session/<...>/download/x?w=<...>`.
///
/// The target may be a path, a query with its `?`, or both.
pub fn masked(target: &[u8]) -> impl Iterator<Item = &[u8]> {
    Masked::new(target, false)
}

/// Appends a request target to `out`, with its secrets [masked]. If the result is longer than
/// `most` bytes, its end is cut off.
pub fn write_masked(target: &[u8], most: usize, out: &mut Vec<u8>) {
    write(Masked::new(target, false), most, out);
}

/// Appends a query without its `?` to `out`, with its secrets [masked]. If the result is longer
/// than `most` bytes, its end is cut off.
pub fn write_masked_query(query: &[u8], most: usize, out: &mut Vec<u8>) {
    write(Masked::new(query, true), most, out);
}

fn write(masked: Masked<'_>, most: usize, out: &mut Vec<u8>) {
    let end = out.len().saturating_add(most);
    for part in masked {
        let room = end - out.len();
        if part.len() >= room {
            out.extend_from_slice(&part[..room]);
            return;
        }
        out.extend_from_slice(part);
    }
}

struct Masked<'a> {
    rest: &'a [u8],
    /// The byte in front of `rest`, the part of the request target that has not been masked yet.
    /// `None` at the start of the target.
    before: Option<u8>,
    /// Whether `rest` begins in the query, behind a `?`.
    is_query: bool,
    /// The length of the secret with which `rest` begins; 0 if it begins with none.
    secret_len: usize,
}

impl<'a> Iterator for Masked<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let len = std::mem::take(&mut self.secret_len);
        if len > 0 {
            self.advance(len);
            return Some(MASK);
        }
        if self.rest.is_empty() {
            return None;
        }
        let (at, len) = self.next_secret().unwrap_or((self.rest.len(), 0));
        self.secret_len = len;
        Some(self.advance(at))
    }
}

impl<'a> Masked<'a> {
    fn new(target: &'a [u8], is_query: bool) -> Masked<'a> {
        Masked { rest: target, before: None, is_query, secret_len: 0 }
    }

    /// Returns the position and the length of the first secret in `rest`, or `None` if there is
    /// none. Sets `is_query` if the query begins in front of the secret.
    fn next_secret(&mut self) -> Option<(usize, usize)> {
        let text = self.rest;
        // A short text without these bytes contains no secret. Most paths are such texts, and this
        // check is faster than the search.
        if text.len() < MIN_SESSION && !text.iter().any(|byte| matches!(byte, b'=' | b'%' | b':')) {
            return None;
        }
        (0..text.len()).find_map(|at| {
            self.is_query |= text[at] == b'?';
            session_secret(text, at, self.before).or_else(|| match text[at] {
                b'=' | b'%' | b':' => {
                    named_secret(text, at, self.is_query).or_else(|| user_info(text, at))
                }
                _ => None,
            })
        })
    }

    fn advance(&mut self, len: usize) -> &'a [u8] {
        let (passed, rest) = self.rest.split_at(len);
        self.before = passed.last().copied().or(self.before);
        self.rest = rest;
        passed
    }
}

/// Returns the position and the length of the secret of a Shiny session that is introduced at the
/// position `at`.
fn session_secret(text: &[u8], at: usize, before: Option<u8>) -> Option<(usize, usize)> {
    let previous = if at == 0 { before } else { Some(text[at - 1]) };
    // A secret is introduced at the start of a word. A word starts after a byte that is not
    // alphanumeric, or after an encoded slash (`%2F`).
    let is_start = previous.is_none_or(|byte| !byte.is_ascii_alphanumeric())
        || at >= 3 && text[at - 3..at].eq_ignore_ascii_case(b"%2f");
    let start = at + if is_start { introduces(&text[at..])? } else { return None };
    let len = digits(&text[start..]);
    (len >= SECRET).then_some((start, len))
}

/// Returns the position and the length of the value of a parameter, if the `=` or `%3D` behind its
/// name is at the position `at` and the name says that the value is a secret. `is_query` is false
/// in the path, whose parameters (RFC 3986, 3.3) end differently.
fn named_secret(text: &[u8], at: usize, is_query: bool) -> Option<(usize, usize)> {
    let start = at + encoded_len(&text[at..], b'=', b"%3d")?;
    // In forms, `user[password]` is a field of `user`, and blanks may follow a name.
    let mut end = at;
    while let Some(len) = bracket_or_blank_len(&text[..end]) {
        end -= len;
    }
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let len = text[..end].iter().rev().take(MAX_NAME_LEN).take_while(|byte| is_name(byte)).count();
    let mut name = &text[end - len..end];
    if text[..end - len].last() == Some(&b'%') {
        // An encoded `?`, `&` or `[` in front of the name is no part of it.
        let is_code =
            |code: &[u8]| [b"3f", b"26", b"5b"].iter().any(|own| code.eq_ignore_ascii_case(*own));
        name = name.split_at_checked(2).filter(|(code, _)| is_code(code)).map_or(name, |it| it.1);
    }
    if !is_secret_name(name) {
        return None;
    }
    // The value itself may contain any separator that its parameter does not end with. An encoded
    // `&` is a part of the value, unless the whole query is encoded, with each `=`.
    let mut is_encoded = text[at] == b'%';
    let mut ends = |at: usize| match text[at] {
        b'#' => true,
        b'&' => is_query || is_encoded,
        b'%' => is_encoded && encoded_len(&text[at..], b'&', b"%26").is_some(),
        b';' => !is_query && !is_encoded,
        b'?' => !is_query,
        b'=' => {
            is_encoded = false;
            false
        }
        _ => false,
    };
    let len = (start..text.len()).find(|at| ends(*at)).unwrap_or(text.len()) - start;
    (len > 0).then_some((start, len))
}

/// Returns the position and the length of the user information of a URL, if the `://` or
/// `%3A%2F%2F` of the URL is at the position `at`.
fn user_info(text: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut start = at + encoded_len(&text[at..], b':', b"%3a")?;
    for _ in 0..2 {
        start += slash_len(&text[start..])?;
    }
    let most = text.len().min(start + MAX_USER_INFO_LEN);
    let ends = |byte: &u8| matches!(byte, b'/' | b'?' | b'#' | b'&');
    let end = text[start..most].iter().position(ends);
    let authority = &text[start..end.map_or(most, |end| start + end)];
    // An encoded slash ends the authority of an encoded URL, most of which are only long.
    if end.is_none()
        && most < text.len()
        && !authority.windows(3).any(|code| slash_len(code) == Some(3))
    {
        return Some((start, text[start..].iter().position(ends).unwrap_or(text.len() - start)));
    }
    let len = authority
        .iter()
        .rposition(|byte| *byte == b'@')
        .or_else(|| authority.windows(3).rposition(|code| code.eq_ignore_ascii_case(b"%40")))?;
    (len > 0).then_some((start, len))
}

/// Returns the length of a byte with which `text` begins: 1, or 3 if it is percent-encoded as
/// `code`.
fn encoded_len(text: &[u8], byte: u8, code: &[u8]) -> Option<usize> {
    if text.first() == Some(&byte) {
        Some(1)
    } else {
        text.get(..3).filter(|start| start.eq_ignore_ascii_case(code)).map(<[u8]>::len)
    }
}

/// Returns the length of the bracket or blank with which `text` ends: 1, or 3 if it is
/// percent-encoded.
fn bracket_or_blank_len(text: &[u8]) -> Option<usize> {
    if matches!(text.last()?, b'[' | b']' | b' ' | b'+') {
        return Some(1);
    }
    let code = text.last_chunk::<3>()?;
    let codes = [b"%5b", b"%5d", b"%20"];
    codes.iter().any(|own| code.eq_ignore_ascii_case(*own)).then_some(code.len())
}

/// Returns the length of the prefix `session/` or `w=`, after which a secret may follow. Returns
/// `None` if `text` begins with neither of them.
fn introduces(text: &[u8]) -> Option<usize> {
    if text.starts_with(b"w=") {
        return Some(2);
    }
    let slash = slash_len(text.strip_prefix(b"session")?)?;
    Some(b"session".len() + slash)
}

/// Returns the length of the slash with which `text` begins: 1 for `/`, or 3 if it is
/// percent-encoded.
fn slash_len(text: &[u8]) -> Option<usize> {
    encoded_len(text, b'/', b"%2f")
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789ABCDEF";

    fn text(target: &str) -> String {
        String::from_utf8(masked(target.as_bytes()).flatten().copied().collect()).unwrap()
    }

    #[test]
    fn masks_session_tokens_and_worker_ids() {
        for (target, expected) in [
            (format!("/session/{TOKEN}/download/x"), "/session/<...>/download/x"),
            (format!("/app/session/{TOKEN}"), "/app/session/<...>"),
            (format!("session/{TOKEN}/"), "session/<...>/"),
            (format!("/session/{TOKEN}/a?w={TOKEN}&nonce=1"), "/session/<...>/a?w=<...>&nonce=1"),
            (format!("?a=1&w={TOKEN}"), "?a=1&w=<...>"),
            (format!("?w={TOKEN}"), "?w=<...>"),
            (format!("w={TOKEN}"), "w=<...>"),
            (format!("?next=/session/{TOKEN}/a"), "?next=/session/<...>/a"),
            (format!("?next=%2Fsession%2f{TOKEN}%2Fa"), "?next=%2Fsession%2f<...>%2Fa"),
            (format!("/session/{TOKEN}/session/{TOKEN}/"), "/session/<...>/session/<...>/"),
            (format!("/session/{TOKEN}{TOKEN}"), "/session/<...>"),
            ("session/0123456789abcdef".to_owned(), "session/<...>"),
        ] {
            assert_eq!(text(&target), expected, "{target}");
        }
    }

    #[test]
    fn leaves_everything_else_unchanged() {
        for target in [
            "",
            "/",
            "/session",
            "/session/",
            "/session/list/0123456789abcdef0123456789abcdef",
            "/session/0123456789abcde",
            "/obsession/0123456789abcdef0123456789abcdef",
            "/files/0123456789abcdef0123456789abcdef",
            "?w=",
            "?w=1&ww=0123456789abcdef0123456789abcdef",
            "/%2",
            "/a%2",
        ] {
            assert_eq!(text(target), target);
        }
    }

    #[test]
    fn masks_values_whose_names_say_that_they_are_secrets() {
        for (target, expected) in [
            ("?token=abc&page=2", "?token=<...>&page=2"),
            ("?page=2&access_token=a%26b&x=1", "?page=2&access_token=<...>&x=1"),
            ("?password=correct%26horse", "?password=<...>"),
            ("?token=%26abc", "?token=<...>"),
            ("?token=;abc", "?token=<...>"),
            ("?password=a;secret&x=1", "?password=<...>&x=1"),
            ("?password=a\"secret\"&x=1", "?password=<...>&x=1"),
            ("?idToken=abc", "?idToken=<...>"),
            ("?API-KEY=abc;x=1", "?API-KEY=<...>"),
            ("?X-Amz-Signature=abc", "?X-Amz-Signature=<...>"),
            ("?key=abc&monkey=1", "?key=<...>&monkey=1"),
            ("?password=a=b", "?password=<...>"),
            ("?token=", "?token="),
            ("/reset;token=abc", "/reset;token=<...>"),
            ("/reset;token=a&b%26c;x=1/y", "/reset;token=<...>;x=1/y"),
            ("/a;token=b?password=c;d&x=1", "/a;token=<...>?password=<...>&x=1"),
            ("/a/session/b;token=c?x=1", "/a/session/b;token=<...>?x=1"),
            ("/a?b=1&token=c&pwd=d;e", "/a?b=1&token=<...>&pwd=<...>"),
            ("?next=%2Fa%3Ftoken%3Dabc%26x%3D1", "?next=%2Fa%3Ftoken%3D<...>%26x%3D1"),
            ("?next=%2Fa%3Fx%3D1%26key%3Dabc", "?next=%2Fa%3Fx%3D1%26key%3D<...>"),
            ("?token=a&token=b", "?token=<...>&token=<...>"),
            ("?user[password]=a&x=1", "?user[password]=<...>&x=1"),
            ("?user%5Bpassword%5D=a&x=1", "?user%5Bpassword%5D=<...>&x=1"),
            ("?user%5Bkey%5D%5b%5d=a", "?user%5Bkey%5D%5b%5d=<...>"),
            ("?user[key][]=a&user[name]=b", "?user[key][]=<...>&user[name]=b"),
            ("?token+=a&token%20=b&token =c", "?token+=<...>&token%20=<...>&token =<...>"),
            ("?tokens=3&keyword=r&author=ada", "?tokens=3&keyword=r&author=ada"),
        ] {
            assert_eq!(text(target), expected, "{target}");
        }
    }

    #[test]
    fn masks_the_user_information_of_urls() {
        for (target, expected) in [
            ("https://ada:secret@example.org/a", "https://<...>@example.org/a"),
            ("?url=https://ada:p@ss@example.org", "?url=https://<...>@example.org"),
            ("?url=https%3A%2F%2Fada%3Asecret%40host", "?url=https%3A%2F%2F<...>%40host"),
            ("https://example.org/@ada", "https://example.org/@ada"),
            ("/a//b@c", "/a//b@c"),
            ("https://@example.org", "https://@example.org"),
        ] {
            assert_eq!(text(target), expected, "{target}");
        }
    }

    #[test]
    fn masks_user_information_of_any_length() {
        let long = "p".repeat(MAX_USER_INFO_LEN);
        for (target, expected) in [
            (format!("?url=https://ada:{long}@host/a"), "?url=https://<...>/a"),
            (format!("?url=https://ada:{long}@host"), "?url=https://<...>"),
            (format!("?url=https%3A%2F%2Fada%3A{long}%40host&x=1"), "?url=https%3A%2F%2F<...>&x=1"),
        ] {
            assert_eq!(text(&target), expected);
        }
        let page = format!("?url=https%3A%2F%2Fexample.org%2F{long}");
        assert_eq!(text(&page), page);
    }

    /// The secret never appears, whatever surrounds it.
    #[test]
    fn a_secret_appears_nowhere_in_random_targets() {
        let pieces = [
            "?", "&", "%26", "%3F", "=", "%3D", "/", "//", "://", "%2F", "a", "session", "w", "@",
            ";", "%", "next=", "x=1", "_", "-",
        ];
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        for _ in 0..20_000 {
            let mut target = String::from("/");
            for _ in 0..6 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                target += pieces[(state % pieces.len() as u64) as usize];
            }
            let secret = "S3CR3T";
            for target in [
                format!("/{target}?password=a;b%26{secret}"),
                format!("{target}&access_token={secret}"),
                format!("{target}&api_key={secret}&{target}"),
                format!("{target}?url=ftp://ada:{secret}@host/{target}"),
            ] {
                let shown = text(&target);
                assert!(!shown.contains(secret), "{target}: {shown}");
            }
        }
    }

    /// A target of the maximum size is masked in one pass.
    #[test]
    fn many_secrets_take_no_longer_than_few() {
        let target = format!("?{}", "&token=1://".repeat(9_000));
        let started = std::time::Instant::now();
        assert_eq!(text(&target).matches("<...>").count(), 9_000);
        for target in ["=", "%3D", "_=", "://", "a", "]", "%5D=", "[%3D"] {
            let target = target.repeat(96 << 10);
            assert_eq!(text(&target), target);
        }
        assert!(started.elapsed() < std::time::Duration::from_secs(5));
    }

    #[test]
    fn a_query_without_its_question_mark_is_masked_as_a_query() {
        let mut out = Vec::new();
        write_masked_query(b"password=a;b&x=1", 100, &mut out);
        assert_eq!(out, b"password=<...>&x=1");
    }

    #[test]
    fn truncated_targets_contain_no_part_of_a_secret() {
        let target = format!("/session/{TOKEN}/download");
        for most in 0..40 {
            let mut out = b"GET ".to_vec();
            write_masked(target.as_bytes(), most, &mut out);
            let expected = "GET /session/<...>/download".as_bytes();
            assert_eq!(out, &expected[..expected.len().min(4 + most)]);
        }
    }
}
