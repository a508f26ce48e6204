//! The context of a trace that requests carry from one program to the next (W3C Trace Context).

/// The length of a `traceparent` header of version 00.
const LENGTH: usize = 55;

/// The maximum number of members of a `tracestate` header (W3C Trace Context, 3.3.1.1).
const MAX_MEMBERS: usize = 32;

/// The maximum length of a key and of a value in a `tracestate` header.
const MAX_PART: usize = 256;

/// The identity of a span, as the `traceparent` header passes it on: the trace to which the span
/// belongs, the span's own id, and whether the span is recorded.
///
/// ```
/// use rookery_exchange::TraceContext;
///
/// let header = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let context = TraceContext::parse(header).unwrap();
/// assert!(context.is_sampled());
/// assert_eq!(&context.to_header(), header);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The id of the trace, which is not zero.
    pub trace_id: [u8; 16],
    /// The id of the span, which is not zero.
    pub span_id: [u8; 8],
    /// The trace flags: [`SAMPLED`](Self::SAMPLED), and flags of later versions of the standard.
    pub flags: u8,
}

impl TraceContext {
    /// The flag of a span that is recorded.
    pub const SAMPLED: u8 = 1;
    /// The flag of a trace whose id is random (W3C Trace Context Level 2).
    pub const RANDOM: u8 = 2;

    /// Parses the value of a `traceparent` header. A version after 00 is read as far as version 00
    /// defines it (W3C Trace Context, 3.2.4). Returns `None` if the value is invalid.
    pub fn parse(value: &[u8]) -> Option<TraceContext> {
        let (known, rest) = value.split_at_checked(LENGTH)?;
        let [version] = bytes(&known[..2])?;
        let has_rest = if version == 0 { rest.is_empty() } else { matches!(rest, [] | [b'-', ..]) };
        let has_form = [2, 35, 52].into_iter().all(|at| known[at] == b'-');
        if version == 0xFF || !has_rest || !has_form {
            return None;
        }
        let context = TraceContext {
            trace_id: bytes(&known[3..35])?,
            span_id: bytes(&known[36..52])?,
            flags: bytes::<1>(&known[53..])?[0],
        };
        (context.trace_id != [0; 16] && context.span_id != [0; 8]).then_some(context)
    }

    /// Returns the value of a `traceparent` header of version 00 that passes this context on.
    pub fn to_header(&self) -> [u8; LENGTH] {
        let mut header = [b'-'; LENGTH];
        write_hex(&[0], &mut header[..2]);
        write_hex(&self.trace_id, &mut header[3..35]);
        write_hex(&self.span_id, &mut header[36..52]);
        write_hex(&[self.flags], &mut header[53..]);
        header
    }

    /// Returns the trace id as 32 hexadecimal digits.
    pub fn trace_id_text(&self) -> [u8; 32] {
        let mut text = [0; 32];
        write_hex(&self.trace_id, &mut text);
        text
    }

    /// Returns true if the span is recorded, so that its children should be recorded as well.
    pub fn is_sampled(&self) -> bool {
        self.flags & Self::SAMPLED != 0
    }
}

/// Returns true if the value of a `tracestate` header is valid (W3C Trace Context, 3.3.1): at most
/// 32 members of the form `key=value` with different keys.
pub fn is_trace_state(value: &[u8]) -> bool {
    let trimmed = |member: &[u8]| -> usize {
        member.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t')).count()
    };
    let mut keys: [&[u8]; MAX_MEMBERS] = [&[]; MAX_MEMBERS];
    let mut count = 0;
    for member in value.split(|byte| *byte == b',') {
        let member = &member[..member.len() - trimmed(member)];
        let start = member.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let member = &member[start..];
        // Empty members are allowed and mean nothing.
        if member.is_empty() {
            continue;
        }
        let Some(equals) = member.iter().position(|byte| *byte == b'=') else { return false };
        let (key, value) = (&member[..equals], &member[equals + 1..]);
        if count == MAX_MEMBERS
            || !is_state_key(key)
            || !is_state_value(value)
            || keys[..count].contains(&key)
        {
            return false;
        }
        keys[count] = key;
        count += 1;
    }
    count > 0
}

fn is_state_key(key: &[u8]) -> bool {
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=MAX_PART).contains(&key.len())
        && is_first(key[0])
        && key.iter().all(|byte| is_first(*byte) || b"_-*/@".contains(byte))
}

fn is_state_value(value: &[u8]) -> bool {
    (1..=MAX_PART).contains(&value.len())
        && value.iter().all(|byte| matches!(byte, b' '..=b'~') && !b",=".contains(byte))
}

