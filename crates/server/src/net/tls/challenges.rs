//! The responses to ACME challenges, by which a certificate authority verifies that this server
//! controls a host name (RFC 8555, 8).

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use ring::digest::{SHA256, digest};
use rookery_system::lock;
use rustls::crypto::ring::sign::any_ecdsa_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::CertifiedKey;

/// The ALPN protocol name of ACME challenges over TLS (RFC 8737, 6.2). The server responds to such
/// a challenge by presenting a special certificate in the TLS handshake, and no HTTP request
/// follows.
pub(super) const ACME_TLS: &[u8] = b"acme-tls/1";

/// The path prefix of ACME challenges over HTTP (RFC 8555, 8.3).
const HTTP_PATH_PREFIX: &str = "/.well-known/acme-challenge/";

/// The hosts whose certificates are obtained by ACME while the server runs, and the responses to
/// the challenges by which the certificate authority verifies these hosts. The ACME client sets the
/// responses. The server sends them over TLS on its own port, and over plaintext HTTP from the
/// listener that redirects to HTTPS. Clones share their state.
#[derive(Clone, Default)]
pub struct Challenges(Arc<Responses>);

#[derive(Default)]
struct Responses {
    hosts: Vec<String>,
    over_http: Mutex<HashMap<String, String>>,
    over_tls: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

impl Challenges {
    /// Creates the state for hosts whose certificates ACME obtains, without responses to
    /// challenges. The host names must be in lower case. TLS handshakes for a host fail until ACME
    /// has obtained its certificate.
    pub fn new(hosts: Vec<String>) -> Challenges {
        Challenges(Arc::new(Responses { hosts, ..Responses::default() }))
    }

    /// Sets the response to the ACME challenge over HTTP that has this token.
    pub fn set_http_response(&self, token: &str, key_authorization: &str) {
        lock(&self.0.over_http).insert(token.to_owned(), key_authorization.to_owned());
    }

    /// Sets the response to the ACME challenge over TLS (`acme-tls/1`) for this host.
    ///
    /// # Errors
    /// Fails if the system provides no random numbers.
    pub fn set_tls_response(&self, host: &str, key_authorization: &str) -> io::Result<()> {
        let certificate =
            challenge_certificate(host, key_authorization).map_err(io::Error::other)?;
        lock(&self.0.over_tls).insert(server_name_for(host), Arc::new(certificate));
        Ok(())
    }

    /// Removes the responses to all ACME challenges.
    pub fn clear(&self) {
        lock(&self.0.over_http).clear();
        lock(&self.0.over_tls).clear();
    }

    pub(super) fn has_tls_responses(&self) -> bool {
        !lock(&self.0.over_tls).is_empty()
    }

    /// Returns the certificate that the server presents in response to an ACME challenge over TLS
    /// for the host `name`. Returns `None` if no such challenge is pending.
    pub(super) fn certificate_for(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        lock(&self.0.over_tls).get(&name.to_ascii_lowercase()).cloned()
    }

    /// Returns true if the certificate of `host` is obtained by ACME.
    pub(super) fn has_host(&self, host: &str) -> bool {
        self.0.hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
    }

    /// Returns the response to an ACME challenge over HTTP, or `None` if `path` belongs to no
    /// pending challenge.
    pub(super) fn response_for_path(&self, path: &str) -> Option<String> {
        lock(&self.0.over_http).get(path.strip_prefix(HTTP_PATH_PREFIX)?).cloned()
    }
}

impl fmt::Debug for Challenges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Challenges").field(&self.0.hosts).finish()
    }
}

/// Returns the server name that a certificate authority sends in its TLS handshake to verify `host`
/// by ACME. For an IP address, it is the name of the reverse mapping (RFC 8738, 6).
fn server_name_for(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        Ok(IpAddr::V6(address)) => {
            let nibbles = address
                .octets()
                .into_iter()
                .rev()
                .map(|byte| format!("{:x}.{:x}.", byte & 15, byte >> 4));
            format!("{}ip6.arpa", nibbles.collect::<String>())
        }
        Err(_) => host.to_ascii_lowercase(),
    }
}

/// Makes the certificate that proves to an ACME authority over TLS that this server controls a host
/// (RFC 8737, 3). It contains the hash of the key authorization. Authorities ignore its dates.
fn challenge_certificate(
    host: &str,
    key_authorization: &str,
) -> Result<CertifiedKey, Box<dyn Error + Send + Sync>> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([host.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    let hash = digest(&SHA256, key_authorization.as_bytes());
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(hash.as_ref())];
    let certificate = params.self_signed(&key)?;
    let key = any_ecdsa_type(&PrivateKeyDer::from(key))?;
    // `from_der` is not used, because it refuses unknown critical extensions, and this one must be
    // critical.
    Ok(CertifiedKey::new(vec![certificate.into()], key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::tls::certificate::Certificate;

    #[test]
    fn a_challenge_certificate_names_only_its_host() {
        let made = challenge_certificate("app.example.org", "token.thumbprint").unwrap();
        let der = &made.cert[0];
        assert_eq!(Certificate::parse(der).unwrap().hosts, ["app.example.org"]);
        // The extension 1.3.6.1.5.5.7.1.31 is critical, and contains the SHA-256 in an octet string
        // (RFC 8737, 3).
        let wanted = [
            &[6, 8, 0x2B, 6, 1, 5, 5, 7, 1, 0x1F, 1, 1, 0xFF, 4, 34, 4, 32][..],
            digest(&SHA256, b"token.thumbprint").as_ref(),
        ]
        .concat();
        assert!(der.windows(wanted.len()).any(|window| window == wanted));
    }

    #[test]
    fn ip_addresses_use_reverse_mapping_names() {
        assert_eq!(server_name_for("App.example.org"), "app.example.org");
        assert_eq!(server_name_for("192.0.2.1"), "1.2.0.192.in-addr.arpa");
        assert_eq!(
            server_name_for("2001:db8::1"),
            "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"
        );
    }

    #[test]
    fn responds_only_to_registered_challenges() {
        let challenges = Challenges::new(vec!["app.example.org".to_owned()]);
        challenges.set_http_response("abc", "abc.def");
        assert_eq!(
            challenges.response_for_path("/.well-known/acme-challenge/abc").as_deref(),
            Some("abc.def")
        );
        for other in
            ["/.well-known/acme-challenge/", "/.well-known/acme-challenge/ab", "/abc", "abc"]
        {
            assert_eq!(challenges.response_for_path(other), None, "{other}");
        }
        challenges.clear();
        assert_eq!(challenges.response_for_path("/.well-known/acme-challenge/abc"), None);
        assert!(challenges.has_host("APP.example.org") && !challenges.has_host("example.org"));
    }
}
