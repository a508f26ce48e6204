//! What a process uses, as the system counts it.

use std::ops::Range;
use std::time::Duration;

/// Bytes that are a process's alone: what it shares with others would be counted for each.
pub fn own_memory(pid: libc::pid_t) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// The processor time that it has had, with that of its children that it has waited for.
pub fn processor_time(pid: libc::pid_t) -> Option<Duration> {
    time_of(&format!("/proc/{pid}/stat"), 11..15)
}

/// The processor time that one of its threads has had.
pub fn thread_time(pid: libc::pid_t, thread: u32) -> Option<Duration> {
    time_of(&format!("/proc/{pid}/task/{thread}/stat"), 11..13)
}

/// The sum of some fields of such a file, counted from the third.
fn time_of(path: &str, fields: Range<usize>) -> Option<Duration> {
    let stat = std::fs::read_to_string(path).ok()?;
    // The name, in parentheses, may have any character; behind it fields 3 and on.
    let all: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks = all.get(fields)?.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    // SAFETY: asks only.
    let a_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|it| *it > 0)?;
    Some(Duration::from_millis(ticks * 1000 / a_second))
}

/// Descriptors that this process has open.
pub fn open_descriptors() -> Option<u64> {
    // One of them is that of the folder itself.
    Some((std::fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_and_time_of_its_own() {
        let pid = libc::pid_t::try_from(std::process::id()).unwrap();
        assert!(own_memory(pid).unwrap() > 100_000);
        assert_eq!((own_memory(0), processor_time(0)), (None, None));
        let before = processor_time(pid).unwrap();
        let mut sum = 0u64;
        while processor_time(pid).unwrap() == before {
            sum = (0..1_000_000u64).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
        }
        // SAFETY: asks only.
        let thread = u32::try_from(unsafe { libc::gettid() }).unwrap();
        assert!(thread_time(pid, thread).unwrap() <= processor_time(pid).unwrap());
        assert_eq!(thread_time(pid, 0), None);
        assert!(open_descriptors().unwrap() >= 3);
    }
}
