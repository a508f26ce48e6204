//! A monotonic clock that all processes of a machine share.

/// Returns the nanoseconds that have passed since a point in the past, which is the same for all
/// processes of this machine until it restarts.
#[inline]
#[allow(clippy::cast_sign_loss)] // `cast_unsigned` needs a newer Rust.
pub fn nanoseconds() -> u64 {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid timespec to write to, and this clock always exists.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        // Neither number is negative, because the clock counts from the machine's start.
        (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
    }
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
}
