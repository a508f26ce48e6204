//! A cache of parsed response header names. It avoids parsing the application's non-standard names
//! for each response.

use std::cell::RefCell;

use http::HeaderName;

/// The maximum number of header names in the cache.
const MAX_NAMES: usize = 64;

/// A cache of parsed header names that earlier responses have used, so that they need not be parsed
/// again.
#[derive(Debug, Default)]
pub(crate) struct HeaderNameCache(RefCell<Vec<(Box<[u8]>, HeaderName)>>);

impl HeaderNameCache {
    /// Returns the parsed header name for these bytes, or `None` if they are not a valid name.
    pub(crate) fn get(&self, name: &[u8]) -> Option<HeaderName> {
        let mut names = self.0.borrow_mut();
        if let Some((_, known)) = names.iter().find(|(bytes, _)| **bytes == *name) {
            return Some(known.clone());
        }
        let known = HeaderName::from_bytes(name).ok()?;
        if names.len() < MAX_NAMES {
            names.push((name.into(), known.clone()));
        }
        Some(known)
    }
}
