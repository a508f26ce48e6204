//! What a process uses, as the system counts it.

use std::time::Duration;

/// Bytes that are a process's alone: what it shares with others would be counted for each.
pub(crate) fn own_memory(pid: libc::pid_t) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// The processor time that it has had, with that of its children that it has waited for.
pub(crate) fn processor_time(pid: libc::pid_t) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may have any character; behind it fields 3 and on.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    // SAFETY: asks only.
    let a_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|it| *it > 0)?;
    Some(Duration::from_millis(ticks * 1000 / a_second))
}

/// How many processes of our control group have been killed because it had no memory left; `None` where the system does not count.
pub(crate) fn kills_for_memory() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let events = counters(&groups).find_map(|path| std::fs::read_to_string(path).ok())?;
    events.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

/// Where that is counted, by the lines of `/proc/self/cgroup`: version 1 has a tree for memory alone, version 2 one for all, and a
/// system may have both, the second without memory. A container may see its own group as the root, under the name it has outside.
fn counters(groups: &str) -> impl Iterator<Item = String> {
    groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let (tree, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.events"),
            _ if controllers.split(',').any(|it| it == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.oom_control")
            }
            _ => return Vec::new(),
        };
        vec![format!("{tree}{group}/{file}"), format!("{tree}/{file}")]
    })
}

/// Descriptors that this process has open.
pub(crate) fn open_descriptors() -> Option<u64> {
    // One of them is that of the folder itself.
    Some((std::fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_counted_where_the_system_has_its_groups() {
        let paths = |groups| counters(groups).collect::<Vec<_>>();
        assert_eq!(
            paths("0::/system.slice/rookery.service\n"),
            ["/sys/fs/cgroup/system.slice/rookery.service/memory.events", "/sys/fs/cgroup/memory.events"]
        );
        let both = "5:cpu,cpuacct:/a\n4:hugetlb,memory:/docker/1:2\n1:name=systemd:/memory\n0::/\nnonsense\n";
        assert_eq!(
            paths(both)[..3],
            [
                "/sys/fs/cgroup/memory/docker/1:2/memory.oom_control",
                "/sys/fs/cgroup/memory/memory.oom_control",
                "/sys/fs/cgroup//memory.events"
            ]
        );
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
        assert!(open_descriptors().unwrap() >= 3);
    }
}
