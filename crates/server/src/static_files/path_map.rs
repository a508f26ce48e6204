//! The map that the application changes and the I/O thread reads.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use super::options::{Mapping, PathError, StaticOptions, StaticPath};
use super::prefix_tree::PrefixTree;
use super::request_head::RequestHead;
use super::routing::Route;

/// The static paths of a server. Cloning gives another handle to the same paths.
///
/// A change is in effect for every request that is decided after it returns; lookups already under way finish with
/// what they began with.
#[derive(Clone, Default)]
pub struct StaticFiles(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// What the application set. Held while it changes something; the I/O thread never takes it.
    settings: Mutex<Settings>,
    /// Whether `tree` has a value: a request to a server without static paths looks at nothing else.
    any: AtomicBool,
    /// `settings` with options inherited, replaced as a whole.
    tree: ArcSwap<PrefixTree<Arc<Mapping>>>,
}

#[derive(Debug, Default)]
struct Settings {
    paths: BTreeMap<String, StaticPath>,
    options: StaticOptions,
}

impl StaticFiles {
    /// No static paths, default options.
    pub fn new() -> StaticFiles {
        StaticFiles::default()
    }

    /// Adds paths or replaces those with the same keys: all of them, or none when one is refused. The last of equal keys
    /// counts.
    ///
    /// A key is `/`, or segments with a `/` before each, as requests name them after decoding. Costs a copy of the whole
    /// map: made for tens or hundreds of paths that change seldom.
    ///
    /// # Errors
    /// See [`PathError`].
    pub fn set(
        &self,
        paths: impl IntoIterator<Item = (String, StaticPath)>,
    ) -> Result<(), PathError> {
        let paths: Vec<_> = paths.into_iter().collect();
        paths.iter().try_for_each(|(key, path)| check_key(key).and_then(|()| check_path(path)))?;
        let mut settings = self.settings();
        settings.paths.extend(paths);
        self.publish(&settings);
        Ok(())
    }

    /// Replaces all paths by these, at once: no request meets some of the old and some of the new.
    ///
    /// # Errors
    /// See [`PathError`]; nothing is changed then.
    pub fn replace(
        &self,
        paths: impl IntoIterator<Item = (String, StaticPath)>,
    ) -> Result<(), PathError> {
        let paths: BTreeMap<_, _> = paths.into_iter().collect();
        paths.iter().try_for_each(|(key, path)| check_key(key).and_then(|()| check_path(path)))?;
        let mut settings = self.settings();
        // Files that are kept in memory are so for one publication.
        if settings.paths != paths {
            settings.paths = paths;
            self.publish(&settings);
        }
        Ok(())
    }

    /// Whether this is another handle to the same paths.
    pub fn is_same(&self, other: &StaticFiles) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Removes the path with exactly this key; whether there was one.
    pub fn remove(&self, key: &str) -> bool {
        let mut settings = self.settings();
        let removed = settings.paths.remove(key).is_some();
        if removed {
            self.publish(&settings);
        }
        removed
    }

    /// Sets the server-wide options.
    pub fn set_options(&self, options: StaticOptions) {
        let mut settings = self.settings();
        settings.options = options;
        self.publish(&settings);
    }

    /// The paths as they were set, options not inherited, ordered by the bytes of their keys.
    pub fn paths(&self) -> Vec<(String, StaticPath)> {
        self.settings().paths.iter().map(|(key, path)| (key.clone(), path.clone())).collect()
    }

    /// The server-wide options.
    pub fn options(&self) -> StaticOptions {
        self.settings().options.clone()
    }

    /// Whether there are no static paths.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.0.any.load(Ordering::Acquire)
    }

    /// Who answers a request. For the I/O thread: no system call, no lock, and no allocation where the application does.
    #[inline]
    pub fn route(&self, request: &RequestHead<'_>) -> Route {
        if self.is_empty() {
            return Route::Application;
        }
        super::routing::route(&self.0.tree.load(), request)
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        // Nothing panics between a change and its publication, and each leaves `Settings` whole.
        self.0.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, settings: &Settings) {
        let mut tree = PrefixTree::default();
        for (key, path) in &settings.paths {
            tree.insert(key.as_bytes(), Arc::new(Mapping::resolve(path, &settings.options)));
        }
        self.0.tree.store(Arc::new(tree));
        self.0.any.store(!settings.paths.is_empty(), Ordering::Release);
    }
}

impl std::fmt::Debug for StaticFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StaticFiles").field(&*self.settings()).finish()
    }
}

pub(super) fn check_key(key: &str) -> Result<(), PathError> {
    if key.len() > KEY_LIMIT {
        return Err(PathError::KeyLength);
    }
    let segments = key.strip_prefix('/').ok_or(PathError::Key)?;
    let is_named =
        |segment: &str| !matches!(segment, "" | "." | "..") && !segment.contains(['\\', '\0']);
    if segments.is_empty() || segments.split('/').all(is_named) {
        Ok(())
    } else {
        Err(PathError::Key)
    }
}

pub(super) fn check_path(path: &StaticPath) -> Result<(), PathError> {
    if path.overrides.exclude == Some(true) || is_absolute(&path.path) {
        Ok(())
    } else {
        Err(PathError::Path)
    }
}

fn is_absolute(path: &Path) -> bool {
    path.is_absolute() && !path.as_os_str().as_encoded_bytes().contains(&0)
}

/// What Linux takes as a path. Bounds the depth of the tree, which is dropped recursively, at 2,048.
const KEY_LIMIT: usize = 4096;
