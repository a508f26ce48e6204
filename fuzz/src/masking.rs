//! The fuzz target of the masking of secrets in request targets.

use rookery_exchange::{masked, write_masked, write_masked_query};

const MASK: &[u8] = b"<...>";

/// Masks a request target. Checks that the other bytes stay as they are and in order, that no
/// secret is left, and that a limit on the length only cuts the same text off.
pub fn masking(data: &[u8]) {
    let mut rest = data;
    let mut whole = Vec::new();
    for part in masked(data) {
        whole.extend_from_slice(part);
        if !data.as_ptr_range().contains(&part.as_ptr()) || part.is_empty() {
            assert!(part.is_empty() || part == MASK);
            continue;
        }
        // The parts between the masks follow each other in the target.
        let at = part.as_ptr() as usize - rest.as_ptr() as usize;
        assert_eq!(&rest[at..at + part.len()], part);
        rest = &rest[at + part.len()..];
    }
    assert!(!has_secret(&whole), "{}", String::from_utf8_lossy(&whole));
    for most in [0, 1, data.len() / 2, usize::MAX] {
        let mut out = b"before".to_vec();
        write_masked(data, most, &mut out);
        assert_eq!(&out[6..], &whole[..whole.len().min(most)]);
    }
    // A query is masked in the same way with its `?` and without.
    let mut query = b"?".to_vec();
    write_masked_query(data, usize::MAX, &mut query);
    assert!(!has_secret(&query), "{}", String::from_utf8_lossy(&query));
    let target = [b"?", data].concat();
    assert_eq!(query, masked(&target).collect::<Vec<_>>().concat());
}

/// Returns true if a text contains the token of a session, or the value of a parameter `token`.
fn has_secret(text: &[u8]) -> bool {
    (0..text.len()).any(|at| {
        let is_start = at == 0 || !text[at - 1].is_ascii_alphanumeric();
        let after = |prefix: &[u8]| text[at..].strip_prefix(prefix).filter(|_| is_start);
        let is_hex =
            |value: &[u8]| value.iter().take_while(|byte| byte.is_ascii_hexdigit()).count() >= 16;
        let is_value = |value: &[u8]| {
            let ends = |byte: Option<&u8>| byte.is_none_or(|byte| b"#&;?%=".contains(byte));
            !value.starts_with(MASK) && !ends(value.first())
        };
        [&b"session/"[..], b"w="].into_iter().filter_map(after).any(is_hex)
            || after(b"token=").is_some_and(is_value)
    })
}
