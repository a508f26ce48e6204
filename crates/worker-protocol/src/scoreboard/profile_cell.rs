//! The part of the scoreboard by which a profile of R is requested, and by which R's thread reports
//! the progress of the profile.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::Scoreboard;

/// A request for a profile of an R process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileRequest {
    /// The number of the profile, which is not 0. It is a part of the name of the file that R
    /// writes.
    pub number: u32,
    /// The time between two samples in milliseconds, which is not 0.
    pub interval_ms: u16,
}

/// The number of bits for the interval in the word of a request.
const INTERVAL_BITS: u32 = 16;

impl ProfileRequest {
    fn word(self) -> u64 {
        u64::from(self.number) << INTERVAL_BITS | u64::from(self.interval_ms)
    }

    /// Returns the request that a word on the scoreboard stands for, or `None` if no profile is
    /// requested.
    pub fn of_word(word: u64) -> Option<ProfileRequest> {
        let number = u32::try_from(word >> INTERVAL_BITS).ok().filter(|number| *number != 0)?;
        let interval_ms = (word & 0xFFFF) as u16;
        (interval_ms != 0).then_some(ProfileRequest { number, interval_ms })
    }

    /// Returns the time between two samples in microseconds. The R package recognizes its own
    /// profile by this interval, which is therefore a little longer than `interval_ms` and no round
    /// number. If the timer has another interval, the app has called `Rprof()`.
    pub fn interval_us(self) -> u64 {
        u64::from(self.interval_ms) * 1000 + 7
    }
}

/// The progress of a profile in an R process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ProfileProgress {
    /// R has not begun: it has not checked for interrupts since the request.
    Waiting = 0,
    /// R takes samples.
    Running = 1,
    /// R has written the file.
    Complete = 2,
    /// This R has no profiler.
    Unsupported = 3,
    /// Another profiler is active in the R process: the app profiles itself.
    OtherProfiler = 4,
    /// R could not begin, for example because the file could not be written.
    Failed = 5,
    /// The app has ended the profile, or replaced it by its own.
    Replaced = 6,
}

impl ProfileProgress {
    /// All values, at the places of their numbers.
    const ALL: [ProfileProgress; 7] = [
        ProfileProgress::Waiting,
        ProfileProgress::Running,
        ProfileProgress::Complete,
        ProfileProgress::Unsupported,
        ProfileProgress::OtherProfiler,
        ProfileProgress::Failed,
        ProfileProgress::Replaced,
    ];

    /// Returns the progress with this number, as the C code of the R package passes it.
    pub fn of_number(number: u8) -> ProfileProgress {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(ProfileProgress::Failed)
    }
}

/// The request for a profile and its progress, in shared memory.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct ProfileCell {
    /// The request, or 0. The supervisor writes it.
    request: AtomicU64,
    /// The number of a profile in the upper bits and its progress in the lower eight. R's thread
    /// writes them.
    progress: AtomicU64,
}

impl ProfileCell {
    pub(super) fn request(&self, request: Option<ProfileRequest>) {
        self.request.store(request.map_or(0, ProfileRequest::word), Release);
    }

    pub(super) fn word(&self) -> &AtomicU64 {
        &self.request
    }

    pub(super) fn progress(&self, number: u32) -> ProfileProgress {
        let word = self.progress.load(Acquire);
        if word >> 8 == u64::from(number) {
            ProfileProgress::of_number((word & 0xFF) as u8)
        } else {
            ProfileProgress::Waiting
        }
    }

    pub(super) fn set_progress(&self, number: u32, progress: ProfileProgress) {
        self.progress.store(u64::from(number) << 8 | progress as u64, Release);
    }
}

impl Scoreboard {
    /// Requests a profile from the worker's R process, or ends the current one if `request` is
    /// `None`. R begins and ends a profile where it checks for interrupts.
    pub fn request_profile(&self, request: Option<ProfileRequest>) {
        self.profile.0.request(request);
    }

    /// Returns the progress of the profile with this number in the worker's R process.
    pub fn profile_progress(&self, number: u32) -> ProfileProgress {
        self.profile.0.progress(number)
    }

    /// Returns the word in which a profile is requested, and which R's thread compares with its
    /// last value. [`ProfileRequest::of_word`] interprets it.
    pub fn profile_word(&self) -> &AtomicU64 {
        self.profile.0.word()
    }

    /// Records the progress of the profile with this number. Called on R's thread.
    pub fn set_profile_progress(&self, number: u32, progress: ProfileProgress) {
        self.profile.0.set_progress(number, progress);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written_and_a_progress_belongs_to_its_profile() {
        let scoreboard = Scoreboard::new();
        let word = || ProfileRequest::of_word(scoreboard.profile_word().load(Relaxed));
        assert_eq!(word(), None);
        for number in [1, 7, u32::MAX] {
            let request = ProfileRequest { number, interval_ms: 10 };
            scoreboard.request_profile(Some(request));
            assert_eq!(word(), Some(request));
            assert_eq!(scoreboard.profile_progress(number), ProfileProgress::Waiting);
            for progress in ProfileProgress::ALL {
                scoreboard.set_profile_progress(number, progress);
                assert_eq!(scoreboard.profile_progress(number), progress);
                assert_eq!(scoreboard.profile_progress(number - 1), ProfileProgress::Waiting);
            }
        }
        scoreboard.request_profile(None);
        assert_eq!(word(), None);
    }

    #[test]
    fn every_word_is_accepted() {
        for word in [1, 0xFFFF, 1 << 16, 1 << 48, u64::MAX] {
            assert_eq!(ProfileRequest::of_word(word), None, "{word:x}");
        }
        for number in 0..=u8::MAX {
            assert!(
                (number as usize) < 7
                    || ProfileProgress::of_number(number) == ProfileProgress::Failed
            );
        }
    }
}
