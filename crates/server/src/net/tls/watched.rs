//! Compares the certificate files with the certificates that are served, and schedules retries
//! after a failure.

use std::time::{Duration, Instant};

/// The SHA-256 of each file, in the order of the settings; `None` for one that cannot be read.
pub(super) type Contents = Vec<Option<[u8; 32]>>;

/// The state of the certificate files, compared with the certificates that are served.
#[derive(Debug)]
pub(super) struct Watched {
    /// The hashes of the files from which the served certificates were read.
    served: Contents,
    /// The last attempt to serve the present contents of the files, if that attempt failed.
    failed: Option<Failed>,
}

/// A failed attempt to serve the contents of the files.
#[derive(Debug)]
struct Failed {
    contents: Contents,
    error: String,
    wait: Duration,
    again: Instant,
}

/// How long after a failure unchanged files are tried again: the first pause, and the longest. The
/// pause doubles after each failure.
const WAIT: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(300);

impl Watched {
    /// Starts with the hashes of the files from which the served certificates were read.
    pub(super) fn new(served: Contents) -> Watched {
        Watched { served, failed: None }
    }

    /// Notes that the contents that were found are served now.
    pub(super) fn serve(&mut self, found: &Contents) {
        self.served.clone_from(found);
        self.failed = None;
    }

    /// Returns whether the files have contents that are not served yet and that should be tried
    /// now.
    pub(super) fn is_due(&mut self, found: &Contents, now: Instant) -> bool {
        if *found == self.served {
            self.failed = None;
            return false;
        }
        self.failed.as_ref().is_none_or(|failed| failed.contents != *found || failed.again <= now)
    }

    /// Notes that the contents that were found could not be served. Returns whether this failure
    /// has not been reported yet.
    pub(super) fn fail(&mut self, found: Contents, error: String, now: Instant) -> bool {
        let before = self.failed.take();
        let is_new = before.as_ref().is_none_or(|before| before.error != error);
        let wait = before
            .filter(|before| before.contents == found)
            .map_or(WAIT, |before| (before.wait * 2).min(LONGEST_WAIT));
        self.failed = Some(Failed { contents: found, error, wait, again: now + wait });
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_served_is_tried_again_until_it_can_or_is_gone() {
        let now = Instant::now();
        let contents = |first: u8| vec![Some([first; 32]), None];
        let mut watched = Watched::new(contents(1));
        assert!(!watched.is_due(&contents(1), now));
        assert!(watched.is_due(&contents(2), now));
        let mut waits = Vec::new();
        let mut time = now;
        for at in 0..8 {
            assert!(watched.is_due(&contents(2), time));
            assert_eq!(watched.fail(contents(2), "no".to_owned(), time), at == 0, "said once");
            assert!(!watched.is_due(&contents(2), time));
            let failed = watched.failed.as_ref().unwrap();
            waits.push(failed.wait.as_secs());
            time = failed.again;
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
        // Other contents are tried at once, and what is wrong with them is said.
        assert!(watched.is_due(&contents(3), now));
        assert!(watched.fail(contents(3), "never".to_owned(), time));
        assert_eq!(watched.failed.as_ref().unwrap().wait, WAIT);
        // What is served has come back: nothing has failed any more.
        assert!(!watched.is_due(&contents(1), time));
        assert!(watched.failed.is_none());
    }
}
