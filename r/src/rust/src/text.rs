//! Text functions of the R package, such as base64 encoding, percent-encoding and the
//! classification of IP addresses.
//!
//! A returned text is valid until `rk_text_free` is called, which frees the text that was returned
//! last. C calls these functions in pairs. While C copies a text, R may run a finalizer that calls
//! another pair.

pub(crate) mod address;
mod for_r;
pub(crate) mod path;

use std::cell::RefCell;
use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rookery_exchange::is_secret_name;

use crate::{Bytes, entry};

/// The characters that `encodeURI()` leaves unencoded and `encodeURIComponent()` encodes, because
/// they are reserved in URIs.
const RESERVED: &[u8] = b";,/?:@&=+$";
/// The characters, besides letters and digits, that percent-encoding never changes (ECMA-262,
/// `uriUnescaped`).
const MARKS: &[u8] = b"-_.!~*'()";

thread_local! {
    static TEXTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Lends a text to C, and returns its bytes. They are valid until a call of `rk_text_free` frees
/// the text. Each call frees the text that was lent last among those not yet freed.
pub(crate) fn lend(text: Vec<u8>) -> Bytes {
    let bytes = Bytes::of(&text);
    TEXTS.with_borrow_mut(|texts| texts.push(text));
    bytes
}

/// Frees the text that a function such as `rk_base64` has returned last, among those not yet freed.
/// C calls this after it has copied the text.
#[unsafe(no_mangle)]
pub extern "C" fn rk_text_free() {
    TEXTS.with_borrow_mut(|texts| drop(texts.pop()));
}

/// Returns 4 for an IPv4 address, 6 for an IPv6 address, and -1 for other text. The zone of an IPv6
/// address is not checked.
fn ip_family(text: &[u8]) -> i32 {
    let Ok(text) = std::str::from_utf8(text) else { return -1 };
    if text.parse::<Ipv4Addr>().is_ok() {
        return 4;
    }
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    if address.parse::<Ipv6Addr>().is_ok() { 6 } else { -1 }
}

fn is_kept(byte: u8, is_whole: bool) -> bool {
    byte.is_ascii_alphanumeric() || MARKS.contains(&byte) || (is_whole && RESERVED.contains(&byte))
}

fn uri_encode(text: &[u8], is_whole: bool) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = Vec::with_capacity(text.len());
    for &byte in text {
        if is_kept(byte, is_whole) {
            encoded.push(byte);
        } else {
            encoded.extend_from_slice(&[
                b'%',
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]);
        }
    }
    encoded
}

/// Decodes the percent-escapes in a text. Copies invalid escapes unchanged. If `is_whole` is true,
/// the text is a whole URI, so escapes of reserved characters are also copied unchanged. Returns
/// `None` if the text contains `%00`, because R's strings cannot contain NUL.
fn uri_decode(text: &[u8], is_whole: bool) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let &[b'%', high, low, ..] = rest else {
            decoded.push(first);
            rest = after;
            continue;
        };
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        match digit(high).zip(digit(low)).map(|(high, low)| high << 4 | low) {
            Some(0) => return None,
            Some(byte) if !(is_whole && RESERVED.contains(&byte)) => decoded.push(byte),
            _ => decoded.extend_from_slice(&rest[..3]),
        }
        rest = &rest[3..];
    }
    Some(decoded)
}

/// Returns 4 for an IPv4 address, 6 for an IPv6 address, and -1 for other text.
///
/// # Safety
/// - `text` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_ip_family(text: Bytes) -> i32 {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    entry(-1, || ip_family(unsafe { text.get() }))
}

/// Encodes bytes as base64, in the alphabet of RFC 4648, section 4, with padding and without line
/// breaks.
///
/// # Safety
/// - `bytes` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_base64(bytes: Bytes) -> Bytes {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    entry(Bytes::EMPTY, || lend(STANDARD.encode(unsafe { bytes.get() }).into_bytes()))
}

/// Percent-encodes a text. With `is_whole`, the text is a whole URI, in which reserved characters
/// are not encoded.
///
/// # Safety
/// - `text` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_uri_encode(text: Bytes, is_whole: i32) -> Bytes {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    entry(Bytes::EMPTY, || lend(uri_encode(unsafe { text.get() }, is_whole != 0)))
}

/// Returns 1 if the name of a parameter or header says that its value is a secret, otherwise 0.
///
/// # Safety
/// - `name` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_is_secret_name(name: Bytes) -> i32 {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    entry(1, || i32::from(is_secret_name(unsafe { name.get() })))
}

/// Decodes the percent-escapes in a text, writes the result to `out`, and returns 1. With
/// `is_whole`, the text is a whole URI, in which escapes of reserved characters are not decoded.
/// Returns 0 if the text contains `%00`.
///
/// # Safety
/// - `text` is readable, and `out` is a `struct rk_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_uri_decode(text: Bytes, is_whole: i32, out: *mut Bytes) -> i32 {
    entry(0, || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let Some(decoded) = uri_decode(unsafe { text.get() }, is_whole != 0) else { return 0 };
        // SAFETY: guaranteed by the caller, see `# Safety`.
        unsafe { out.write(lend(decoded)) };
        1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_family_of_valid_and_invalid_addresses() {
        let table = [
            ("127.0.0.1", 4),
            ("255.255.255.255", 4),
            ("256.0.0.1", -1),
            ("010.0.0.1", -1),
            ("1.2.3", -1),
            ("1.2.3.4%eth0", -1),
            ("::", 6),
            ("::1", 6),
            ("fe80::1%eth0", 6),
            ("::ffff:1.2.3.4", 6),
            ("1:2:3:4:5:6:7::", 6),
            ("1:2:3:4:5:6:7::8", -1),
            ("1:2:3:4:5:6:7:8:9", -1),
            ("12345::", -1),
            ("[::1]", -1),
            ("localhost", -1),
            ("", -1),
        ];
        for (text, want) in table {
            assert_eq!(ip_family(text.as_bytes()), want, "{text}");
        }
        assert_eq!(ip_family(b"::1\xFF"), -1);
    }

    #[test]
    fn percent_escapes_are_decoded() {
        let table: [(&str, bool, Option<&str>); 9] = [
            ("a%20b", false, Some("a b")),
            ("%2F%2f", false, Some("//")),
            ("%2F%2f", true, Some("%2F%2f")),
            ("%", false, Some("%")),
            ("%4", false, Some("%4")),
            ("%%41", false, Some("%%41")),
            ("%zz%41", false, Some("%zzA")),
            ("a+b", false, Some("a+b")),
            ("a%00b", false, None),
        ];
        for (text, is_whole, want) in table {
            let decoded = uri_decode(text.as_bytes(), is_whole);
            assert_eq!(decoded.as_deref(), want.map(str::as_bytes), "{text}");
        }
    }

    /// Tests that decoding restores each encoded byte, and that letters, digits and the bytes in
    /// `RESERVED` and `MARKS` are not encoded.
    #[test]
    fn decoding_restores_encoded_bytes() {
        for is_whole in [false, true] {
            for byte in 1..=255u8 {
                let encoded = uri_encode(&[byte, b'x'], is_whole);
                assert_eq!(encoded.len() == 2, is_kept(byte, is_whole), "{byte}");
                assert_eq!(uri_decode(&encoded, false).unwrap(), [byte, b'x'], "{byte}");
            }
        }
    }
}
