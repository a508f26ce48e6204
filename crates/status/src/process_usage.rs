//! What a process uses, as the system counts it.

use std::ops::Range;
use std::time::Duration;

/// The maximum number of processes of a tree that are read. No app has more, and the walk must end.
const MOST_PROCESSES: usize = 1000;

/// Returns how many bytes of memory a process and those that it has started take which the system
/// cannot get back by itself: anonymous memory, what of that has been swapped out, and shared
/// memory. Files that are mapped do not count. Memory that processes of the tree share, as forked
/// ones do, counts once.
pub fn own_memory(pid: libc::pid_t) -> Option<u64> {
    let own = memory_of(pid)?;
    let tree = tree_of(pid);
    if tree.len() == 1 {
        return Some(own);
    }
    // Each page is divided by those that have it. The sum takes longer than what `memory_of` reads.
    let share = |pid: &libc::pid_t| share_of(*pid).or_else(|| memory_of(*pid)).unwrap_or(0);
    Some(tree.iter().map(share).sum())
}

/// Returns what [`own_memory`] returns if that may exceed `limit`, and otherwise an upper bound of
/// the memory. The bound counts shared pages once per process, which is far cheaper to read.
pub fn own_memory_beyond(pid: libc::pid_t, limit: u64) -> Option<u64> {
    memory_of(pid)?;
    let bound = tree_of(pid).into_iter().filter_map(memory_of).sum();
    if bound <= limit { Some(bound) } else { own_memory(pid) }
}

/// Returns what one process has in memory and swap, whoever else has it as well.
fn memory_of(pid: libc::pid_t) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // A zombie has none of these; a system without swap may not have the last.
    let anonymous = field(&status, "RssAnon:")?;
    Some(
        anonymous
            + field(&status, "RssShmem:").unwrap_or(0)
            + field(&status, "VmSwap:").unwrap_or(0),
    )
}

/// Returns the same with each page divided by the number of processes that have it. None before
/// Linux 5.4.
fn share_of(pid: libc::pid_t) -> Option<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let shared = field(&rollup, "Pss_Anon:")? + field(&rollup, "Pss_Shmem:")?;
    Some(shared + field(&rollup, "SwapPss:").unwrap_or(0))
}

/// Returns the bytes of a line such as `RssAnon:   1234 kB`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// Returns a process and all that it and they have started. A process that its parent has left
/// behind is not among them.
fn tree_of(pid: libc::pid_t) -> Vec<libc::pid_t> {
    let mut tree = vec![pid];
    let mut at = 0;
    while at < tree.len() && tree.len() < MOST_PROCESSES {
        let threads = std::fs::read_dir(format!("/proc/{}/task", tree[at]));
        for thread in threads.into_iter().flatten().flatten() {
            // Not there where the system was built without it.
            let children =
                std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            tree.extend(
                children.split_ascii_whitespace().filter_map(|pid| pid.parse::<libc::pid_t>().ok()),
            );
        }
        at += 1;
    }
    tree
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
    let ticks =
        all.get(fields)?.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    // SAFETY: asks only.
    let a_second =
        u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|it| *it > 0)?;
    Some(Duration::from_millis(ticks * 1000 / a_second))
}

/// Descriptors that this process has open.
pub(crate) fn open_descriptors() -> Option<u64> {
    // One of them is that of the folder itself.
    Some((std::fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell that runs a script and is killed, with what it has started, when this is dropped.
    struct Shell(std::process::Child, libc::pid_t);

    impl Shell {
        fn start(script: &str) -> Shell {
            use std::os::unix::process::CommandExt as _;
            let mut command = std::process::Command::new("/bin/bash");
            let child = command.args(["-c", script]).process_group(0).spawn().unwrap();
            let pid = libc::pid_t::try_from(child.id()).unwrap();
            Shell(child, pid)
        }

        fn await_memory(&self, is_enough: impl Fn(u64) -> bool) -> u64 {
            let until = std::time::Instant::now() + Duration::from_secs(60);
            loop {
                let bytes = own_memory(self.1).unwrap();
                if is_enough(bytes) {
                    return bytes;
                }
                assert!(std::time::Instant::now() < until, "it has {bytes} bytes");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            // SAFETY: its group, which has its number until it is waited for.
            unsafe { libc::kill(-self.1, libc::SIGKILL) };
            let _ = self.0.wait();
        }
    }

    /// Fills a variable with 60 MB.
    const LARGE: &str = "x=$(head -c 60000000 /dev/zero | tr '\\0' x)";

    #[test]
    fn memory_of_a_process_that_another_has_started_counts() {
        let shell = Shell::start(&format!("( {LARGE}; read -t 1000 <> <(:) ) & wait"));
        shell.await_memory(|bytes| bytes > 60_000_000);
    }

    #[test]
    fn memory_that_forked_processes_share_counts_once() {
        let script = format!("{LARGE}; for i in 1 2 3 4; do ( read -t 1000 <> <(:) ) & done; wait");
        let shell = Shell::start(&script);
        shell.await_memory(|bytes| bytes > 60_000_000 && tree_of(shell.1).len() >= 5);
        // Each of five counted for itself would be 300 MB.
        shell.await_memory(|bytes| bytes < 200_000_000);
    }

    #[test]
    fn shared_pages_are_divided_only_where_their_sum_is_beyond_the_limit() {
        let script = format!("{LARGE}; for i in 1 2 3 4; do ( read -t 1000 <> <(:) ) & done; wait");
        let shell = Shell::start(&script);
        shell.await_memory(|bytes| bytes > 60_000_000 && tree_of(shell.1).len() >= 5);
        // The shell's own memory while it still makes the variable is more.
        shell.await_memory(|bytes| bytes < 200_000_000);
        let bound = own_memory_beyond(shell.1, u64::MAX).unwrap();
        assert!(bound > 280_000_000, "{bound}");
        let exact = own_memory_beyond(shell.1, 250_000_000).unwrap();
        assert!(exact < 200_000_000, "{exact}");
        assert_eq!(own_memory_beyond(0, 1), None);
    }

    #[test]
    fn shared_memory_counts() {
        const BYTES: usize = 64 << 20;
        let pid = libc::pid_t::try_from(std::process::id()).unwrap();
        let before = memory_of(pid).unwrap();
        let (access, how) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, over nobody's memory.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, how, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        // SAFETY: as many bytes as were mapped.
        unsafe { memory.cast::<u8>().write_bytes(1, BYTES) };
        // Other tests of this process take and give back memory meanwhile, and little of it.
        let after = memory_of(pid).unwrap();
        assert!(after > before + BYTES as u64 / 2, "{before} {after}");
        // SAFETY: the mapping, which nobody refers to.
        unsafe { libc::munmap(memory, BYTES) };
    }

    #[test]
    fn swapped_memory_is_read_with_the_rest() {
        let status = "Name:\tR\nVmSwap:\t       5 kB\nRssAnon:\t      10 kB\n";
        assert_eq!(
            (field(status, "RssAnon:"), field(status, "VmSwap:")),
            (Some(10_240), Some(5_120))
        );
        assert_eq!((field(status, "RssShmem:"), field("RssAnon: 1 MB", "RssAnon:")), (None, None));
    }

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
