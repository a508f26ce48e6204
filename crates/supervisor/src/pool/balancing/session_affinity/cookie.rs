//! The session cookie, which names a worker. It is signed, so that clients cannot choose their
//! worker. It does not authenticate a user.
//!
//! The value is 27 bytes in base64url:
//! - the format version (1 byte)
//! - the number of the worker's slot (2 bytes)
//! - the worker's epoch, which is its serial number (4 bytes)
//! - a random number for the client (4 bytes)
//! - the signature (HMAC-SHA-256, 16 bytes)
//!
//! The signing key is random and is never stored, so the cookies become invalid when the supervisor
//! ends. The sessions end at that time as well.

use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use rookery_server::cookies::pairs;

use super::names::Names;

const VERSION: u8 = 2;

/// The number of bytes of a session cookie that its signature covers.
const SIGNED_LEN: usize = 11;

/// The length in bytes of a session cookie's signature.
const SIGNATURE_LEN: usize = 16;

/// The length of a session cookie's value in characters.
const VALUE_LEN: usize = (SIGNED_LEN + SIGNATURE_LEN) / 3 * 4;

/// The maximum number of cookies of one name in a request whose signatures are verified. A browser
/// has at most one for each path and domain for which it was set. A verification takes about 1 us,
/// and a `Cookie` header has room for thousands.
const MAX_VERIFIED: usize = 16;

/// The content of a session cookie: the worker that it names, and a random number for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) struct CookieTarget {
    pub(in crate::pool) slot: u16,
    pub(in crate::pool) epoch: u32,
    random: u32,
}

impl CookieTarget {
    /// Creates the content of a session cookie for a new client, with the slot and epoch (serial
    /// number) of the client's worker.
    ///
    /// # Panics
    /// Panics if the operating system provides no random numbers.
    pub(in crate::pool) fn new(slot: u16, epoch: u32) -> CookieTarget {
        let mut random = [0; 4];
        SystemRandom::new().fill(&mut random).expect("the system has random numbers");
        CookieTarget { slot, epoch, random: u32::from_be_bytes(random) }
    }
}

/// The result of reading the session cookie from a request's `Cookie` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) enum Cookie {
    /// The request has no session cookie of this server.
    Absent,
    /// The session cookie is not signed with the current key. It is forged or comes from an earlier
    /// run of the supervisor.
    Invalid,
    /// The session cookie has a valid signature and names this worker.
    Valid(CookieTarget),
}

impl Cookie {
    pub(in crate::pool) fn target(self) -> Option<CookieTarget> {
        match self {
            Cookie::Valid(target) => Some(target),
            Cookie::Absent | Cookie::Invalid => None,
        }
    }
}

/// Returns a suffix for the names of a server's cookies, so that servers on the same host use
/// different cookies. The suffix is derived from the app's path and the server's address, so that
/// it stays the same after a restart.
pub fn server_name(app: &Path, address: &str) -> String {
    let text = [app.as_os_str().as_encoded_bytes(), b"\0", address.as_bytes()].concat();
    let digest = digest(&SHA256, &text);
    // A SHA-256 digest has 32 bytes.
    let first = digest.as_ref().first_chunk().copied().unwrap_or_default();
    format!("{:08x}", u32::from_be_bytes(first))
}

/// The names and the signing key of a supervisor's session cookies.
#[derive(Debug)]
pub(in crate::pool) struct Keys {
    pub(in crate::pool) names: Names,
    key: hmac::Key,
    /// The key of the hash that identifies a session in logs.
    sessions: RandomState,
}

impl Keys {
    /// Creates a random key for signing session cookies. The names of these cookies end in
    /// `suffix`.
    ///
    /// # Panics
    /// Panics if the operating system provides no random numbers.
    pub(in crate::pool) fn new(suffix: &str) -> Keys {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let key = key.expect("the system has random numbers");
        Keys { names: Names::new(suffix), key, sessions: RandomState::new() }
    }

    /// Returns a number by which logs identify a session. It is the same for all requests with this
    /// cookie, and the cookie cannot be derived from it.
    pub(in crate::pool) fn session_hash(&self, target: CookieTarget) -> u64 {
        self.sessions.hash_one((target.slot, target.epoch, target.random))
    }

    /// Returns the value of a `Set-Cookie` header with a session cookie that names a worker. If
    /// `is_embedded` is true, pages of other sites may embed the app. Over HTTPS, the browser then
    /// keeps a separate cookie for each of these sites (a partitioned cookie).
    pub(in crate::pool) fn set_cookie(
        &self,
        target: CookieTarget,
        is_https: bool,
        is_embedded: bool,
    ) -> String {
        self.names.set_cookie(&self.value_text(target), is_https, is_embedded)
    }

