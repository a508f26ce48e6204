//! Evaluates the conditions of a request, such as If-None-Match, and its byte range (RFC 9110,
//! sections 13 and 14). The code uses neither the clock nor the file system.
//!
//! All five condition headers of RFC 9110 are supported, whereas httpuv supports only
//! If-Modified-Since. A request may have a single byte range. If it has several ranges, the
//! response is the whole file, as section 14.2 allows.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use super::request_head::RequestHead;

/// The conditions and the byte range of a request, parsed from its headers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    matches: Option<Box<[u8]>>,
    unmodified_since: Option<u64>,
    none_match: Option<Box<[u8]>>,
    modified_since: Option<u64>,
    range: Option<ByteRange>,
    if_range: Option<IfRange>,
}

/// The properties of a file with which the conditions and the range of a request are compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Representation<'a> {
    /// The value of the file's `ETag` header, with its quotes, and with `W/` if the tag is weak.
    /// `None` if the file has no tag.
    pub(crate) etag: Option<&'a [u8]>,
    /// The value of the file's `Last-Modified` header, in seconds since 1970. `None` if the file
    /// has no such header.
    pub(crate) modified: Option<u64>,
    /// The time when the content or the attributes of the file last changed, in seconds since 1970.
    /// `None` if the file system does not record it, or if an HTTP date cannot represent it. The
    /// value of `Last-Modified` may be earlier, because programs can set it.
    pub(crate) changed: Option<u64>,
    /// True if the file last changed so long ago that a further change would certainly change its
    /// times.
    pub(crate) is_settled: bool,
    /// The length of the file in bytes.
    pub(crate) len: u64,
}

