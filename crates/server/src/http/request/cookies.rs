//! The cookies in a `Cookie` header.

/// Returns the name and value of each cookie in a `Cookie` header.
pub fn pairs(cookies: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    cookies.split(|byte| *byte == b';').map(|pair| split(pair.trim_ascii()))
}

/// Splits a cookie into its name and its value.
pub fn split(pair: &[u8]) -> (&[u8], &[u8]) {
    let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
    (pair[..at].trim_ascii(), pair.get(at + 1..).unwrap_or_default().trim_ascii())
}