    /// Returns the signed value of the session cookie with this content, as text.
    fn value_text(&self, target: CookieTarget) -> String {
        String::from_utf8_lossy(&self.value(target)).into_owned()
    }

    /// Signs the content of a session cookie, and returns the content with its signature in
    /// base64url, which is the cookie's value.
    fn value(&self, target: CookieTarget) -> [u8; VALUE_LEN] {
        let mut bytes = [0; SIGNED_LEN + SIGNATURE_LEN];
        bytes[0] = VERSION;
        bytes[1..3].copy_from_slice(&target.slot.to_be_bytes());
        bytes[3..7].copy_from_slice(&target.epoch.to_be_bytes());
        bytes[7..SIGNED_LEN].copy_from_slice(&target.random.to_be_bytes());
        let signature = hmac::sign(&self.key, &bytes[..SIGNED_LEN]);
        bytes[SIGNED_LEN..].copy_from_slice(&signature.as_ref()[..SIGNATURE_LEN]);
        encode_base64url(&bytes)
    }

    /// Finds the session cookie in the value of a `Cookie` header and verifies its signature. Of
    /// several with the same name, the first [`MAX_VERIFIED`] count.
    pub(in crate::pool) fn read(&self, cookies: &[u8]) -> Cookie {
        // A browser may still have a cookie from a time when the server did not use HTTPS. The name
        // with the prefix `__Host-` has precedence, because only this host can set a cookie with
        // that prefix.
        let of_name = |wanted: &str| {
            pairs(cookies)
                .filter(|(name, _)| *name == wanted.as_bytes())
                .take(MAX_VERIFIED)
                .find_map(|(_, value)| self.verify(value))
        };
        let [host, plain] = self.names.both();
        match of_name(host).or_else(|| of_name(plain)) {
            Some(target) => Cookie::Valid(target),
            None if pairs(cookies).any(|(name, _)| self.names.has(name)) => Cookie::Invalid,
            None => Cookie::Absent,
        }
    }

    /// Verifies the signature in the value of a session cookie. Returns the cookie's content, or
    /// `None` if the signature is invalid.
    fn verify(&self, value: &[u8]) -> Option<CookieTarget> {
        let bytes = decode_base64url(value)?;
        let own = hmac::sign(&self.key, &bytes[..SIGNED_LEN]);
        // The comparison always covers all bytes, so that its time does not reveal the first byte
        // that differs.
        let differs =
            own.as_ref().iter().zip(&bytes[SIGNED_LEN..]).fold(0, |all, (a, b)| all | (a ^ b));
        if differs != 0 || bytes[0] != VERSION {
            return None;
        }
        Some(CookieTarget {
            slot: u16::from_be_bytes([bytes[1], bytes[2]]),
            epoch: u32::from_be_bytes([bytes[3], bytes[4], bytes[5], bytes[6]]),
            random: u32::from_be_bytes([bytes[7], bytes[8], bytes[9], bytes[10]]),
        })
    }
}

/// Encodes the bytes of a session cookie in base64url.
fn encode_base64url(bytes: &[u8; SIGNED_LEN + SIGNATURE_LEN]) -> [u8; VALUE_LEN] {
    let mut text = [0; VALUE_LEN];
    URL_SAFE_NO_PAD.encode_slice(bytes, &mut text).expect("27 bytes are 36 digits");
    text
}