/// The kind of response that consists of an existing file, as decided by the request's conditions
/// and range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The response is 412, because a precondition (If-Match or If-Unmodified-Since) is false.
    Failed,
    /// The response is 404, and the file is the site's page for missing files. No condition leads
    /// to this outcome.
    NotFound,
    NotModified,
    Partial(Range<u64>),
    Unsatisfiable,
    Whole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ByteRange {
    /// The byte range `a-b`, with both ends included. For `a-`, the end is `u64::MAX`.
    From(u64, u64),
    /// The byte range `-n`, which means the last `n` bytes of the file.
    Last(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum IfRange {
    Date(u64),
    /// The value of If-Range is neither a date nor a strong tag, so the server ignores the range.
    Never,
    /// The value of If-Range is an entity tag in quotes. A weak tag never matches it.
    Tag(Box<[u8]>),
}

impl Conditions {
    /// Reads the conditions and the range from the headers of a request.
    pub(crate) fn of(request: &RequestHead<'_>) -> Conditions {
        let value = |name| request.headers.value(name);
        // RFC 9110, section 14.2, defines Range only for GET.
        let range =
            if request.method == "GET" { value("range").and_then(parse_range) } else { None };
        let list = |name| request.headers.list(name).map(|list| list.into_owned().into());
        Conditions {
            matches: list("if-match"),
            unmodified_since: value("if-unmodified-since").and_then(parse_date),
            none_match: list("if-none-match"),
            modified_since: value("if-modified-since").and_then(parse_date),
            if_range: range.and_then(|_| value("if-range")).map(parse_if_range),
            range,
        }
    }

    /// Decides which response a request for an existing file gets, in the order of RFC 9110,
    /// section 13.2.2.
    pub(crate) fn evaluate(&self, representation: &Representation<'_>) -> Outcome {
        let Representation { modified, changed, .. } = *representation;
        let is_meant = match (&self.matches, self.unmodified_since, modified.or(changed)) {
            (Some(tags), _, _) => any_tag_matches(tags, representation.etag, Comparison::Strong),
            // A client that sends back the file's Last-Modified is not refused (RFC 9110, 13.1.4).
            (None, Some(since), Some(modified)) => modified <= since,
            _ => true,
        };
        if !is_meant {
            return Outcome::Failed;
        }
        let unmodified = match (&self.none_match, self.modified_since, changed) {
            (Some(tags), _, _) => any_tag_matches(tags, representation.etag, Comparison::Weak),
            (None, Some(since), Some(changed)) => changed <= since,
            _ => false,
        };
        if unmodified {
            return Outcome::NotModified;
        }
        // A range of an empty file is ignored, because Content-Range cannot express an empty range.
        match &self.range {
            Some(range) if representation.len > 0 && self.range_applies(representation) => {
                range.within(representation.len)
            }
            _ => Outcome::Whole,
        }
    }

    /// Returns true if the requested range applies, because there is no If-Range header or its
    /// value matches the file. A validator in If-Range must be strong (RFC 9110, 13.1.5).
    ///
    /// The range does not apply if the file has changed since the date in If-Unmodified-Since
    /// although its Last-Modified is not later, or if it may have changed within the second of that
    /// date. The client may have a part of another version of the file.
    fn range_applies(&self, representation: &Representation<'_>) -> bool {
        let dates = self.unmodified_since.zip(representation.changed);
        let may_differ = |(since, changed)| changed > since || !representation.is_settled;
        if self.matches.is_none() && dates.is_some_and(may_differ) {
            return false;
        }
        match &self.if_range {
            None => true,
            Some(IfRange::Date(date)) => {
                representation.is_settled && representation.changed == Some(*date)
            }
            Some(IfRange::Never) => false,
            Some(IfRange::Tag(tag)) => Some(&**tag) == representation.etag,
        }
    }
}

impl ByteRange {
    fn within(self, len: u64) -> Outcome {
        match self {
            ByteRange::From(first, last) if first < len => {
                Outcome::Partial(first..last.saturating_add(1).min(len))
            }
            ByteRange::Last(count) if count > 0 => Outcome::Partial(len.saturating_sub(count)..len),
            _ => Outcome::Unsatisfiable,
        }
    }
}

/// Parses an HTTP date in the format IMF-fixdate (RFC 9110, 5.6.7) into seconds since 1970. Accepts
/// only the exact form that this server sends. Rejects the two obsolete forms, as httpuv does.
fn parse_date(value: &[u8]) -> Option<u64> {
    let mut date: [u8; IMF_FIXDATE_LEN] = value.try_into().ok()?;
    if !date.ends_with(b" GMT") || !WEEKDAYS.contains(&date.first_chunk()?) {
        return None;
    }
    let read = |date: &[u8]| httpdate::parse_http_date(std::str::from_utf8(date).ok()?).ok();
    // Like httpuv, this accepts a date with the wrong day of the week. `httpdate` checks the day,
    // so each of the seven is tried.
    let time = read(&date).or_else(|| {
        WEEKDAYS.iter().find_map(|day| {
            date[..3].copy_from_slice(*day);
            read(&date)
        })
    })?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

const WEEKDAYS: [&[u8; 3]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];

/// The length in bytes of an HTTP date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
const IMF_FIXDATE_LEN: usize = 29;

/// Parses the value of a Range header with a single byte range. Returns `None` if the range is
/// invalid or has another unit, or if there are several ranges. The server then ignores the header
/// (RFC 9110, 14.2).
fn parse_range(value: &[u8]) -> Option<ByteRange> {
    let (unit, spec) = value.split_at_checked(UNIT.len())?;
    if !unit.eq_ignore_ascii_case(UNIT) {
        return None;
    }
    let spec = spec.trim_ascii();
    let dash = spec.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    match (number(first), number(last)) {
        (Some(first), Some(last)) => (first <= last).then_some(ByteRange::From(first, last)),
        (Some(first), None) if last.is_empty() => Some(ByteRange::From(first, u64::MAX)),
        (None, Some(count)) if first.is_empty() => Some(ByteRange::Last(count)),
        _ => None,
    }
}

const UNIT: &[u8] = b"bytes=";

/// Parses a decimal number in a byte range. A number that exceeds 64 bits becomes `u64::MAX`, which
/// is also past the end of every file.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(
        digits.iter().fold(0u64, |sum, digit| {
            sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
        }),
    )
}

fn parse_if_range(value: &[u8]) -> IfRange {
    match parse_date(value) {
        Some(date) => IfRange::Date(date),
        None if value.starts_with(b"\"") => IfRange::Tag(value.into()),
        None => IfRange::Never,
    }
}

/// The two ways to compare entity tags (RFC 9110, 8.8.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// Two entity tags match if they are equal and neither is weak. The contents are then identical
    /// byte by byte.
    Strong,
    /// Two entity tags match if they are equal apart from the `W/` prefix.
    Weak,
}

