//! The fuzz target of what a certificate authority sends.

use rookery_server::tls::IssuedCertificate;

/// Reads the input as a problem document, as a certificate in PEM, and as one in DER that is put
/// into PEM.
///
/// Text that is passed on is one short line, and a certificate is only read if it has an expiry.
pub fn acme_response(data: &[u8]) {
    if let Some(line) = rookery_acme::read_for_fuzzer(data) {
        assert!(line.len() <= 1200 && !line.chars().any(char::is_control), "{line:?}");
    }
    for pem in [data.to_vec(), pem(data)] {
        if let Some(issued) = IssuedCertificate::read(&pem) {
            assert!(
                issued.hosts.iter().all(|host| !host.bytes().any(|byte| byte.is_ascii_uppercase()))
            );
            assert_eq!(IssuedCertificate::read(&pem), Some(issued));
        }
    }
}

fn pem(der: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = b"-----BEGIN CERTIFICATE-----\n".to_vec();
    for three in der.chunks(3) {
        let bits = (0..3)
            .fold(0u32, |bits, at| bits << 8 | u32::from(three.get(at).copied().unwrap_or(0)));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at > three.len() { b'=' } else { digit });
        }
    }
    text.extend_from_slice(b"\n-----END CERTIFICATE-----\n");
    text
}
