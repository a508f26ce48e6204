//! The settings for certificates from a certificate authority (ACME). They are checked before any
//! request is sent to the authority.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use instant_acme::ChallengeType;
use rookery_websocket_client::Roots;

use crate::schedule::RetrySchedule;

/// The URL of Let's Encrypt's ACME directory.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The URL of the ACME directory of Let's Encrypt's staging environment. It is for tests: clients
/// do not trust its certificates, but its rate limits are high.
pub const LETS_ENCRYPT_STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

/// The maximum number of host names in a certificate. Let's Encrypt has the same limit.
const MAX_DOMAINS: usize = 100;

/// The settings for certificates from an ACME authority.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The host names or IP addresses for which the certificate is issued.
    pub domains: Vec<String>,
    /// The e-mail addresses at which the authority can reach the operator. May be empty.
    pub emails: Vec<String>,
    /// Whether the operator agrees to the ACME authority's terms of service.
    pub agrees_to_terms: bool,
    /// The URL of the ACME authority's directory, which lists the URLs of its API.
    pub directory: String,
    /// The root certificates that verify the HTTPS certificate of the ACME authority's own server.
    pub roots: Roots,
    /// The profile of the certificate, which is a kind of certificate that the authority defines.
    /// `None` means the authority's default.
    pub profile: Option<String>,
    /// The folder in which the ACME account and the certificates are stored.
    pub folder: PathBuf,
    /// The times at which failed attempts to get a certificate are repeated.
    pub retry: RetrySchedule,
}

impl Settings {
    /// Creates settings for certificates from Let's Encrypt that are stored in `folder`.
    pub fn new(domains: Vec<String>, folder: PathBuf) -> Settings {
        Settings {
            domains,
            emails: Vec::new(),
            agrees_to_terms: false,
            directory: LETS_ENCRYPT.to_owned(),
            roots: Roots::System,
            profile: None,
            folder,
            retry: RetrySchedule::default(),
        }
    }

    /// Checks the ACME settings. Returns them with all host names in lower case, without trailing
    /// dots and without duplicates.
    ///
    /// # Errors
    /// Returns the first error in the settings.
    pub fn validate(mut self) -> Result<Settings, BadSettings> {
        if self.domains.is_empty() || self.domains.len() > MAX_DOMAINS {
            return Err(BadSettings::Count(self.domains.len()));
        }
        let is_public = self.directory == LETS_ENCRYPT || self.directory == LETS_ENCRYPT_STAGING;
        for domain in &mut self.domains {
            *domain = normalized(domain, is_public)?;
        }
        let mut known = std::collections::HashSet::new();
        self.domains.retain(|domain| known.insert(domain.clone()));
        let is_email = |text: &str| {
            let is_allowed = |byte: u8| byte.is_ascii_graphic() && !b"<>,?&".contains(&byte);
            text.split_once('@').is_some_and(|(who, host)| !who.is_empty() && !host.is_empty())
                && text.bytes().all(is_allowed)
        };
        if let Some(wrong) = self.emails.iter().find(|email| !is_email(email)) {
            return Err(BadSettings::Email(wrong.clone()));
        }
        crate::http::parse_endpoint(&self.directory)
            .map_err(|_| BadSettings::Directory(self.directory.clone()))?;
        if !self.agrees_to_terms {
            return Err(BadSettings::Terms(self.directory));
        }
        Ok(self)
    }

    /// Returns the host name of the ACME authority.
    pub(crate) fn authority(&self) -> &str {
        let rest = self.directory.split_once("://").map_or(&*self.directory, |(_, rest)| rest);
        rest.split('/').next().unwrap_or(rest)
    }
}

/// A kind of challenge, by which an ACME authority checks that this server controls a host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Challenge {
    /// The `http-01` challenge: the authority requests a file over HTTP on port 80 (RFC 8555, 8.3).
    Http,
    /// The `tls-alpn-01` challenge: the authority requests a certificate over TLS on port 443 (RFC
    /// 8737).
    Tls,
}

impl Challenge {
    /// Returns the name of the challenge in the ACME protocol, such as `http-01`.
    pub fn name(self) -> &'static str {
        match self {
            Challenge::Http => "http-01",
            Challenge::Tls => "tls-alpn-01",
        }
    }

    pub(crate) fn kind(self) -> ChallengeType {
        match self {
            Challenge::Http => ChallengeType::Http01,
            Challenge::Tls => ChallengeType::TlsAlpn01,
        }
    }

    /// Returns the challenge with this name in the ACME protocol, such as `http-01`.
    pub fn from_name(name: &str) -> Option<Challenge> {
        [Challenge::Http, Challenge::Tls].into_iter().find(|challenge| challenge.name() == name)
    }
}

/// Converts a host name to lower case without a trailing dot. Returns an error if no certificate
/// can be ordered for the host. If `is_public` is true, the authority issues certificates only for
/// public names, so a name without a dot is an error.
fn normalized(domain: &str, is_public: bool) -> Result<String, BadSettings> {
    let name = domain.strip_suffix('.').unwrap_or(domain).to_ascii_lowercase();
    let wrong = |why| Err(BadSettings::Domain { domain: domain.to_owned(), why });
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    if name.starts_with("*.") {
        return wrong(
            "a wildcard certificate needs a DNS record, which this server \
             cannot create: list each name",
        );
    }
    if !name.is_ascii() {
        return wrong("write the name in its DNS form, whose labels begin with xn--");
    }
    let is_label = |label: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() > 253 || !name.split('.').all(is_label) {
        return wrong(
            "give a host name such as app.example.org, without https:// and without a port",
        );
    }
    if is_public && !name.contains('.') {
        return wrong(
            "Let's Encrypt issues certificates only for public names, such as app.example.org",
        );
    }
    Ok(name)
}

