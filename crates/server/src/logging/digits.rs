//! The numbers, times and addresses of the access log and of R's requests. They are written digit
//! by digit, because the machinery of `write!` takes most of the time of a line, and 2,700 of the
//! 25,000 instructions that R's thread needs for a GET.

use std::io::Write as _;
use std::net::IpAddr;
use std::time::Duration;

/// The maximum number of digits of a `u64`.
const MAX_DIGITS: usize = 20;

/// The two decimal digits of each number below 100.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < pairs.len() {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// Returns the last two decimal digits of a number.
fn two_digits(number: u64) -> [u8; 2] {
    PAIRS[(number % 100) as usize]
}

/// Replaces two bytes of a text, which begin at position `at`, by the last two decimal digits of a
/// number.
pub(super) fn put_two_digits<const N: usize>(text: &mut [u8; N], at: usize, number: u64) {
    text[at..at + 2].copy_from_slice(&two_digits(number));
}

/// Appends a number.
pub fn push_number(mut number: u64, out: &mut Vec<u8>) {
    let (mut digits, mut at) = ([0; MAX_DIGITS], MAX_DIGITS);
    while number >= 10 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&two_digits(number));
        number /= 100;
    }
    if number > 0 || at == MAX_DIGITS {
        at -= 1;
        digits[at] = b'0' + number as u8;
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a duration in seconds, with six decimal places.
pub(super) fn push_seconds(time: Duration, out: &mut Vec<u8>) {
    let rounded = time.saturating_add(Duration::from_nanos(500));
    let micros = u64::from(rounded.subsec_micros());
    push_number(rounded.as_secs(), out);
    let mut places = *b".000000";
    put_two_digits(&mut places, 1, micros / 10_000);
    put_two_digits(&mut places, 3, micros / 100);
    put_two_digits(&mut places, 5, micros);
    out.extend_from_slice(&places);
}

/// Appends an address. An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`), which an IPv6 socket
/// reports for an IPv4 client, is written as the IPv4 address.
pub fn push_address(ip: IpAddr, out: &mut Vec<u8>) {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            for (at, octet) in ip.octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                push_number(octet.into(), out);
            }
        }
        IpAddr::V6(ip) => {
            // Writing to a `Vec` cannot fail.
            let _ = write!(out, "{ip}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = b"=".to_vec();
        push(&mut out);
        String::from_utf8(out).unwrap().split_off(1)
    }

    #[test]
    fn numbers_are_written_as_by_the_standard_library() {
        for number in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX] {
            assert_eq!(text(|out| push_number(number, out)), format!("{number}"));
            assert_eq!(two_digits(number), *format!("{:02}", number % 100).as_bytes());
        }
    }

    #[test]
    fn durations_have_six_decimal_places() {
        for (time, expected) in [
            (Duration::ZERO, "0.000000"),
            (Duration::from_nanos(499), "0.000000"),
            (Duration::from_nanos(501), "0.000001"),
            (Duration::from_micros(1234), "0.001234"),
            (Duration::from_nanos(999_999_500), "1.000000"),
            (Duration::new(86_400, 7_000), "86400.000007"),
        ] {
            assert_eq!(text(|out| push_seconds(time, out)), expected);
        }
        assert!(text(|out| push_seconds(Duration::MAX, out)).ends_with(".999999"));
    }

    #[test]
    fn addresses_are_written_as_by_the_standard_library() {
        for (ip, expected) in [
            ("127.0.0.1", "127.0.0.1"),
            ("255.10.9.0", "255.10.9.0"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
        ] {
            assert_eq!(text(|out| push_address(ip.parse().unwrap(), out)), expected);
        }
    }
}