/// The value of each lower-case hexadecimal digit, and [`NO_DIGIT`] for all other bytes. The
/// standard allows no others. Without tables, the headers of a request that is not recorded cost
/// several times as much as its ids.
const VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < DIGITS.len() {
        values[DIGITS[value] as usize] = value as u8;
        value += 1;
    }
    values
};

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The value of a byte that is no digit. Its bit stays set when values are combined by `|`.
const NO_DIGIT: u8 = 0x80;

/// The two digits of each byte.
const PAIRS: [[u8; 2]; 256] = {
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < pairs.len() {
        pairs[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    pairs
};

/// Parses lower-case hexadecimal digits.
fn bytes<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let (mut out, mut seen) = ([0; N], 0);
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = [pair[0], pair[1]].map(|digit| VALUES[usize::from(digit)]);
        seen |= high | low;
        *byte = high << 4 | low;
    }
    (seen & NO_DIGIT == 0).then_some(out)
}

fn write_hex(bytes: &[u8], out: &mut [u8]) {
    for (pair, byte) in out.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&PAIRS[usize::from(*byte)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn parses_what_it_writes() {
        let context = TraceContext::parse(HEADER.as_bytes()).unwrap();
        assert_eq!(context.trace_id[..2], [0x0a, 0xf7]);
        assert_eq!(context.span_id[7], 0x31);
        assert!(context.is_sampled());
        assert_eq!(context.to_header(), HEADER.as_bytes());
        assert_eq!(&context.trace_id_text(), b"0af7651916cd43dd8448eb211c80319c");
        for flags in 0..=255 {
            let other = TraceContext { flags, ..context };
            assert_eq!(TraceContext::parse(&other.to_header()), Some(other));
            assert_eq!(other.is_sampled(), flags % 2 == 1);
        }
    }

    #[test]
    fn refuses_every_other_form() {
        let change = |at: usize, byte: u8| {
            let mut header = HEADER.as_bytes().to_vec();
            header[at] = byte;
            header
        };
        for at in 0..LENGTH {
            // No position may have a byte outside the alphabet, or an upper-case digit.
            for byte in [b'g', b'A', b'F', b' ', b'_', b'/', b':', b'`', 0, 0xE9] {
                assert_eq!(TraceContext::parse(&change(at, byte)), None, "{at} {byte}");
            }
            assert_eq!(TraceContext::parse(&HEADER.as_bytes()[..at]), None, "{at} bytes");
        }
        let none = |text: &str| assert_eq!(TraceContext::parse(text.as_bytes()), None, "{text}");
        none(&format!("{HEADER}-"));
        none(&format!("{HEADER} "));
        none(&format!(" {HEADER}"));
        none("00-00000000000000000000000000000000-b7ad6b7169203331-01");
        none("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01");
        none(&HEADER.replacen("00", "ff", 1));
        none(&format!("{}x", HEADER.replacen("00", "cc", 1)));
    }

    #[test]
    fn reads_later_versions_as_far_as_they_are_known() {
        let later = HEADER.replacen("00", "cc", 1);
        let context = TraceContext::parse(HEADER.as_bytes());
        assert_eq!(TraceContext::parse(later.as_bytes()), context);
        assert_eq!(TraceContext::parse(format!("{later}-what-comes").as_bytes()), context);
        assert_eq!(TraceContext::parse(format!("{later}-").as_bytes()), context);
    }

    #[test]
    fn accepts_only_valid_trace_states() {
        let many =
            |count: usize| (0..count).map(|i| format!("k{i}=v")).collect::<Vec<_>>().join(",");
        let long = "k".repeat(256);
        for valid in [
            "a=b",
            "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
            "0a=b",
            "fw529a3039@dt=FfC1",
            " a=b ,\tb=c ",
            "a=b,,c=d,",
            "a= b",
            "a_-*/=!~",
            &many(32),
            &format!("{long}={long}"),
        ] {
            assert!(is_trace_state(valid.as_bytes()), "{valid}");
        }
        for invalid in [
            "",
            ",",
            " ",
            "a",
            "a=",
            "=b",
            "A=b",
            "@a=b",
            "a=b=c",
            "a=b,a=c",
            "a b=c",
            "a=\u{e9}",
            "a=b\n",
            "a=\u{7f}",
            &many(33),
            &format!("{long}k=v"),
            &format!("k={long}v"),
        ] {
            assert!(!is_trace_state(invalid.as_bytes()), "{invalid:?}");
        }
    }
}
