//! The map of static paths (URL paths that are served from files), which the application changes
//! and the I/O thread reads.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use rookery_exchange::MAX_RESPONSE_HEADERS;

use super::options::{Mapping, PathError, StaticOptions, StaticPath};
use super::path_on_disk::name_rules::{NameRules, caseless};
use super::path_on_disk::protected_path::ProtectedPath;
use super::prefix_tree::PrefixTree;
use super::request_head::RequestHead;
use super::routing::Route;

/// The static paths of a server: the URL paths that are mapped to files or directories. Clones are
/// handles to the same map.
///
/// A change applies to every request that is routed after the changing function has returned. A
/// lookup that began before the change keeps the earlier options.
#[derive(Clone, Default)]
pub struct StaticFiles(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// The static paths and options as the application set them.
    // Only the application's threads take this lock.
    settings: Mutex<Settings>,
    /// True if there is at least one static path. On a server without static paths, only this flag
    /// is read for each request.
    any: AtomicBool,
    /// The static paths as requests are compared with them.
    published: ArcSwap<Published>,
    /// The rules by which file names are interpreted: those of the system, except in tests.
    rules: NameRules,
}

/// The static paths as requests are compared with them.
#[derive(Default)]
struct Published {
    /// The static paths with the options that apply to each, including inherited ones.
    tree: PrefixTree<Arc<Mapping>>,
    /// The keys of the static paths that are excluded or require a header. Empty on systems where
    /// `tree` contains keys without case.
    protected: Vec<ProtectedPath>,
}

#[derive(Debug, Default)]
struct Settings {
    paths: BTreeMap<String, StaticPath>,
    options: StaticOptions,
}

impl StaticFiles {
    /// Creates a map without static paths, with default options.
    pub fn new() -> StaticFiles {
        StaticFiles::default()
    }

    /// Creates a map without static paths that interprets file names as another system does, for
    /// tests.
    #[doc(hidden)]
    pub fn with_rules(rules: NameRules) -> StaticFiles {
        StaticFiles(Arc::new(Shared { rules, ..Shared::default() }))
    }

    /// Adds static paths, or replaces those with the same keys. A key is the URL path of a file or
    /// directory: `/`, or a sequence of segments with a `/` before each. It is compared with the
    /// decoded URL paths of requests.
    ///
    /// If one static path is refused, none is changed. If a key occurs twice, the last one counts.
    /// On macOS and Windows, requests do not distinguish keys that differ only in case or in the
    /// normal form of Unicode. If one of these keys is excluded, the exclusion counts. Each call
    /// copies the whole map, which suits tens or hundreds of paths that seldom change.
    ///
    /// # Errors
    /// Fails if a key or a path is invalid. [`PathError`] tells the reason.
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

    /// Replaces all static paths in one step, so that no request is routed by some old and some new
    /// paths.
    ///
    /// # Errors
    /// Fails without a change if a key or a path is invalid. [`PathError`] tells the reason.
    pub fn replace(
        &self,
        paths: impl IntoIterator<Item = (String, StaticPath)>,
    ) -> Result<(), PathError> {
        let paths: BTreeMap<_, _> = paths.into_iter().collect();
        paths.iter().try_for_each(|(key, path)| check_key(key).and_then(|()| check_path(path)))?;
        let mut settings = self.settings();
        // Publishing an unchanged map would make all cached files invalid, because they are cached
        // per published mapping.
        if settings.paths != paths {
            settings.paths = paths;
            self.publish(&settings);
        }
        Ok(())
    }

    /// Returns true if `other` is a handle to the same static paths.
    pub fn is_same(&self, other: &StaticFiles) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Removes the static path with exactly this key (its URL path). Returns true if it existed.
    pub fn remove(&self, key: &str) -> bool {
        let mut settings = self.settings();
        let removed = settings.paths.remove(key).is_some();
        if removed {
            self.publish(&settings);
        }
        removed
    }

    /// Sets the server-wide options of static paths.
    pub fn set_options(&self, options: StaticOptions) {
        let mut settings = self.settings();
        settings.options = options;
        self.publish(&settings);
    }

    /// Returns the static paths as they were set, without inherited options, ordered by the bytes
    /// of their keys (their URL paths).
    pub fn paths(&self) -> Vec<(String, StaticPath)> {
        self.settings().paths.iter().map(|(key, path)| (key.clone(), path.clone())).collect()
    }

    /// Returns the server-wide options of static paths.
    pub fn options(&self) -> StaticOptions {
        self.settings().options.clone()
    }

    /// Returns true if there are no static paths.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.0.any.load(Ordering::Acquire)
    }

    /// Decides whether the application or the server responds to a request. Makes no system call
    /// and takes no lock. Allocates no memory for a request to the application, except for a path
    /// with other characters than those of ASCII if a static path is excluded or requires a header,
    /// and on macOS and Windows for a path with such characters or capital letters.
    #[inline]
    pub fn route(&self, request: &RequestHead<'_>) -> Route {
        if self.is_empty() {
            return Route::Application;
        }
        let published = self.0.published.load();
        super::routing::route(&published.tree, &published.protected, self.0.rules, request)
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        // A poisoned lock can be used, because each change leaves `Settings` consistent, and no
        // code panics between a change and its publication.
        self.0.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, settings: &Settings) {
        let mut tree = PrefixTree::default();
        let mut mappings: Vec<_> = settings
            .paths
            .iter()
            .map(|(key, path)| (key, Arc::new(Mapping::resolve(path, &settings.options))))
            .collect();
        let mut protected = Vec::new();
        if self.0.rules.is_ignoring_case() {
            // Keys of the same form are one key of the tree, and the last mapping counts.
            // An exclusion must not be lost.
            mappings.sort_by_key(|(_, mapping)| mapping.options.exclude);
            for (key, mapping) in mappings {
                tree.insert(&caseless(key.as_bytes()), mapping);
            }
        } else {
            let keys = mappings.iter().filter(|(_, mapping)| mapping.is_protected());
            protected.extend(keys.map(|(key, _)| ProtectedPath::new(key)));
            for (key, mapping) in mappings {
                tree.insert(key.as_bytes(), mapping);
            }
        }
        self.0.published.store(Arc::new(Published { tree, protected }));
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
    if path.overrides.headers.as_ref().is_some_and(|it| it.len() > MAX_RESPONSE_HEADERS) {
        Err(PathError::Headers)
    } else if path.overrides.exclude == Some(true) || is_absolute(&path.path) {
        Ok(())
    } else {
        Err(PathError::Path)
    }
}

fn is_absolute(path: &Path) -> bool {
    // On Windows, paths on disk are UTF-8 in this module.
    let is_text = cfg!(unix) || path.to_str().is_some();
    path.is_absolute() && is_text && !path.as_os_str().as_encoded_bytes().contains(&0)
}

/// The maximum length in bytes of a key (the URL path of a static path), equal to the maximum
/// length of a path on Linux. It limits the depth of the prefix tree, because dropping the tree
/// takes stack memory for each level.
const KEY_LIMIT: usize = 4096;
