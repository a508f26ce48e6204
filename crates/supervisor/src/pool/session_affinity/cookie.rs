//! The cookie that names a worker. It is signed, so that nobody aims what he sends at one R; it is no proof of who somebody is.
//!
//! Its value is 27 bytes in base64url: version, slot, start, 4 bytes of chance by which clients of one worker are
//! told apart in logs, and 16 bytes of HMAC-SHA-256 over the others. The key is random and lives as long as the
//! supervisor, as what the cookie leads to does: the state of one R process.

use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;

use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use rookery_server::session_cookie::{CookieNames as Names, SessionCookie, pairs};

const VERSION: u8 = 2;

/// Bytes that are signed, and of the signature.
const SIGNED: usize = 11;
const SIGNATURE: usize = 16;

/// Characters of a value.
const TEXT: usize = (SIGNED + SIGNATURE) / 3 * 4;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The worker that a cookie names, and which of its clients has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) struct CookieTarget {
    pub(in crate::pool) slot: u16,
    pub(in crate::pool) epoch: u32,
    chance: u32,
}

impl CookieTarget {
    /// What the cookie of a new client of this worker says.
    ///
    /// # Panics
    /// When the system has no randomness.
    pub(in crate::pool) fn new(slot: u16, epoch: u32) -> CookieTarget {
        let mut chance = [0; 4];
        SystemRandom::new().fill(&mut chance).expect("the system's randomness");
        CookieTarget { slot, epoch, chance: u32::from_be_bytes(chance) }
    }
}

/// What a request's `Cookie` says of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) enum Cookie {
    /// Nothing: there is none of ours.
    Absent,
    /// There is one that was not made here, or not with a key of now: of an earlier start, or forged.
    Invalid,
    /// Which one it is.
    Valid(CookieTarget),
}

impl Cookie {
    pub(in crate::pool) fn named(self) -> Option<CookieTarget> {
        match self {
            Cookie::Valid(named) => Some(named),
            Cookie::Absent | Cookie::Invalid => None,
        }
    }
}

/// Returns a name for a server that differs from those of other servers on the host. It is derived
/// from the app's path and the server's address, so it is the same after a restart. It is for
/// [`PoolLimits::name`](crate::PoolLimits::name).
pub fn server_name(app: &Path, address: &str) -> String {
    let text = [app.as_os_str().as_encoded_bytes(), b"\0", address.as_bytes()].concat();
    let digest = digest(&SHA256, &text);
    // It has 32 bytes.
    let first = digest.as_ref().first_chunk().copied().unwrap_or_default();
    format!("{:08x}", u32::from_be_bytes(first))
}

/// The names and the signing key of a supervisor's cookies.
#[derive(Debug)]
pub(in crate::pool) struct Keys {
    pub(in crate::pool) names: Names,
    key: hmac::Key,
    /// Of the numbers that logs have for sessions.
    sessions: RandomState,
}

impl Keys {
    /// Returns a new random key, and the cookie names for a server with this name.
    ///
    /// # Panics
    /// When the system has no randomness: a cookie that anybody could sign is no better than none.
    pub(in crate::pool) fn new(server: &str) -> Keys {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let key = key.expect("the system's randomness");
        Keys { names: Names::new(server), key, sessions: RandomState::new() }
    }

    /// A number that is the same for all requests with this cookie, by a key that nobody else has: whoever reads it knows nothing of the
    /// cookie.
    pub(in crate::pool) fn session(&self, named: CookieTarget) -> u64 {
        self.sessions.hash_one((named.slot, named.epoch, named.chance))
    }

    /// The value of `Set-Cookie` for clients of a worker. `is_embedded`: its pages may lie in those of other sites, each of which has
    /// a cookie of its own then. Browsers take one like that over HTTPS alone.
    pub(in crate::pool) fn set_cookie(
        &self,
        named: CookieTarget,
        is_https: bool,
        is_embedded: bool,
    ) -> String {
        self.names.set_cookie(&self.text(named), is_https, is_embedded)
    }

    /// The cookie that a worker gives to clients whose connections it accepts itself.
    pub(in crate::pool) fn session_cookie(
        &self,
        named: CookieTarget,
        is_embedded: bool,
    ) -> SessionCookie {
        SessionCookie::new(self.names.clone(), self.text(named), is_embedded)
    }

    fn text(&self, named: CookieTarget) -> String {
        String::from_utf8_lossy(&self.value(named)).into_owned()
    }

    fn value(&self, named: CookieTarget) -> [u8; TEXT] {
        let mut bytes = [0; SIGNED + SIGNATURE];
        bytes[0] = VERSION;
        bytes[1..3].copy_from_slice(&named.slot.to_be_bytes());
        bytes[3..7].copy_from_slice(&named.epoch.to_be_bytes());
        bytes[7..SIGNED].copy_from_slice(&named.chance.to_be_bytes());
        let signature = hmac::sign(&self.key, &bytes[..SIGNED]);
        bytes[SIGNED..].copy_from_slice(&signature.as_ref()[..SIGNATURE]);
        encode(&bytes)
    }

