//! The settings of TLS.

use http::HeaderValue;

use super::challenges::Challenges;
use super::pem::Pem;

/// The settings of TLS. A reload reads the files again.
#[derive(Debug, Clone, Default)]
pub struct TlsSettings {
    /// The certificates, which are chosen by the server name that a client requests (RFC 6066, 3).
    /// A client that requests an unknown name or none gets the first.
    pub pairs: Vec<CertificatePair>,
    /// The certificate authorities for client certificates. Without them, clients are not asked for
    /// certificates.
    pub client_ca: Option<Pem>,
    /// True if a client may connect without a certificate.
    pub client_is_optional: bool,
    /// The minimum TLS version.
    pub minimum: TlsVersion,
    /// True if HTTP/2 is not offered to clients.
    pub only_http1: bool,
    /// True if WebSockets over HTTP/2 (RFC 8441) are not offered. Clients then open them over
    /// HTTP/1.1.
    pub only_http1_websockets: bool,
    /// The value of `Strict-Transport-Security`, by which browsers use only HTTPS for this host.
    /// `None` omits the header.
    pub hsts: Option<Hsts>,
    /// The responses to ACME challenges, if the certificates are obtained by ACME while the server
    /// runs. The files of the first of [`pairs`](Self::pairs) may then be missing, and the further
    /// pairs are used instead until [`Tls::reload`](crate::tls::Tls::reload) finds the files.
    pub challenges: Option<Challenges>,
}

/// The header `Strict-Transport-Security` (RFC 6797, 6.1). It is added to every response over TLS
/// to a request whose Host is a name, unless the application has set it. The header has no meaning
/// for IP addresses (8.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hsts {
    /// The time in seconds for which browsers remember the setting. 0 makes them forget it.
    pub max_age: u32,
    /// True if the setting also applies to all subdomains.
    pub include_subdomains: bool,
    /// True if browser vendors may include the host in their preload lists.
    pub preload: bool,
}

impl Hsts {
    /// Returns the value of the header.
    pub(super) fn value(self) -> HeaderValue {
        let subdomains = if self.include_subdomains { "; includeSubDomains" } else { "" };
        let preload = if self.preload { "; preload" } else { "" };
        HeaderValue::try_from(format!("max-age={}{subdomains}{preload}", self.max_age))
            .expect("the value consists of visible ASCII characters")
    }
}

/// A certificate and its key.
#[derive(Debug, Clone)]
pub struct CertificatePair {
    /// The certificate, followed by its intermediate certificates, each signed by the next.
    pub certificate: Pem,
    /// The private key in PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key: Pem,
}

/// A version of TLS. Older versions are deprecated (RFC 8996).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246), with the cipher suites that are still secure.
    #[default]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}
