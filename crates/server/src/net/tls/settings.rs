//! How TLS is set up.

use http::HeaderValue;

use super::challenges::Challenges;
use super::pem::Pem;

/// How TLS is set up. Files are looked at again when it is reloaded.
#[derive(Debug, Clone, Default)]
pub struct TlsSettings {
    /// The certificates, chosen by the name that a client asks for (RFC 6066, 3). One that asks for none of them, or for no
    /// name, is given the first.
    pub pairs: Vec<CertificatePair>,
    /// The certificates that sign those of clients. Without them clients are asked for none.
    pub client_ca: Option<Pem>,
    /// Whether a client may do without one.
    pub client_is_optional: bool,
    /// The oldest version that is spoken.
    pub minimum: TlsVersion,
    /// Whether HTTP/2 is not offered to clients.
    pub only_http1: bool,
    /// Whether clients of HTTP/2 are not told that WebSockets may be opened over it (RFC 8441): they open them over HTTP/1.1 then.
    pub only_http1_websockets: bool,
    /// What browsers are told of coming by HTTPS alone; none: nothing.
    pub hsts: Option<Hsts>,
    /// What is answered to an authority from which the certificates come while the server runs. Files of [`pairs`](Self::pairs) need
    /// not be there then, and those behind the first are used in its place, until [`Tls::reload`](crate::tls::Tls::reload) finds them.
    pub challenges: Option<Challenges>,
}

/// `Strict-Transport-Security` (RFC 6797, 6.1), in every reply over TLS to a request whose Host is a name, unless the application has said
/// so itself. An address is never a host of that kind (8.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hsts {
    /// For how many seconds; 0 has browsers forget it.
    pub max_age: u32,
    /// Whether it holds for all names below this one as well.
    pub include_subdomains: bool,
    /// Whether those who make browsers may put the name into them.
    pub preload: bool,
}

impl Hsts {
    /// The header's value.
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
    /// The certificate, and behind it those between it and a root, each signed by the next.
    pub certificate: Pem,
    /// Its private key: PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key: Pem,
}

/// A version of TLS. Older ones have been given up (RFC 8996).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246), with the suites that are still sound.
    #[default]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}