    /// What a request's `Cookie` says of a worker; only what has been signed here names one.
    pub(in crate::pool) fn read(&self, cookies: &[u8]) -> Cookie {
        // A browser may have both, of a time before HTTPS: the one that nobody else can set first.
        let of_name = |wanted: &str| {
            pairs(cookies)
                .filter(|(name, _)| *name == wanted.as_bytes())
                .find_map(|(_, value)| self.named(value))
        };
        let [host, plain] = self.names.both();
        match of_name(host).or_else(|| of_name(plain)) {
            Some(named) => Cookie::Valid(named),
            None if pairs(cookies).any(|(name, _)| self.names.has(name)) => Cookie::Invalid,
            None => Cookie::Absent,
        }
    }

    fn named(&self, value: &[u8]) -> Option<CookieTarget> {
        let bytes = decode(value)?;
        let own = hmac::sign(&self.key, &bytes[..SIGNED]);
        // All bytes are compared, whichever is the first that differs.
        let differs =
            own.as_ref().iter().zip(&bytes[SIGNED..]).fold(0, |all, (a, b)| all | (a ^ b));
        if differs != 0 || bytes[0] != VERSION {
            return None;
        }
        Some(CookieTarget {
            slot: u16::from_be_bytes([bytes[1], bytes[2]]),
            epoch: u32::from_be_bytes([bytes[3], bytes[4], bytes[5], bytes[6]]),
            chance: u32::from_be_bytes([bytes[7], bytes[8], bytes[9], bytes[10]]),
        })
    }
}

fn encode(bytes: &[u8; SIGNED + SIGNATURE]) -> [u8; TEXT] {
    let mut text = [0; TEXT];
    for (from, to) in bytes.chunks_exact(3).zip(text.chunks_exact_mut(4)) {
        let word = u32::from_be_bytes([0, from[0], from[1], from[2]]);
        for (at, digit) in to.iter_mut().enumerate() {
            *digit = DIGITS[(word >> (18 - 6 * at) & 63) as usize];
        }
    }
    text
}

fn decode(text: &[u8]) -> Option<[u8; SIGNED + SIGNATURE]> {
    let text: &[u8; TEXT] = text.try_into().ok()?;
    let mut bytes = [0; SIGNED + SIGNATURE];
    for (from, to) in text.chunks_exact(4).zip(bytes.chunks_exact_mut(3)) {
        let mut word = 0;
        for digit in from {
            let value = DIGITS.iter().position(|other| other == digit)?;
            word = word << 6 | value as u32;
        }
        to.copy_from_slice(&word.to_be_bytes()[1..]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMED: CookieTarget = CookieTarget { slot: 3, epoch: 70_000, chance: 0xfedc_ba98 };

    fn new_keys() -> Keys {
        Keys::new("")
    }

    fn cookie(keys: &Keys) -> String {
        let set = keys.set_cookie(NAMED, false, false);
        set.split(';').next().unwrap().to_owned()
    }

    #[test]
    fn what_is_set_names_the_worker_when_it_comes_back() {
        let keys = new_keys();
        let set = keys.set_cookie(NAMED, false, false);
        assert!(
            set.ends_with("; Path=/; HttpOnly; SameSite=Lax") && set.starts_with("rookery="),
            "{set}"
        );
        assert_eq!(set.split(';').next().unwrap().len(), "rookery=".len() + TEXT);
        let secure = keys.set_cookie(NAMED, true, false);
        assert!(secure.starts_with("__Host-rookery=") && secure.contains("; Secure;"), "{secure}");
        let embedded = keys.set_cookie(NAMED, true, true);
        assert!(
            embedded.ends_with("; Path=/; HttpOnly; Secure; SameSite=None; Partitioned"),
            "{embedded}"
        );
        // Without HTTPS it would not be kept.
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
    fn a_session_is_known_by_a_number_that_nobody_else_would_have_for_it() {
        let keys = new_keys();
        let [a, b] = [(); 2].map(|()| CookieTarget::new(1, 2));
        assert!((a.slot, a.epoch) == (1, 2) && keys.session(a) == keys.session(a));
        // One of four thousand million pairs has the same chance.
        assert_ne!(keys.session(a), keys.session(b));
        assert_ne!(keys.session(a), new_keys().session(a));
    }

    #[test]
    fn what_was_not_signed_here_names_nobody() {
        let keys = new_keys();
        let own = cookie(&keys);
        assert_eq!(new_keys().read(own.as_bytes()), Cookie::Invalid, "another supervisor's");
        // Each other digit in each place.
        let start = "rookery=".len();
        for at in start..own.len() {
            let mut forged = own.clone().into_bytes();
            for digit in *DIGITS {
                forged[at] = digit;
                assert_eq!(keys.read(&forged).named().is_some(), forged == own.as_bytes());
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
            format!("rookery={}", "+".repeat(TEXT)),
            ";;;=;".to_owned(),
        ] {
            // What has another name is another's.
            let is_ours = wrong.starts_with("rookery");
            let expected = if is_ours { Cookie::Invalid } else { Cookie::Absent };
            assert_eq!(keys.read(wrong.as_bytes()), expected, "{wrong}");
        }
        assert_eq!(keys.read(b"rookery=\xff\xfe; \0"), Cookie::Invalid);
    }

    #[test]
    fn servers_of_one_host_have_cookies_of_their_own() {
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
