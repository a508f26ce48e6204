//! Detects changed certificate files by hashes of their contents, and schedules further attempts if
//! new files cannot be used.

use std::time::{Duration, Instant};

/// The SHA-256 hashes of the certificate and key files, in the order of the settings. The hash of
/// an unreadable file is `None`.
pub(super) type Contents = Vec<Option<[u8; 32]>>;

/// The hashes of the certificate files that the server uses, and the last failed attempt to use
/// files that have changed.
#[derive(Debug)]
pub(super) struct FileWatch {
    /// The hashes of the files from which the server's current certificates were read.
    served: Contents,
    /// The last attempt to use changed certificate files, if it failed.
    failed: Option<Failed>,
    /// The number of times that the server has started to use newly read certificates.
    generation: u64,
}

/// A failed attempt to use the certificates in changed files.
#[derive(Debug)]
struct Failed {
    contents: Contents,
    error: String,
    pause: Duration,
    retry_at: Instant,
}

/// The pause after the first failed attempt to use changed certificate files. It doubles after each
/// failure, up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const MAX_PAUSE: Duration = Duration::from_secs(300);

impl FileWatch {
    /// Starts to watch the certificate files. `served` contains the hashes of the files from which
    /// the current certificates were read.
    pub(super) fn new(served: Contents) -> FileWatch {
        FileWatch { served, failed: None, generation: 0 }
    }

    /// Records that the server now uses the certificates in files with these hashes.
    pub(super) fn on_served(&mut self, found: &Contents) {
        self.served.clone_from(found);
        self.failed = None;
        self.generation += 1;
    }

    /// Returns a number that changes whenever the server starts to use new certificates.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns true if the certificate files must be read now, because they have changed. `found`
    /// contains their current hashes, which are compared with those of the files in use. Files that
    /// could not be used before are read again only after a pause.
    pub(super) fn compare(&mut self, found: &Contents, now: Instant) -> bool {
        if *found == self.served {
            self.failed = None;
            return false;
        }
        self.failed
            .as_ref()
            .is_none_or(|failed| failed.contents != *found || failed.retry_at <= now)
    }

    /// Records that the certificates in files with the hashes `found` could not be used. Returns
    /// true if `error` has not been reported yet.
    pub(super) fn on_failure(&mut self, found: Contents, error: String, now: Instant) -> bool {
        let before = self.failed.take();
        let is_new = before.as_ref().is_none_or(|before| before.error != error);
        let pause = before
            .filter(|before| before.contents == found)
            .map_or(FIRST_PAUSE, |before| (before.pause * 2).min(MAX_PAUSE));
        self.failed = Some(Failed { contents: found, error, pause, retry_at: now + pause });
        is_new
    }
}

/// The maximum number of consecutive attempts to read certificate files that keep changing while
/// they are read.
const MAX_READS: usize = 3;

/// Builds a value from files by calling `build`, and returns it with the hashes of the files, which
/// `hash` computes. If the files change meanwhile, builds the value again. Returns `None` instead
/// of the value if the files keep changing.
pub(super) fn build_unchanged<T>(
    mut hash: impl FnMut() -> Contents,
    mut build: impl FnMut() -> T,
) -> (Contents, Option<T>) {
    let mut found = hash();
    for _ in 0..MAX_READS {
        let built = build();
        let now = hash();
        if now == found {
            return (found, Some(built));
        }
        found = now;
    }
    (found, None)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_built_value_matches_the_hashed_contents() {
        let file = Cell::new(1);
        let hash = || vec![Some([file.get(); 32])];
        // The file is replaced this number of times while it is read.
        for changes in 0..6u8 {
            file.set(1);
            let left = Cell::new(changes);
            let build = || {
                let read = file.get();
                if left.get() > 0 {
                    left.set(left.get() - 1);
                    file.set(read + 1);
                }
                read
            };
            let (found, built) = build_unchanged(hash, build);
            assert_eq!(found, [Some([file.get(); 32])]);
            let is_settled = usize::from(changes) < MAX_READS;
            assert_eq!(built, is_settled.then_some(changes + 1), "{changes} changes");
        }
    }

    #[test]
    fn the_generation_changes_with_every_use_of_newly_read_certificates() {
        let contents = |first: u8| vec![Some([first; 32])];
        let mut watch = FileWatch::new(contents(1));
        let mut generations = vec![watch.generation()];
        for first in [2, 2, 1] {
            watch.on_served(&contents(first));
            assert!(!generations.contains(&watch.generation()));
            generations.push(watch.generation());
        }
    }

    #[test]
    fn failed_contents_are_retried_with_growing_pauses() {
        let now = Instant::now();
        let contents = |first: u8| vec![Some([first; 32]), None];
        let mut watch = FileWatch::new(contents(1));
        assert!(!watch.compare(&contents(1), now));
        assert!(watch.compare(&contents(2), now));
        let mut pauses = Vec::new();
        let mut time = now;
        for at in 0..8 {
            assert!(watch.compare(&contents(2), time));
            assert_eq!(
                watch.on_failure(contents(2), "no".to_owned(), time),
                at == 0,
                "reported once"
            );
            assert!(!watch.compare(&contents(2), time));
            let failed = watch.failed.as_ref().unwrap();
            pauses.push(failed.pause.as_secs());
            time = failed.retry_at;
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300, 300]);
        // Other contents are tried at once, and their error is reported.
        assert!(watch.compare(&contents(3), now));
        assert!(watch.on_failure(contents(3), "never".to_owned(), time));
        assert_eq!(watch.failed.as_ref().unwrap().pause, FIRST_PAUSE);
        // The files have the contents that are served again, so the failure is forgotten.
        assert!(!watch.compare(&contents(1), time));
        assert!(watch.failed.is_none());
    }
}
