//! The resolver that chooses the certificate for a client by the host name in the client's TLS
//! handshake.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::challenges::{ACME_TLS, Challenges};
use super::identity::Identity;

/// The certificates of a server by host name. If several certificates have the same host name, the
/// first one is used.
#[derive(Debug)]
pub(super) struct CertificateResolver {
    /// The certificate for clients that request an unknown host name or none. `None` until a
    /// certificate exists.
    first: Option<Arc<CertifiedKey>>,
    /// The certificates by host name, including wildcard names such as `*.example.org`.
    names: HashMap<String, Arc<CertifiedKey>>,
}

impl CertificateResolver {
    pub(super) fn new(identities: &[Identity]) -> CertificateResolver {
        let first = identities.first().map(|identity| Arc::clone(&identity.key));
        let mut names = HashMap::new();
        for identity in identities {
            for host in &identity.hosts {
                names.entry(host.clone()).or_insert_with(|| Arc::clone(&identity.key));
            }
        }
        CertificateResolver { first, names }
    }

    /// Returns true if there is a certificate for `host`. Also returns true if no certificate
    /// contains a host name, because the first one is then used for every host.
    pub(super) fn covers(&self, host: &str) -> bool {
        (self.first.is_some() && self.names.is_empty())
            || self.find(host.strip_suffix('.').unwrap_or(host)).is_some()
    }

    /// Returns true if one of the certificates names `host`, which is a host name or IP address.
    pub(super) fn names(&self, host: &str) -> bool {
        self.find(host).is_some()
    }

    /// Returns the certificate for a host name. A wildcard (`*`) in a certificate stands for one
    /// label (RFC 6125, 6.4.3), which must be a valid label of a host name.
    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = name.to_ascii_lowercase();
        self.names.get(&name).or_else(|| {
            let (label, rest) = name.split_once('.')?;
            let is_label = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            let is_one = !label.is_empty() && label.bytes().all(is_label);
            self.names.get(&format!("*.{rest}")).filter(|_| is_one)
        })
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let found = hello.server_name().and_then(|name| self.find(name));
        found.or(self.first.as_ref()).map(Arc::clone)
    }
}

/// A resolver that presents a challenge certificate to an ACME authority, and a normal certificate
/// to any other client.
#[derive(Debug)]
pub(super) struct ChallengeResolver {
    pub(super) challenges: Challenges,
    pub(super) names: Arc<CertificateResolver>,
}

impl ResolvesServerCert for ChallengeResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if hello.alpn().is_some_and(|mut offered| offered.any(|name| name == ACME_TLS)) {
            return self.challenges.certificate_for(hello.server_name()?);
        }
        self.names.resolve(hello)
    }
}