/// An error in the ACME settings. The error message says how to correct it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadSettings {
    /// The number of host names for the certificate is 0 or too large.
    Count(usize),
    /// A domain is not a host name, or no certificate can be ordered for it.
    Domain {
        /// The invalid domain as the operator wrote it.
        domain: String,
        /// A description of the error in the domain, and of its correction.
        why: &'static str,
    },
    /// A contact address for the authority is not an e-mail address.
    Email(String),
    /// The address of the ACME authority is not the URL of a directory.
    Directory(String),
    /// The operator has not agreed to the terms of service of the ACME authority with this
    /// directory URL.
    Terms(String),
    /// The server cannot respond to any kind of challenge.
    Unanswerable,
    /// The storage folder for the ACME account and the certificates cannot be used.
    Folder(PathBuf, String),
    /// The root certificates that verify the ACME authority's own server cannot be loaded.
    Roots(String),
}

impl fmt::Display for BadSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadSettings::Count(0) => f.write_str("a certificate needs at least one host name"),
            BadSettings::Count(count) => {
                write!(f, "a certificate can have at most {MAX_DOMAINS} names, not {count}")
            }
            BadSettings::Domain { domain, why } => {
                write!(f, "no certificate can be ordered for `{domain}`: {why}")
            }
            BadSettings::Email(email) => write!(f, "`{email}` is not an e-mail address"),
            BadSettings::Directory(url) => {
                write!(
                    f,
                    "`{url}` is not the directory of an ACME authority: it must be an https:// URL"
                )
            }
            BadSettings::Terms(url) => {
                let whose = match url.as_str() {
                    LETS_ENCRYPT | LETS_ENCRYPT_STAGING => {
                        "Let's Encrypt, whose terms of service are at \
                         https://letsencrypt.org/repository/"
                            .to_owned()
                    }
                    _ => format!(
                        "the authority at {url}, which publishes its terms of service \
                         there"
                    ),
                };
                write!(f, "certificates come from {whose}: agree to these terms")
            }
            BadSettings::Unanswerable => f.write_str(
                "the authority has no client certificate, so a redirect port is needed, which the \
                 authority reaches as port 80",
            ),
            BadSettings::Folder(folder, why) => {
                write!(f, "certificates cannot be stored in {}: {why}", folder.display())
            }
            BadSettings::Roots(why) => {
                write!(f, "the root certificates for the authority cannot be used: {why}")
            }
        }
    }
}

impl std::error::Error for BadSettings {}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(domains: &[&str]) -> Settings {
        let domains = domains.iter().map(|name| (*name).to_owned()).collect();
        Settings { agrees_to_terms: true, ..Settings::new(domains, "/nowhere".into()) }
    }

    #[test]
    fn host_names_are_normalized() {
        let settled = of(&[
            "App.Example.org.",
            "app.example.org",
            "2001:DB8::0001",
            "192.0.2.1",
            "app.example.org",
        ])
        .validate()
        .unwrap();
        assert_eq!(settled.domains, ["app.example.org", "2001:db8::1", "192.0.2.1"]);
        assert_eq!(settled.authority(), "acme-v02.api.letsencrypt.org");
    }

    #[test]
    fn errors_name_the_problem_and_its_remedy() {
        let long = format!("{}.org", "a".repeat(64));
        for (domain, expected) in [
            ("https://app.example.org", "without https://"),
            ("app.example.org:443", "without a port"),
            ("", "give a host name"),
            ("a..b", "give a host name"),
            ("-a.b", "give a host name"),
            ("a_b.c", "give a host name"),
            ("*.example.org", "needs a DNS record"),
            ("b\u{fc}cher.de", "xn--"),
            ("localhost", "only for public names"),
            (&long, "give a host name"),
        ] {
            let message = of(&[domain]).validate().unwrap_err().to_string();
            assert!(
                message.contains(&format!("`{domain}`")) && message.contains(expected),
                "{domain}: {message}"
            );
        }
        let names: Vec<String> = (0..101).map(|at| format!("n{at}.example.org")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(of(&names[..100]).validate().is_ok());
        assert_eq!(of(&names).validate().unwrap_err(), BadSettings::Count(101));
        assert_eq!(of(&[]).validate().unwrap_err(), BadSettings::Count(0));
        for wrong in ["me", "@a", "a@", "a b@c", "a@b,c@d"] {
            let settings = Settings { emails: vec![wrong.to_owned()], ..of(&["a.b"]) };
            assert_eq!(settings.validate().unwrap_err(), BadSettings::Email(wrong.to_owned()));
        }
        for wrong in ["acme.example.org", "http://acme.example.org/", "ftp://a/", "https://", ""] {
            let settings = Settings { directory: wrong.to_owned(), ..of(&["a.b"]) };
            assert_eq!(
                settings.validate().unwrap_err(),
                BadSettings::Directory(wrong.to_owned()),
                "{wrong}"
            );
        }
        let message =
            Settings { agrees_to_terms: false, ..of(&["a.b"]) }.validate().unwrap_err().to_string();
        assert!(
            message.contains("https://letsencrypt.org/repository/: agree to these terms"),
            "{message}"
        );
    }

    #[test]
    fn a_private_authority_accepts_short_names() {
        let settings =
            Settings { directory: "https://ca.internal/acme".to_owned(), ..of(&["intranet"]) };
        assert_eq!(settings.validate().unwrap().domains, ["intranet"]);
    }
}
