//! The keys of a WebSocket's opening handshake, by which a server proves that it understood the
//! request (RFC 6455, 4.2.2).

use base64::Engine as _;
use sha1::{Digest as _, Sha1};

/// The value of the header `Sec-WebSocket-Accept`: 28 characters.
pub type AcceptKey = [u8; 28];

/// The constant GUID that RFC 6455, 1.3 defines for the computation of `Sec-WebSocket-Accept`.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Computes the value of the response's `Sec-WebSocket-Accept` for the `Sec-WebSocket-Key` of the
/// request.
pub fn accept_key(key: &[u8]) -> AcceptKey {
    let digest = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    let mut accept = [0; 28];
    base64::engine::general_purpose::STANDARD
        .encode_slice(digest, &mut accept)
        .expect("20 bytes are 28 characters");
    accept
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(
            &super::accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="),
            b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }
}
