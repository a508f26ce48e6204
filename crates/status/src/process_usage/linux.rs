//! Functions that read from `/proc` what processes use: memory, processor time and descriptors.

use std::ops::Range;
use std::time::Duration;

use super::Pid;

/// The number of processes after which a search for the descendants of a process stops. Without
/// this limit, the search might never end while the app keeps starting processes.
const MOST_PROCESSES: usize = 1000;

/// Returns how much memory a process and its descendants use, in bytes. Anonymous memory, swap and
/// shared memory count. Mapped files do not count, because the system can reclaim their memory.
/// Memory that several of these processes share, for example after a fork, counts once. Returns
/// `None` if the process has ended.
pub fn own_memory(pid: Pid) -> Option<u64> {
    let own = memory_of(pid)?;
    let tree = tree_of(pid);
    if tree.len() == 1 {
        return Some(own);
    }
    // The proportional share divides each page by the number of processes that have it, so the sum
    // counts it once. It takes longer to read than the sum of `memory_of`.
    let share = |pid: &Pid| share_of(*pid).or_else(|| memory_of(*pid)).unwrap_or(0);
    Some(tree.iter().map(share).sum())
}

/// Returns how much memory a process and its descendants use, in bytes. If they use at most `limit`
/// bytes, the result may be an upper bound, which is much cheaper to compute than the exact number
/// of [`own_memory`].
pub fn own_memory_beyond(pid: Pid, limit: u64) -> Option<u64> {
    memory_of(pid)?;
    let bound = tree_of(pid).into_iter().filter_map(memory_of).sum();
    if bound <= limit { Some(bound) } else { own_memory(pid) }
}

/// Returns how many bytes of anonymous and shared memory a single process uses, including swap. A
/// page that several processes share counts in full.
fn memory_of(pid: Pid) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // A zombie has no such lines, and a system without swap may have no `VmSwap`.
    let anonymous = field(&status, "RssAnon:")?;
    Some(
        anonymous
            + field(&status, "RssShmem:").unwrap_or(0)
            + field(&status, "VmSwap:").unwrap_or(0),
    )
}

/// Returns how many bytes of anonymous and shared memory a single process uses, including swap. The
/// size of a page that several processes share is divided by the number of these processes. Returns
/// `None` if the system does not report these sizes (Linux before 5.4).
fn share_of(pid: Pid) -> Option<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let shared = field(&rollup, "Pss_Anon:")? + field(&rollup, "Pss_Shmem:")?;
    Some(shared + field(&rollup, "SwapPss:").unwrap_or(0))
}

/// Finds the field `name` in the text of a `/proc` file and returns its value in bytes. For
/// example, the line `RssAnon: 1234 kB` has the field `RssAnon:`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// Returns the ids of a process and of its descendants. A descendant whose parent has ended is
/// missing, because the system has given it another parent.
fn tree_of(pid: Pid) -> Vec<Pid> {
    let mut tree = vec![pid];
    let mut at = 0;
    while at < tree.len() && tree.len() < MOST_PROCESSES {
        let threads = std::fs::read_dir(format!("/proc/{}/task", tree[at]));
        for thread in threads.into_iter().flatten().flatten() {
            // The file `children` is missing if the kernel was built without it.
            let children =
                std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            tree.extend(
                children.split_ascii_whitespace().filter_map(|pid| pid.parse::<Pid>().ok()),
            );
        }
        at += 1;
    }
    tree
}

/// Returns the processor time of a process, including that of the child processes that have ended
/// and that the process has waited for.
pub fn processor_time(pid: Pid) -> Option<Duration> {
    time_of(&format!("/proc/{pid}/stat"), 11..15)
}

/// Returns the processor time of one thread of a process.
pub fn thread_time(pid: Pid, thread: u32) -> Option<Duration> {
    time_of(&format!("/proc/{pid}/task/{thread}/stat"), 11..13)
}

/// Returns the sum of several time fields of a `/proc/.../stat` file. `fields` contains the numbers
/// of these fields, counted from 0 at the third field of the file.
fn time_of(path: &str, fields: Range<usize>) -> Option<Duration> {
    let stat = std::fs::read_to_string(path).ok()?;
    // The second field is the process name in parentheses, which may contain any character. The
    // last `)` therefore precedes the third field.
    let all: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks =
        all.get(fields)?.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    // SAFETY: the call passes no memory.
    let a_second =
        u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|it| *it > 0)?;
    Some(Duration::from_millis(ticks * 1000 / a_second))
}

/// Returns the number of open descriptors of this process.
pub(crate) fn open_descriptors() -> Option<u64> {
    // One of the entries is the descriptor of the folder that is being read.
    Some((std::fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell process that runs a script. When this value is dropped, the shell and its
    /// descendants are killed.
    struct Shell(std::process::Child, Pid);

    impl Shell {
        fn start(script: &str) -> Shell {
            use std::os::unix::process::CommandExt as _;
            let mut command = std::process::Command::new("/bin/bash");
            let child = command.args(["-c", script]).process_group(0).spawn().unwrap();
            let pid = Pid::try_from(child.id()).unwrap();
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
            // SAFETY: the call passes no memory. The shell leads the group, and keeps its id until
            // it is waited for.
            unsafe { libc::kill(-self.1, libc::SIGKILL) };
            let _ = self.0.wait();
        }
    }

    /// A line of shell script that fills a variable with 60 MB.
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
        // The sum without sharing would be 300 MB for five processes.
        shell.await_memory(|bytes| bytes < 200_000_000);
    }

    #[test]
    fn shared_pages_are_divided_only_where_their_sum_is_beyond_the_limit() {
        let script = format!("{LARGE}; for i in 1 2 3 4; do ( read -t 1000 <> <(:) ) & done; wait");
        let shell = Shell::start(&script);
        shell.await_memory(|bytes| bytes > 60_000_000 && tree_of(shell.1).len() >= 5);
        // While the shell fills the variable, it has more memory than that.
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
        let pid = Pid::try_from(std::process::id()).unwrap();
        let before = memory_of(pid).unwrap();
        let (access, how) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: the system chooses the address, so the mapping replaces no memory that is in use.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, how, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        // SAFETY: the mapping has this number of bytes and is writable.
        unsafe { memory.cast::<u8>().write_bytes(1, BYTES) };
        // Other tests of this process allocate and free only little memory meanwhile.
        let after = memory_of(pid).unwrap();
        assert!(after > before + BYTES as u64 / 2, "{before} {after}");
        // SAFETY: the mapping exists, and no reference to it is left.
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
        let pid = Pid::try_from(std::process::id()).unwrap();
        assert!(own_memory(pid).unwrap() > 100_000);
        assert_eq!((own_memory(0), processor_time(0)), (None, None));
        let before = processor_time(pid).unwrap();
        let mut sum = 0u64;
        while processor_time(pid).unwrap() == before {
            sum = (0..1_000_000u64).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
        }
        // SAFETY: gettid takes no arguments and never fails.
        let thread = u32::try_from(unsafe { libc::gettid() }).unwrap();
        assert!(thread_time(pid, thread).unwrap() <= processor_time(pid).unwrap());
        assert_eq!(thread_time(pid, 0), None);
        assert!(open_descriptors().unwrap() >= 3);
    }
}
