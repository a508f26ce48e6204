//! Names of reply headers that are not standard, made once and not once a reply.

use std::cell::RefCell;

use http::HeaderName;

/// Header names outside the standard's that replies keep using.
const MAX_NAMES: usize = 64;

/// The names that replies have had.
#[derive(Debug, Default)]
pub(crate) struct HeaderNameCache(RefCell<Vec<(Box<[u8]>, HeaderName)>>);

impl HeaderNameCache {
    /// The name of a reply's header; `None` for what is no name.
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
