//! What an authority that issues certificates asks to see of a host, while it is being proved whose it is (RFC 8555, 8).

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::sign::CertifiedKey;

use super::signing;

/// The protocol over TLS in which nothing is said (RFC 8737, 6.2): the certificate is all.
pub(super) const ACME_TLS: &[u8] = b"acme-tls/1";

/// Where an authority looks over HTTP (RFC 8555, 8.3).
const HTTP_PATH_PREFIX: &str = "/.well-known/acme-challenge/";

/// The hosts that have their certificates from an authority while the server runs, and the answers to what it asks. A copy is the
/// same one. Whoever talks to the authority writes them; the server gives them: over TLS on its own port, and in the clear where
/// requests are sent on to it.
#[derive(Clone, Default)]
pub struct Challenges(Arc<Responses>);

#[derive(Default)]
struct Responses {
    hosts: Vec<String>,
    over_http: Mutex<HashMap<String, String>>,
    over_tls: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

impl Challenges {
    /// For these hosts, in lower case. Until there is a certificate for them, who comes by TLS is refused.
    pub fn new(hosts: Vec<String>) -> Challenges {
        Challenges(Arc::new(Responses { hosts, ..Responses::default() }))
    }

    /// Who asks for `token` over HTTP is told `key_authorization` from now on.
    pub fn set_http_response(&self, token: &str, key_authorization: &str) {
        locked(&self.0.over_http).insert(token.to_owned(), key_authorization.to_owned());
    }

    /// Who asks for `host` over TLS, by `acme-tls/1`, is shown `key_authorization` from now on.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn set_tls_response(&self, host: &str, key_authorization: &str) -> io::Result<()> {
        let certificate = signing::challenge_certificate(host, key_authorization)?;
        locked(&self.0.over_tls).insert(server_name_for(host), Arc::new(certificate));
        Ok(())
    }

    /// Nothing is answered any more.
    pub fn clear(&self) {
        locked(&self.0.over_http).clear();
        locked(&self.0.over_tls).clear();
    }

    pub(super) fn has_tls_responses(&self) -> bool {
        !locked(&self.0.over_tls).is_empty()
    }

    /// What is shown to who asks for `name` over TLS.
    pub(super) fn certificate_for(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        locked(&self.0.over_tls).get(&name.to_ascii_lowercase()).cloned()
    }

    /// Whether `host` is one of them.
    pub(super) fn has_host(&self, host: &str) -> bool {
        self.0.hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
    }

    /// What is answered to a request for `path`.
    pub(super) fn response_for_path(&self, path: &str) -> Option<String> {
        locked(&self.0.over_http).get(path.strip_prefix(HTTP_PATH_PREFIX)?).cloned()
    }
}

impl fmt::Debug for Challenges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Challenges").field(&self.0.hosts).finish()
    }
}

/// The name by which an authority asks for a host: an address has one of the reverse mapping (RFC 8738, 6).
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

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
