//! A monotonic clock that all processes of a machine share, and the clock of a thread.

/// Returns the nanoseconds that have passed since a point in the past, which is the same for all
/// processes of this machine until it restarts.
#[inline]
#[allow(clippy::cast_sign_loss)] // `cast_unsigned` needs a newer Rust.
pub fn nanoseconds() -> u64 {
    #[cfg(unix)]
    return read(libc::CLOCK_MONOTONIC);
    #[cfg(windows)]
    {
        use windows_sys::Win32::System::Performance::{
            QueryPerformanceCounter, QueryPerformanceFrequency,
        };
        let (mut count, mut a_second) = (0, 0);
        // SAFETY: both pointers are valid for writes. The calls succeed on every version of
        // Windows since XP.
        unsafe {
            QueryPerformanceCounter(&raw mut count);
            QueryPerformanceFrequency(&raw mut a_second);
        }
        let (count, a_second) = (count as u64, (a_second as u64).max(1));
        (count / a_second * 1_000_000_000) + (count % a_second * 1_000_000_000 / a_second)
    }
}

/// Returns the nanoseconds that a processor has spent on the current thread. On Windows, where this
/// time is only known to 16 ms, returns [`nanoseconds`].
pub fn thread_nanoseconds() -> u64 {
    #[cfg(unix)]
    return read(libc::CLOCK_THREAD_CPUTIME_ID);
    #[cfg(windows)]
    return nanoseconds();
}

/// Returns the nanoseconds that a clock shows.
#[cfg(unix)]
#[inline]
#[allow(clippy::cast_sign_loss)] // `cast_unsigned` needs a newer Rust.
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to, and both clocks always exist.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    // Neither number is negative, because both clocks begin at zero.
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_clock_advances_with_time() {
        let (started, before) = (Instant::now(), nanoseconds());
        std::thread::sleep(Duration::from_millis(30));
        let passed = Duration::from_nanos(nanoseconds() - before);
        let real = started.elapsed();
        assert!(passed >= Duration::from_millis(25) && passed <= real, "{passed:?}, {real:?}");
    }

    #[test]
    #[cfg(unix)]
    fn the_clock_of_a_thread_advances_only_while_the_thread_runs() {
        let before = thread_nanoseconds();
        std::thread::sleep(Duration::from_millis(30));
        let slept = Duration::from_nanos(thread_nanoseconds() - before);
        assert!(slept < Duration::from_millis(25), "{slept:?}");
        let started = Instant::now();
        while thread_nanoseconds() - before < 5_000_000 {
            assert!(started.elapsed() < Duration::from_secs(60));
        }
    }
}