/// Returns true if `etag` is in a comma-separated list of entity tags (RFC 9110, 13.1.1 and
/// 13.1.2). The list is read up to the first syntax error.
fn any_tag_matches(list: &[u8], etag: Option<&[u8]>, comparison: Comparison) -> bool {
    let list = list.trim_ascii();
    if list == b"*" {
        return true;
    }
    let is_strong = |tag: &[u8]| !tag.starts_with(b"W/");
    let Some(etag) = etag else { return false };
    let Some((wanted, _)) = opaque_tag(etag) else { return false };
    let mut rest = list;
    while let Some((tag, tail)) = opaque_tag(rest) {
        let may_match = comparison == Comparison::Weak || (is_strong(rest) && is_strong(etag));
        if may_match && tag == wanted {
            return true;
        }
        rest = tail.trim_ascii_start();
        while let Some(tail) = rest.strip_prefix(b",") {
            rest = tail.trim_ascii_start();
        }
    }
    false
}

/// Parses the entity tag at the start of `text`. Returns the tag without `W/` and its quotes, and
/// the text after it.
fn opaque_tag(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b"W/").unwrap_or(text).strip_prefix(b"\"")?;
    let end = text.iter().position(|byte| *byte == b'"')?;
    Some((&text[..end], &text[end + 1..]))
}

/// Converts a time to seconds since 1970. Returns `None` if an HTTP date cannot represent the time,
/// because it is before 1970 or after the year 9999.
pub(crate) fn http_seconds(time: SystemTime) -> Option<u64> {
    time.duration_since(UNIX_EPOCH)
        .ok()
        .map(|since| since.as_secs())
        .filter(|seconds| *seconds < YEAR_10000)
}

