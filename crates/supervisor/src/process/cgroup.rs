//! The Linux control group (cgroup) of this process and its workers: its memory limit, and how many
//! of its processes were killed because they reached the limit.

use std::fs;
use std::path::{Path, PathBuf};

/// The memory limit in bytes from which a version 1 control group counts as unlimited. If no limit
/// is set, version 1 reports a very large number.
const NO_LIMIT: u64 = 1 << 60;

/// The paths at which Linux describes the control groups of this process.
#[derive(Debug, Clone)]
pub(crate) struct ControlGroups {
    /// The path of the file that lists the control groups of this process, `/proc/self/cgroup`.
    own: PathBuf,
    /// The path of the folder that contains a folder for each control group, `/sys/fs/cgroup`.
    root: PathBuf,
}

impl Default for ControlGroups {
    fn default() -> ControlGroups {
        ControlGroups { own: "/proc/self/cgroup".into(), root: "/sys/fs/cgroup".into() }
    }
}

/// Returns the maximum number of bytes of memory that this process and its child processes may use
/// together, according to their control groups. Returns `None` if there is no limit.
pub fn memory_limit() -> Option<u64> {
    ControlGroups::default().memory_limit()
}

impl ControlGroups {
    /// Returns the lowest memory limit, in bytes, of the control group and its ancestors. Returns
    /// `None` if none of them has a limit.
    fn memory_limit(&self) -> Option<u64> {
        let second = self.folders(false).into_iter().map(|folder| folder.join("memory.max"));
        let first =
            self.folders(true).into_iter().map(|folder| folder.join("memory.limit_in_bytes"));
        // "max" is no number.
        let limit = |file: PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
        second.chain(first).filter_map(limit).filter(|bytes| *bytes < NO_LIMIT).min()
    }

    /// Returns how many bytes of memory the processes of the control group can still allocate.
    /// Returns `None` if neither the group nor an ancestor has a limit. The page cache counts as
    /// free, because the system can reclaim it.
    pub(crate) fn memory_left(&self) -> Option<u64> {
        let number = |file: PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
        let left = |folder: PathBuf, [limit, used, inactive, active]: [&str; 4]| {
            let limit = number(folder.join(limit)).filter(|bytes| *bytes < NO_LIMIT)?;
            let statistics = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
            let cached = statistics.lines().filter_map(|line| line.split_once(' '));
            let cached = cached.filter(|(name, _)| [inactive, active].contains(name));
            let cached: u64 = cached.filter_map(|(_, bytes)| bytes.parse::<u64>().ok()).sum();
            Some(limit.saturating_sub(number(folder.join(used))?.saturating_sub(cached)))
        };
        let second = ["memory.max", "memory.current", "inactive_file", "active_file"];
        let first = [
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
            "total_active_file",
        ];
        let second = self.folders(false).into_iter().map(|folder| left(folder, second));
        let first = self.folders(true).into_iter().map(|folder| left(folder, first));
        second.chain(first).flatten().min()
    }

    /// Returns the number of processes of the control group that were killed because memory had run
    /// out. Returns `None` if the system provides no such count.
    pub(crate) fn kills_for_memory(&self) -> Option<u64> {
        let second = self.folders(false).into_iter().map(|folder| folder.join("memory.events"));
        let first = self.folders(true).into_iter().map(|folder| folder.join("memory.oom_control"));
        let kills = |file: PathBuf| {
            let text = fs::read_to_string(file).ok()?;
            text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
        };
        // The innermost group that has such a counter.
        second.chain(first).find_map(kills)
    }

    /// Returns the number of times that the limit of the control group, of its ancestors or of a
    /// group in it was exceeded, so that a process had to be killed. Returns `None` if the system
    /// provides no such count.
    pub(crate) fn exceeded_limits(&self) -> Option<u64> {
        let count = |folder: PathBuf| -> Option<u64> {
            let text = fs::read_to_string(folder.join("memory.events")).ok()?;
            text.lines().find_map(|line| line.strip_prefix("oom "))?.trim().parse().ok()
        };
        self.folders(false).into_iter().filter_map(count).reduce(u64::wrapping_add)
    }