/// Decodes the value of a session cookie from base64url. Returns `None` if the length or a digit is
/// invalid.
fn decode_base64url(text: &[u8]) -> Option<[u8; SIGNED_LEN + SIGNATURE_LEN]> {
    let text: &[u8; VALUE_LEN] = text.try_into().ok()?;
    let mut bytes = [0; SIGNED_LEN + SIGNATURE_LEN];
    URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMED: CookieTarget = CookieTarget { slot: 3, epoch: 70_000, random: 0xfedc_ba98 };

    fn new_keys() -> Keys {
        Keys::new("")
    }

    fn cookie(keys: &Keys) -> String {
        let set = keys.set_cookie(NAMED, false, false);
        set.split(';').next().unwrap().to_owned()
    }

    #[test]
    fn a_cookie_names_its_worker_when_it_is_sent_back() {
        let keys = new_keys();
        let set = keys.set_cookie(NAMED, false, false);
        assert!(
            set.ends_with("; Path=/; HttpOnly; SameSite=Lax") && set.starts_with("rookery="),
            "{set}"
        );
        assert_eq!(set.split(';').next().unwrap().len(), "rookery=".len() + VALUE_LEN);
        let secure = keys.set_cookie(NAMED, true, false);
        assert!(secure.starts_with("__Host-rookery=") && secure.contains("; Secure;"), "{secure}");
        let embedded = keys.set_cookie(NAMED, true, true);
        assert!(
            embedded.ends_with("; Path=/; HttpOnly; Secure; SameSite=None; Partitioned"),
            "{embedded}"
        );
        // Browsers discard a partitioned cookie that was set without HTTPS, so the server sends a
        // normal one.
        assert!(keys.set_cookie(NAMED, false, true).ends_with("; HttpOnly; SameSite=Lax"));
        for cookies in [
            cookie(&keys),
            format!("a=b; {}; c=d", cookie(&keys)),
            format!("a=b;{} ;c", cookie(&keys)),
            format!("rookery=forged; {}", cookie(&keys)),
            secure.split(';').next().unwrap().to_owned(),
        ] {
            assert_eq!(keys.read(cookies.as_bytes()), Cookie::Valid(NAMED), "{cookies}");
        }
    }

    #[test]
    fn the_hash_of_a_session_depends_on_a_secret_key() {
        let keys = new_keys();
        let [a, b] = [(); 2].map(|()| CookieTarget::new(1, 2));
        assert!((a.slot, a.epoch) == (1, 2) && keys.session_hash(a) == keys.session_hash(a));
        // Two cookies have the same random number with a probability of 1 in 4,294,967,296.
        assert_ne!(keys.session_hash(a), keys.session_hash(b));
        assert_ne!(keys.session_hash(a), new_keys().session_hash(a));
    }

    #[test]
    fn rejects_cookies_without_a_valid_signature() {
        let keys = new_keys();
        let own = cookie(&keys);
        assert_eq!(new_keys().read(own.as_bytes()), Cookie::Invalid, "another supervisor's");
        // Each digit of the value is replaced by each other digit.
        let start = "rookery=".len();
        for at in start..own.len() {
            let mut forged = own.clone().into_bytes();
            for digit in (0..128).filter(|it: &u8| it.is_ascii_alphanumeric() || b"-_".contains(it))
            {
                forged[at] = digit;
                assert_eq!(keys.read(&forged).target().is_some(), forged == own.as_bytes());
            }
        }
        let value = &own[start..];
        for wrong in [
            String::new(),
            "rookery".to_owned(),
            "rookery=".to_owned(),
            format!("rookery={value}A"),
            format!("rookery={}", &value[1..]),
            format!("rookery=\"{value}\""),
            format!("Rookery={value}"),
            format!("x-rookery={value}"),
            format!("rookery={}", "+".repeat(VALUE_LEN)),
            ";;;=;".to_owned(),
        ] {
            // A cookie with another name does not belong to this server.
            let is_ours = wrong.starts_with("rookery");
            let expected = if is_ours { Cookie::Invalid } else { Cookie::Absent };
            assert_eq!(keys.read(wrong.as_bytes()), expected, "{wrong}");
        }
        assert_eq!(keys.read(b"rookery=\xff\xfe; \0"), Cookie::Invalid);
    }

    #[test]
    fn of_many_cookies_with_the_same_name_only_the_first_are_verified() {
        let keys = new_keys();
        let (own, other) = (cookie(&keys), cookie(&new_keys()));
        let jar = |others: usize| vec![other.as_str(); others].join("; ") + "; " + &own;
        assert_eq!(keys.read(jar(MAX_VERIFIED - 1).as_bytes()), Cookie::Valid(NAMED));
        assert_eq!(keys.read(jar(MAX_VERIFIED).as_bytes()), Cookie::Invalid);
    }

    #[test]
    fn servers_of_one_host_have_cookies_with_different_names() {
        let [one, other] = ["shop", "blog"].map(Keys::new);
        let set = [&one, &other].map(|keys| {
            let set = keys.set_cookie(NAMED, false, false);
            set.split(';').next().unwrap().to_owned()
        });
        assert!(
            set[0].starts_with("rookery-shop=") && set[1].starts_with("rookery-blog="),
            "{set:?}"
        );
        let jar = set.join("; ");
        assert_eq!(one.read(jar.as_bytes()), Cookie::Valid(NAMED));
        assert_eq!(other.read(jar.as_bytes()), Cookie::Valid(NAMED));
        assert_eq!(one.read(set[1].as_bytes()), Cookie::Absent);
        assert_eq!(one.names.without_own(jar.as_bytes()).as_deref(), Some(set[1].as_bytes()));
        assert!(one.set_cookie(NAMED, true, false).starts_with("__Host-rookery-shop="));
        let name = server_name(Path::new("/srv/app"), "127.0.0.1:80");
        assert!(name.len() == 8 && name.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
        assert_eq!(name, server_name(Path::new("/srv/app"), "127.0.0.1:80"));
        assert_ne!(name, server_name(Path::new("/srv/app"), "127.0.0.1:81"));
        assert_ne!(name, server_name(Path::new("/srv/other"), "127.0.0.1:80"));
    }
}