const YEAR_10000: u64 = 253_402_300_800;

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Representation<'static> = Representation {
        etag: Some(b"\"t-1\""),
        modified: Some(784_111_777),
        changed: Some(784_111_777),
        is_settled: true,
        len: 100,
    };

    #[test]
    fn ranges() {
        use ByteRange::{From, Last};
        let table: &[(&str, Option<ByteRange>)] = &[
            ("bytes=0-0", Some(From(0, 0))),
            ("BYTES=5-", Some(From(5, u64::MAX))),
            ("bytes= 5-7 ", Some(From(5, 7))),
            ("bytes=-3", Some(Last(3))),
            ("bytes=0-99999999999999999999999", Some(From(0, u64::MAX))),
            ("bytes=99999999999999999999999-", Some(From(u64::MAX, u64::MAX))),
            ("bytes=7-5", None),
            ("bytes=0-1,3-4", None),
            ("bytes=-", None),
            ("bytes=", None),
            ("bytes", None),
            ("bytes=a-b", None),
            ("bytes=+1-2", None),
            ("bytes=1-2-3", None),
            ("bytes=--3", None),
            ("items=0-1", None),
        ];
        for (value, expected) in table {
            assert_eq!(parse_range(value.as_bytes()), *expected, "{value}");
        }
        for (range, expected) in [
            (From(0, 0), Outcome::Partial(0..1)),
            (From(90, u64::MAX), Outcome::Partial(90..100)),
            (From(99, 1000), Outcome::Partial(99..100)),
            (From(100, 100), Outcome::Unsatisfiable),
            (Last(1), Outcome::Partial(99..100)),
            (Last(100), Outcome::Partial(0..100)),
            (Last(u64::MAX), Outcome::Partial(0..100)),
            (Last(0), Outcome::Unsatisfiable),
        ] {
            let conditions = Conditions { range: Some(range), ..Conditions::default() };
            assert_eq!(conditions.evaluate(&FILE), expected, "{range:?}");
            assert_eq!(
                conditions.evaluate(&Representation { len: 0, ..FILE }),
                Outcome::Whole,
                "{range:?} of nothing"
            );
        }
    }

    #[test]
    fn a_range_is_ignored_unless_if_range_matches_strongly() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let weak = Representation { etag: Some(b"W/\"t-1\""), is_settled: false, ..FILE };
        for (value, strong_applies) in [
            ("\"t-1\"", true),
            ("\"t-2\"", false),
            ("W/\"t-1\"", false),
            (date, true),
            ("Sun, 06 Nov 1994 08:49:38 GMT", false),
            ("Sun, 06 Nov 1994 08:49:36 GMT", false),
            ("rubbish", false),
            ("", false),
        ] {
            let if_range = Some(parse_if_range(value.as_bytes()));
            let conditions = Conditions {
                range: Some(ByteRange::From(0, 0)),
                if_range,
                ..Conditions::default()
            };
            let expected = if strong_applies { Outcome::Partial(0..1) } else { Outcome::Whole };
            assert_eq!(conditions.evaluate(&FILE), expected, "{value}");
            assert_eq!(conditions.evaluate(&weak), Outcome::Whole, "{value}, not settled");
        }
    }

    #[test]
    fn tags() {
        for (list, matches) in [
            ("*", true),
            (" * ", true),
            ("\"t-1\"", true),
            ("W/\"t-1\"", true),
            ("\"a\", W/\"b\" ,, \"t-1\"", true),
            ("\"a,\\\", \"t-1\"", true),
            ("\"t-1", false),
            ("t-1", false),
            ("\"t-11\"", false),
            ("\"\"", false),
            ("", false),
            ("w/\"t-1\"", false),
            ("rubbish, \"t-1\"", false),
        ] {
            let weakly =
                |etag: &[u8]| any_tag_matches(list.as_bytes(), Some(etag), Comparison::Weak);
            assert_eq!(weakly(b"\"t-1\""), matches, "{list}");
            assert_eq!(weakly(b"W/\"t-1\""), matches, "{list}, weak");
            let strongly =
                |etag: &[u8]| any_tag_matches(list.as_bytes(), Some(etag), Comparison::Strong);
            let is_strong = matches && list != "W/\"t-1\"";
            assert_eq!(strongly(b"\"t-1\""), is_strong, "{list}, strongly");
            assert_eq!(strongly(b"W/\"t-1\""), list.trim() == "*", "{list}, strongly and weak");
        }
        assert!(
            !any_tag_matches(b"abc", Some(b"abc"), Comparison::Weak),
            "a tag without quotes is none"
        );
    }

    #[test]
    fn dates_are_read_strictly() {
        for (value, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
            ("Sun Nov  6 08:49:37 1994", None),
            ("Mon, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Sat, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Xyz, 06 Nov 1994 08:49:37 GMT", None),
            ("Mon, 31 Feb 1994 08:49:37 GMT", None),
            ("Sun, 6 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49:37 UTC", None),
            ("sun, 06 nov 1994 08:49:37 gmt", None),
            ("Sun, 32 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49:37 GM\u{e9}", None),
            ("", None),
        ] {
            assert_eq!(parse_date(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn if_none_match_takes_precedence_over_if_modified_since() {
        let since = |seconds| Conditions { modified_since: Some(seconds), ..Conditions::default() };
        assert_eq!(since(784_111_777).evaluate(&FILE), Outcome::NotModified);
        assert_eq!(since(784_111_776).evaluate(&FILE), Outcome::Whole);
        assert_eq!(
            since(u64::MAX).evaluate(&Representation { changed: None, ..FILE }),
            Outcome::Whole
        );
        let other = Conditions { none_match: Some((*b"\"other\"").into()), ..since(u64::MAX) };
        assert_eq!(other.evaluate(&FILE), Outcome::Whole);
        let same = Conditions { none_match: Some((*b"\"t-1\"").into()), ..since(0) };
        assert_eq!(same.evaluate(&FILE), Outcome::NotModified);
        let with_range = Conditions { range: Some(ByteRange::From(500, 600)), ..same };
        assert_eq!(
            with_range.evaluate(&FILE),
            Outcome::NotModified,
            "a range of what has not changed"
        );
    }

    #[test]
    fn if_match_and_if_unmodified_since_are_evaluated_first() {
        let tag = |text: &str| Some(text.as_bytes().into());
        let same_date = Some(784_111_777);
        let ranged = Conditions { range: Some(ByteRange::From(0, 0)), ..Conditions::default() };
        let part = Outcome::Partial(0..1);
        for (matches, unmodified_since, expected) in [
            (tag("\"t-1\""), None, part.clone()),
            (tag("\"x\", \"t-1\""), None, part.clone()),
            (tag("*"), None, part.clone()),
            (tag("\"x\""), None, Outcome::Failed),
            (tag("W/\"t-1\""), None, Outcome::Failed),
            (tag(""), None, Outcome::Failed),
            (None, same_date, part.clone()),
            (None, Some(784_111_776), Outcome::Failed),
            // If-Unmodified-Since is ignored if there is an If-Match.
            (tag("\"t-1\""), Some(0), part),
            (tag("\"x\""), Some(u64::MAX), Outcome::Failed),
        ] {
            let if_range = Some(IfRange::Date(784_111_777));
            let conditions = Conditions { matches, unmodified_since, if_range, ..ranged.clone() };
            assert_eq!(conditions.evaluate(&FILE), expected, "{conditions:?}");
            let both = Conditions { none_match: tag("\"t-1\""), ..conditions.clone() };
            let expected =
                if expected == Outcome::Failed { expected } else { Outcome::NotModified };
            assert_eq!(both.evaluate(&FILE), expected, "{both:?}");
        }
        let undated = Representation { modified: None, changed: None, ..FILE };
        let since = Conditions { unmodified_since: Some(0), ..Conditions::default() };
        assert_eq!(since.evaluate(&undated), Outcome::Whole, "there is no date to compare");
    }

    #[test]
    fn if_unmodified_since_is_compared_with_last_modified_but_a_range_needs_an_unchanged_file() {
        let file = Representation { changed: Some(784_111_900), ..FILE };
        let whole_since =
            |seconds| Conditions { unmodified_since: Some(seconds), ..Conditions::default() };
        let range = Some(ByteRange::From(0, 0));
        for (since, whole, part) in [
            (784_111_776, Outcome::Failed, Outcome::Failed),
            (784_111_777, Outcome::Whole, Outcome::Whole),
            (784_111_899, Outcome::Whole, Outcome::Whole),
            (784_111_900, Outcome::Whole, Outcome::Partial(0..1)),
        ] {
            assert_eq!(whole_since(since).evaluate(&file), whole, "{since}");
            let ranged = Conditions { range, ..whole_since(since) };
            assert_eq!(ranged.evaluate(&file), part, "{since} with a range");
        }
        // Another version may follow, or may have been replaced, within the same second.
        let new_file = Representation { is_settled: false, ..file };
        let ranged = Conditions { range, ..whole_since(784_111_900) };
        assert_eq!(ranged.evaluate(&new_file), Outcome::Whole);
        // Without a Last-Modified, only the time of the last change is known.
        let undated = Representation { modified: None, ..file };
        assert_eq!(whole_since(784_111_777).evaluate(&undated), Outcome::Failed);
        assert_eq!(whole_since(784_111_900).evaluate(&undated), Outcome::Whole);
    }

    #[test]
    fn times_that_an_http_date_cannot_represent() {
        use std::time::Duration;
        assert_eq!(http_seconds(UNIX_EPOCH - Duration::from_secs(1)), None);
        assert_eq!(http_seconds(UNIX_EPOCH), Some(0));
        let last = UNIX_EPOCH + Duration::from_secs(YEAR_10000 - 1);
        assert_eq!(http_seconds(last), Some(YEAR_10000 - 1));
        assert_eq!(httpdate::fmt_http_date(last), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(http_seconds(last + Duration::from_secs(1)), None);
    }
}