    /// Returns the folders of the control group and of its ancestors, innermost first. `is_first`
    /// is true for version 1 of control groups, and false for version 2.
    fn folders(&self, is_first: bool) -> Vec<PathBuf> {
        let groups = fs::read_to_string(&self.own).unwrap_or_default();
        let path = groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_it = if is_first {
                controllers.split(',').any(|it| it == "memory")
            } else {
                controllers.is_empty()
            };
            is_it.then_some(path)
        });
        let Some(path) = path else { return Vec::new() };
        let root = if is_first { self.root.join("memory") } else { self.root.clone() };
        let path = Path::new(path.trim_start_matches('/'));
        // In a cgroup namespace, the group may be outside of the visible hierarchy, which the path
        // shows by `..`. A container may also see only its own group, as the root.
        let is_inside = path.components().all(|it| matches!(it, std::path::Component::Normal(_)));
        let around = path.ancestors().filter(|_| is_inside).map(|path| root.join(path));
        let mut folders: Vec<PathBuf> = around.collect();
        if !is_inside {
            folders.push(root);
        }
        folders
    }
}

/// Writes files like those of the system's control groups into a folder, for tests, and returns
/// their paths. `own` is the content of `/proc/self/cgroup`, and `files` are the paths and contents
/// of files in `/sys/fs/cgroup`.
#[cfg(test)]
pub(crate) fn stand_in(folder: &Path, own: &str, files: &[(&str, &str)]) -> ControlGroups {
    let groups = ControlGroups { own: folder.join("own"), root: folder.join("root") };
    fs::write(&groups.own, own).unwrap();
    for (path, text) in files {
        let file = groups.root.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(own: &str, files: &[(&str, &str)]) -> (Option<u64>, Option<u64>) {
        let folder = tempfile::tempdir().unwrap();
        let groups = stand_in(folder.path(), own, files);
        (groups.memory_limit(), groups.kills_for_memory())
    }

    #[test]
    fn the_least_limit_around_it_counts_and_its_own_kills() {
        let files = &[
            ("memory.events", "low 0\noom_kill 9\n"),
            ("a.slice/memory.max", "1000\n"),
            ("a.slice/memory.events", "oom_kill 7\n"),
            ("a.slice/b.service/memory.max", "max\n"),
            (
                "a.slice/b.service/memory.events",
                "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n",
            ),
        ];
        assert_eq!(asked("0::/a.slice/b.service\n", files), (Some(1000), Some(2)));
        assert_eq!(asked("0::/a.slice\n", files), (Some(1000), Some(7)));
        assert_eq!(asked("0::/\n", files), (None, Some(9)));
        // In a container that sees only its own group, the path may be one of the host.
        let container = &[("memory.max", "500\n"), ("memory.events", "oom_kill 1\n")];
        for own in ["0::/\n", "0::/docker/0123\n", "0::/../../other\n"] {
            assert_eq!(asked(own, container), (Some(500), Some(1)), "{own}");
        }
    }

    #[test]
    fn what_is_left_is_the_least_of_all_limits_and_files_count_as_free() {
        let left = |own: &str, files: &[(&str, &str)]| {
            let folder = tempfile::tempdir().unwrap();
            stand_in(folder.path(), own, files).memory_left()
        };
        let statistics = "anon 500\ninactive_file 100\nactive_file 50\n";
        let files = &[
            ("memory.current", "5000\n"),
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "700\n"),
            ("a/memory.stat", statistics),
            ("a/b/memory.max", "2000\n"),
            ("a/b/memory.current", "2500\n"),
        ];
        assert_eq!(left("0::/a/b\n", files), Some(0));
        assert_eq!(left("0::/a\n", files), Some(450));
        assert_eq!(left("0::/\n", files), None);
        let files = &[
            ("memory/c/memory.limit_in_bytes", "1000\n"),
            ("memory/c/memory.usage_in_bytes", "900\n"),
            ("memory/c/memory.stat", "inactive_file 1\ntotal_inactive_file 200\n"),
        ];
        assert_eq!(left("4:memory:/c\n0::/\n", files), Some(300));
    }

    #[test]
    fn version_1_is_read_as_well() {
        // A system may have both versions, and version 2 then has no memory controller. The name of
        // a group may contain colons.
        let own =
            "12:pids:/memory\n1:name=systemd:/memory\n9:cpu,memory:/docker/1:2\n0::/\nnonsense\n";
        let files = &[
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/docker/1:2/memory.limit_in_bytes", "2048\n"),
            (
                "memory/docker/1:2/memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
            ),
        ];
        assert_eq!(asked(own, files), (Some(2048), Some(4)));
        assert_eq!(asked("9:memory:/\n", files), (None, None));
    }

    #[test]
    fn without_groups_and_with_odd_ones_there_is_none() {
        for (own, text) in
            [("", "5"), ("0::", "many"), ("0::/a\n", ""), (":::\n", "-1"), ("\u{0}", "5")]
        {
            assert_eq!(
                asked(own, &[("memory.max", text), ("memory.events", "oom_kill x")]),
                (None, None),
                "{own}"
            );
        }
    }
}
