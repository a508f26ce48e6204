//! The masking of secrets in request targets, for logs, messages and the status report. Two values
//! are secrets:
//!
//! - The token of a Shiny session, which follows `session/` in the path. Anyone who knows it can
//!   fetch the session's downloads.
//! - The id of the session's worker, which the query may contain as `w=`.

/// The text that replaces a secret in a logged URL.
const MASK: &[u8] = b"<...>";

/// The minimum length of a string of hexadecimal digits that counts as a secret. The tokens of
/// Shiny sessions have 32 digits.
const SECRET: usize = 16;

/// Replaces the secrets in a request target (tokens of Shiny sessions and ids of workers) with
/// `<...>`. Returns the result as a sequence of parts. Joined, the parts are for example
/// `/session/<...>/download/x?w=<...>`.
///
/// The target may be a path, a query with its `?`, or both.
pub fn masked(target: &[u8]) -> impl Iterator<Item = &[u8]> {
    Masked { rest: target, before: None, is_secret_next: false }
}

/// Appends a request target to `out`, with its secrets [masked]. If the result is longer than
/// `most` bytes, its end is cut off.
pub fn write_masked(target: &[u8], most: usize, out: &mut Vec<u8>) {
    let end = out.len().saturating_add(most);
    for part in masked(target) {
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
    is_secret_next: bool,
}

impl<'a> Iterator for Masked<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.is_secret_next {
            let len = digits(self.rest);
            self.advance(len);
            self.is_secret_next = false;
            return Some(MASK);
        }
        if self.rest.is_empty() {
            return None;
        }
        let at = next_secret(self.rest, self.before);
        self.is_secret_next = at.is_some();
        Some(self.advance(at.unwrap_or(self.rest.len())))
    }
}

impl<'a> Masked<'a> {
    fn advance(&mut self, len: usize) -> &'a [u8] {
        let (passed, rest) = self.rest.split_at(len);
        self.before = passed.last().copied().or(self.before);
        self.rest = rest;
        passed
    }
}

/// Returns the position of the first secret in `text`, a part of a request target, or `None` if
/// there is none. `before` is the byte in front of `text` in the target, if any.
fn next_secret(text: &[u8], before: Option<u8>) -> Option<usize> {
    (0..text.len()).find_map(|at| {
        let previous = if at == 0 { before } else { Some(text[at - 1]) };
        // A secret is introduced at the start of a word. A word starts after a byte that is not
        // alphanumeric, or after an encoded slash (`%2F`).
        let is_start = previous.is_none_or(|byte| !byte.is_ascii_alphanumeric())
            || text[..at].len() >= 3 && text[at - 3..at].eq_ignore_ascii_case(b"%2f");
        let len = if is_start { introduces(&text[at..])? } else { return None };
        (digits(&text[at + len..]) >= SECRET).then_some(at + len)
    })
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
    if text.starts_with(b"/") {
        Some(1)
    } else {
        text.get(..3).filter(|code| code.eq_ignore_ascii_case(b"%2f")).map(<[u8]>::len)
    }
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
