//! The request header names for which R symbols exist. Their number and size are limited, because
//! clients choose the names and R never frees a symbol (of about 200 bytes). A header without a
//! symbol is no variable of `req`. It is in `req$HEADERS`, and methods of the class
//! `rookery_request` find it by its CGI name (`R/unbound-headers.R`).

use std::collections::HashMap;
use std::rc::Rc;

use rookery_exchange::KNOWN_HEADERS;

use crate::Bytes;

/// A header line of a request as C reads it: `struct rk_header`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) name: Bytes,
    pub(crate) cgi: Bytes,
    pub(crate) value: Bytes,
    pub(crate) symbol: i32,
}

/// The names of request headers that have become R symbols. Each has an index, which is the number
/// of its symbol; indices are assigned in the order in which the names first appear.
#[derive(Debug)]
pub(crate) struct HeaderNames {
    indices: HashMap<Rc<[u8]>, i32>,
    /// The names in the order of their indices.
    names: Vec<Rc<[u8]>>,
    /// For each index, the index of the name that last followed it in a request. A client sends
    /// the same names in the same order, and comparing a name takes a tenth of the time of hashing
    /// it.
    followers: Vec<i32>,
    bytes: usize,
    is_full: bool,
}

/// The result of looking up or adding a header name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interned {
    /// The header name has this index (the number of its R symbol).
    Index(i32),
    /// The header name has no index, because the limit on the names has just been reached for the
    /// first time.
    FirstRefused,
    /// The header name has no index, because it is too long or the limit on the names was reached
    /// before.
    Refused,
}

/// The maximum number of header names, chosen by clients, that become R symbols in a process.
/// `SYMBOL_COUNT` in `request_strings.c` is this number plus 64 for the well-known names.
pub(crate) const MAX_NAMES: usize = 4096;
/// The maximum total length in bytes of the header names, chosen by clients, that become R symbols.
/// With R's copies, they take less than 8 MB.
const MAX_TOTAL_BYTES: usize = 512 << 10;
/// The maximum length of a header name in bytes, because R refuses symbols of 10,000 bytes.
const MAX_NAME_BYTES: usize = 9_990;
/// The index of the first header name that a client has chosen. The well-known names in
/// `KNOWN_HEADERS` have lower indices, as in `request_strings.c`.
const FIRST_INTERNED: i32 = 64;
const _: () = assert!(KNOWN_HEADERS.len() <= FIRST_INTERNED as usize);

impl HeaderNames {
    pub(crate) fn new() -> HeaderNames {
        HeaderNames {
            indices: HashMap::new(),
            names: Vec::new(),
            followers: Vec::new(),
            bytes: 0,
            is_full: false,
        }
    }

    /// Returns the index of a header's CGI name, as [`intern`](Self::intern) does, but more quickly
    /// if the name followed the name with the index `previous` in an earlier request. `previous` is
    /// negative if there is no previous name, or if that name has no index.
    pub(crate) fn intern_after(&mut self, previous: i32, cgi: &[u8]) -> Interned {
        let place = usize::try_from(previous + 1).unwrap_or(0);
        let guess = self.followers.get(place).copied().unwrap_or(-1);
        if self.name(guess) == Some(cgi) {
            return Interned::Index(guess);
        }
        let interned = self.intern(cgi);
        if let Interned::Index(index) = interned {
            if self.followers.len() <= place {
                self.followers.resize(place + 1, -1);
            }
            self.followers[place] = index;
        }
        interned
    }

    fn name(&self, index: i32) -> Option<&[u8]> {
        let at = usize::try_from(index - FIRST_INTERNED).ok()?;
        self.names.get(at).map(|name| &**name)
    }

    /// Returns the index of a header's CGI name, such as `HTTP_X_NAME`. A new name gets the next
    /// free index, unless a limit is reached.
    fn intern(&mut self, cgi: &[u8]) -> Interned {
        if let Some(index) = self.indices.get(cgi) {
            return Interned::Index(*index);
        }
        if cgi.len() > MAX_NAME_BYTES {
            return Interned::Refused;
        }
        if self.indices.len() >= MAX_NAMES || self.bytes + cgi.len() > MAX_TOTAL_BYTES {
            let was_full = std::mem::replace(&mut self.is_full, true);
            return if was_full { Interned::Refused } else { Interned::FirstRefused };
        }
        let index = FIRST_INTERNED + i32::try_from(self.indices.len()).expect("at most MAX_NAMES");
        self.bytes += cgi.len();
        let name: Rc<[u8]> = cgi.into();
        self.names.push(Rc::clone(&name));
        self.indices.insert(name, index);
        Interned::Index(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_names_beyond_the_maximum_are_refused_with_one_warning() {
        let mut names = HeaderNames::new();
        let mut refused = [0, 0];
        for n in 0..1_000_000 {
            match names.intern(format!("HTTP_X_{n}").as_bytes()) {
                Interned::Index(index) => {
                    assert!((FIRST_INTERNED..FIRST_INTERNED + 4096).contains(&index));
                }
                Interned::FirstRefused => refused[0] += 1,
                Interned::Refused => refused[1] += 1,
            }
        }
        assert_eq!(refused, [1, 1_000_000 - 4096 - 1]);
        assert_eq!(
            names.intern(b"HTTP_X_0"),
            Interned::Index(FIRST_INTERNED),
            "an early name keeps its index"
        );
    }

    #[test]
    fn a_name_has_the_same_index_after_every_other_name() {
        let mut names = HeaderNames::new();
        let texts: Vec<String> = (0..20).map(|n| format!("HTTP_X_{n}")).collect();
        let first: Vec<Interned> = texts.iter().map(|text| names.intern(text.as_bytes())).collect();
        let mut random = 1_usize;
        let mut previous = -1;
        for _ in 0..2000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (random >> 33) % texts.len();
            let interned = names.intern_after(previous, texts[at].as_bytes());
            assert_eq!(interned, first[at]);
            previous = match interned {
                // Sometimes a well-known name is in between.
                Interned::Index(index) if at % 3 > 0 => index,
                _ => i32::try_from(at).unwrap() - 1,
            };
        }
        let refused = [b'X'; MAX_NAME_BYTES + 1];
        assert_eq!(names.intern_after(previous, &refused), Interned::Refused);
        assert!(names.followers.len() <= 64 + 20 + 1);
    }

    #[test]
    fn the_total_size_of_names_is_bounded() {
        let mut names = HeaderNames::new();
        assert_eq!(names.intern(&[b'X'; MAX_NAME_BYTES + 1]), Interned::Refused);
        let taken = (0..4096)
            .filter(|n| {
                let name = format!("{n:09000}");
                matches!(names.intern(name.as_bytes()), Interned::Index(_))
            })
            .count();
        assert_eq!(taken, MAX_TOTAL_BYTES / 9000);
    }
}
