//! What cookies are signed with. There may be several: the first signs, and all verify, so that a key can be changed without anybody losing
//! his session.

use std::fmt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use ring::hmac;
use ring::rand::SystemRandom;

/// Characters of a key at the least: 32 of base64 have 192 bits.
const KEY_LEAST: usize = 32;

/// Keys at the most: each is tried for a cookie that another has signed, and whoever changes keys needs two.
const KEYS_MOST: usize = 16;

/// See the module. Shared by a pool and whoever reads the keys anew.
#[derive(Debug)]
pub struct CookieKeys(RwLock<Vec<Key>>);

/// A key, and the number by which cookies name it.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) id: u8,
    key: hmac::Key,
}

/// Why a text has no keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrongKeys {
    /// There is none.
    None,
    /// That of this line is too short.
    Short(usize),
    /// There are too many.
    Many,
}

impl fmt::Display for WrongKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WrongKeys::None => f.write_str("it has no key"),
            WrongKeys::Short(line) => {
                write!(f, "the key in line {line} has fewer than {KEY_LEAST} characters")
            }
            WrongKeys::Many => write!(f, "it has more than {KEYS_MOST} keys"),
        }
    }
}

impl std::error::Error for WrongKeys {}

impl CookieKeys {
    /// One that nobody knows: sessions end with the supervisor, and so may it.
    ///
    /// # Panics
    /// When the system has no randomness: a cookie that anybody could sign is no better than none.
    pub fn random() -> CookieKeys {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        CookieKeys(RwLock::new(vec![Key::new(key.expect("the system's randomness"))]))
    }

    /// Those of a text: one a line, the newest first. Empty lines, and those that begin with `#`, are none.
    ///
    /// # Errors
    /// What is wrong with it; never with what is in it.
    pub fn parse(text: &[u8]) -> Result<CookieKeys, WrongKeys> {
        let mut keys = Vec::new();
        for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            if line.len() < KEY_LEAST {
                return Err(WrongKeys::Short(at + 1));
            }
            keys.push(Key::new(hmac::Key::new(hmac::HMAC_SHA256, line)));
        }
        match keys.len() {
            0 => Err(WrongKeys::None),
            1..=KEYS_MOST => Ok(CookieKeys(RwLock::new(keys))),
            _ => Err(WrongKeys::Many),
        }
    }

    /// Takes others in place of these.
    pub fn replace_by(&self, others: CookieKeys) {
        let others = others.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = others;
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Signs with the first: what `fill` makes of its number, and the signature.
    pub(super) fn sign(&self, fill: impl FnOnce(u8) -> Vec<u8>) -> (Vec<u8>, hmac::Tag) {
        let keys = self.lock();
        // There is at least one.
        let bytes = fill(keys[0].id);
        let tag = keys[0].sign(&bytes);
        (bytes, tag)
    }

    /// Whether one of them that has this number has signed `bytes`.
    pub(super) fn have_signed(&self, id: u8, bytes: &[u8], signature: &[u8]) -> bool {
        self.lock().iter().filter(|key| key.id == id).any(|key| {
            let own = key.sign(bytes);
            // All of them, whichever is the first that differs.
            own.as_ref().iter().zip(signature).fold(0, |all, (a, b)| all | (a ^ b)) == 0
        })
    }

    fn lock(&self) -> RwLockReadGuard<'_, Vec<Key>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Key {
    fn new(key: hmac::Key) -> Key {
        // Of the key itself, so that it is the same wherever in the list, and on whichever machine. It says nothing of it.
        Key { id: hmac::sign(&key, b"the number of a rookery cookie key").as_ref()[0], key }
    }

    fn sign(&self, bytes: &[u8]) -> hmac::Tag {
        hmac::sign(&self.key, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_keys_or_what_is_wrong_with_it_is_said() {
        let long = "x".repeat(KEY_LEAST);
        for (text, expected) in [
            (String::new(), Err(WrongKeys::None)),
            ("# a comment that is quite as long as a key is, and none\n \n".to_owned(), Err(WrongKeys::None)),
            (format!("# new\n  {long}\r\n\n{long}y"), Ok(2)),
            (format!("{long}\n{}", &long[1..]), Err(WrongKeys::Short(2))),
            (format!("{long}\n").repeat(KEYS_MOST), Ok(KEYS_MOST)),
            (format!("{long}\n").repeat(KEYS_MOST + 1), Err(WrongKeys::Many)),
        ] {
            assert_eq!(CookieKeys::parse(text.as_bytes()).map(|keys| keys.count()), expected, "{text}");
        }
        let said = CookieKeys::parse(b"secret").unwrap_err().to_string();
        assert_eq!(said, "the key in line 1 has fewer than 32 characters");
    }

    #[test]
    fn the_first_signs_and_all_verify() {
        let [old, new] = ["o", "n"].map(|word| word.repeat(40));
        let keys = CookieKeys::parse(old.as_bytes()).unwrap();
        let (bytes, tag) = keys.sign(|id| vec![id, 1, 2]);
        let verifies = |keys: &CookieKeys| keys.have_signed(bytes[0], &bytes, tag.as_ref());
        assert!(verifies(&keys) && !keys.have_signed(bytes[0], b"else", tag.as_ref()));
        assert!(!keys.have_signed(bytes[0].wrapping_add(1), &bytes, tag.as_ref()));
        keys.replace_by(CookieKeys::parse(format!("{new}\n{old}").as_bytes()).unwrap());
        assert!(verifies(&keys));
        let (of_new, tag_of_new) = keys.sign(|id| vec![id, 1, 2]);
        keys.replace_by(CookieKeys::parse(new.as_bytes()).unwrap());
        assert!(!verifies(&keys) && keys.have_signed(of_new[0], &of_new, tag_of_new.as_ref()));
        assert!(!verifies(&CookieKeys::random()));
    }
}
