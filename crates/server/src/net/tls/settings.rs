//! The TLS settings of a listener: certificates, client authentication, protocol versions and HSTS.

use http::HeaderValue;

use super::challenges::Challenges;
use super::pem::Pem;

/// The TLS settings of a listener: certificates, client authentication, protocol versions and HSTS.
#[derive(Debug, Clone, Default)]
pub struct TlsSettings {
    /// The certificates with their keys. The server presents the one for the server name that a
    /// client requests (RFC 6066, 3), or the first one if the name is unknown or missing.
    pub pairs: Vec<CertificatePair>,
    /// The certificate authorities that may issue client certificates. If `None`, clients are not
    /// asked for certificates.
    pub client_ca: Option<Pem>,
    /// True if a client may connect without a client certificate.
    pub client_is_optional: bool,
    /// The minimum TLS version that a client must support.
    pub minimum: TlsVersion,
    /// True if HTTP/2 is not offered to clients.
    pub only_http1: bool,
    /// The value of the header `Strict-Transport-Security`, which makes browsers use only HTTPS for
    /// this host. `None` omits the header.
    pub hsts: Option<Hsts>,
    /// The responses to ACME challenges, if the certificates are obtained by ACME while the server
    /// runs. In that case, the files of the first of [`pairs`](Self::pairs) may be missing. Until
    /// [`Tls::reload`](crate::tls::Tls::reload) finds these files, the server uses the other pairs.
    pub challenges: Option<Challenges>,
}

/// The settings of the header `Strict-Transport-Security` (RFC 6797, 6.1), which the server adds to
/// every response over TLS. The header is not added if the application has set it, or if the
/// request's Host is an IP address, because browsers then ignore the header (RFC 6797, 8.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hsts {
    /// The time in seconds for which browsers remember to use only HTTPS for the host. 0 makes them
    /// forget it.
    pub max_age: u32,
    /// True if browsers also use only HTTPS for all subdomains of the host.
    pub include_subdomains: bool,
    /// True if browser vendors may include the host in their preload lists of hosts that use only
    /// HTTPS.
    pub preload: bool,
}

impl Hsts {
    /// Returns the value of the header `Strict-Transport-Security`.
    pub(super) fn value(self) -> HeaderValue {
        let subdomains = if self.include_subdomains { "; includeSubDomains" } else { "" };
        let preload = if self.preload { "; preload" } else { "" };
        HeaderValue::try_from(format!("max-age={}{subdomains}{preload}", self.max_age))
            .expect("the value consists of visible ASCII characters")
    }
}

/// A certificate and its private key, as files or PEM text.
#[derive(Debug, Clone)]
pub struct CertificatePair {
    /// The certificate, followed by its intermediate certificates. Each certificate is signed by
    /// the next.
    pub certificate: Pem,
    /// The unencrypted private key in PKCS#8, PKCS#1 or SEC1 format.
    pub key: Pem,
}

/// A version of TLS that the server supports. Older versions are deprecated (RFC 8996).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246), with the cipher suites that are still secure.
    #[default]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}
