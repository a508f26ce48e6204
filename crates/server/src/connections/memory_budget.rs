//! The memory budget of a server: how much memory the process may use, and which part of it is
//! available to clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rookery_exchange::Budget;
use rookery_system::memory;

use super::admission::{CONNECTION_BYTES, IDLE_BYTES, IDLE_TLS_BYTES, TLS_BYTES};
use crate::config::Limits;

/// The minimum percentage of [`Limits::max_client_memory`] for connections. A connection in use
/// counts 32 KiB (80 KiB with TLS), and more for a longer head.
// Because the shares are separate, an attack that uses up one of them leaves the memory for the
// others: clients that only connect, or that send or read slowly, keep nobody else from the rest.
const MIN_CONNECTIONS: usize = 20;

/// The maximum percentage of [`Limits::max_client_memory`] for connections. Up to this percentage,
/// the share suffices for [`Limits::max_connections`] idle connections with TLS, and for some that
/// are in use meanwhile. The default of 10,000 connections thus fits into a quarter of 1 GB.
const MAX_CONNECTIONS: usize = 40;

/// The number of connections in use that fit into the share for connections beside all idle ones.
const IN_USE: usize = 32;

/// The part of the memory without connections that is for what clients send, in 80ths. It is less
/// than for responses, because most requests and messages are small, and because long bodies are
/// spooled to files.
const INCOMING: usize = 35;

/// The part of the memory without connections that is for what is sent to clients, in 80ths. It is
/// the largest part, because apps send large pages to clients that may read slowly.
const OUTGOING: usize = 45;

/// The part of [`INCOMING`] for WebSocket messages that wait for the application. It is small,
/// because the server then stops reading WebSockets, which costs no client its connection.
const WAITING_PART: usize = 7;

/// Makes the memory budget of a server by dividing [`Limits::max_client_memory`].
pub(crate) fn budget(limits: &Limits) -> Arc<Budget> {
    let total = total(limits);
    let connections = connections(limits, total);
    let incoming = part(total - connections, INCOMING);
    // The order is that of `Share::ALL`.
    Budget::new([
        connections,
        incoming - incoming / WAITING_PART,
        part(total - connections, OUTGOING),
        // Set when a listener raises the limit of the process. Before that, there are no clients.
        usize::MAX,
    ])
}

/// Returns the maximum total size in bytes of the WebSocket messages that wait for the application.
pub(crate) fn message_queue_bytes(limits: &Limits) -> usize {
    let total = total(limits);
    part(total - connections(limits, total), INCOMING) / WAITING_PART
}

/// Returns the number of bytes for connections, out of `total` bytes for clients.
fn connections(limits: &Limits, total: usize) -> usize {
    let percent = |percent| (total as u128 * percent as u128 / 100) as usize;
    let all_idle = limits.max_connections.saturating_mul(IDLE_BYTES + IDLE_TLS_BYTES);
    let in_use = IN_USE * (CONNECTION_BYTES + TLS_BYTES);
    all_idle.saturating_add(in_use).clamp(percent(MIN_CONNECTIONS), percent(MAX_CONNECTIONS))
}

/// Returns `part` 80ths of a number of bytes.
fn part(bytes: usize, part: usize) -> usize {
    (bytes as u128 * part as u128 / (INCOMING + OUTGOING) as u128) as usize
}

fn total(limits: &Limits) -> usize {
    limits.max_client_memory.unwrap_or_else(|| (usable() / PART).max(LEAST))
}

/// The divisor for the default memory budget of clients, which is a quarter of the memory that the
/// process may use. The rest is for the application, its data and R's garbage collector.
const PART: usize = 4;

/// The minimum of the default memory budget of clients, in bytes.
const LEAST: usize = 32 << 20;

/// Returns the memory in bytes that this process may use: the least of the machine's memory, the
/// limits of the process's control groups, and the limit on its address space.
fn usable() -> usize {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = [
        memory::physical(),
        group_limit(Path::new("/sys/fs/cgroup"), &groups),
        memory::address_space(),
    ];
    let least = limits.into_iter().flatten().min().unwrap_or(FALLBACK);
    usize::try_from(least).unwrap_or(usize::MAX)
}

/// The memory in bytes that the process is assumed to have if the system reports no limit.
const FALLBACK: u64 = 1 << 30;

/// Returns the smallest memory limit of the process's control groups and their parent groups.
/// `groups` lists the process's groups in the format of `/proc/self/cgroup`, and `root` is the
/// folder of all groups.
///
/// In a container, the listed paths are often those of the host, and not all of them exist in the
/// container. Only the limits of existing groups are used, and always the limit of `root`, which is
/// the container's own group.
fn group_limit(root: &Path, groups: &str) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        if controllers.is_empty() {
            least_above(root, path, "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            least_above(&root.join("memory"), path, "memory.limit_in_bytes")
        } else {
            None
        }
    });
    limits.min()
}

fn least_above(root: &Path, path: &str, file: &str) -> Option<u64> {
    let group: PathBuf = root.join(path);
    let above = group.ancestors().take_while(|group| group.starts_with(root));
    // "max" is not a number and is skipped. The "no limit" of cgroup v1 is a number that exceeds
    // any memory.
    above.filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use rookery_exchange::Share;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_least_limit_of_a_group_and_of_those_above_it_counts() {
        let two = tree(&[
            ("a/memory.max", "4000\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/c/memory.max", "5000\n"),
        ]);
        assert_eq!(group_limit(two.path(), "0::/a/b/c\n"), Some(4000));
        assert_eq!(group_limit(two.path(), "0::/\n"), None);
        let one = tree(&[
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/docker/x/memory.limit_in_bytes", "700\n"),
        ]);
        let groups = "9:name=systemd:/\n4:cpu,memory:/docker/x\n0::/\n";
        assert_eq!(group_limit(one.path(), groups), Some(700));
    }

    #[test]
    fn a_path_that_only_the_host_has_leads_to_the_containers_root() {
        let container = tree(&[("memory.max", "12345\n")]);
        assert_eq!(group_limit(container.path(), "0::/system.slice/docker-1.scope\n"), Some(12345));
        assert_eq!(group_limit(container.path(), "0::/../../x\n"), Some(12345));
        assert_eq!(group_limit(container.path(), ""), None);
        assert_eq!(group_limit(container.path(), "nonsense\n0\n"), None);
    }

    #[test]
    fn idle_connections_with_tls_fit_into_a_quarter_of_a_gigabyte() {
        let limits = Limits { max_client_memory: Some(250_000_000), ..Limits::default() };
        let idle = limits.max_connections * (IDLE_BYTES + IDLE_TLS_BYTES);
        let in_use = IN_USE * (CONNECTION_BYTES + TLS_BYTES);
        assert!(budget(&limits).limit(Share::Connections) >= idle + in_use, "{idle} + {in_use}");
    }

    #[test]
    fn the_default_is_a_quarter_of_what_there_is_and_the_shares_are_all_of_it() {
        let limits = Limits::default();
        assert!(total(&limits) <= usize::try_from(memory::physical().unwrap()).unwrap() / 4);
        assert!(total(&limits) >= LEAST);
        let shares = |limits: &Limits| {
            [Share::Connections, Share::Incoming, Share::Outgoing]
                .map(|share| budget(limits).limit(share))
        };
        let few = Limits { max_client_memory: Some(100_000_000), max_connections: 0, ..limits };
        let expected = [20_000_000, 30_000_000, 45_000_000];
        assert_eq!((shares(&few), message_queue_bytes(&few)), (expected, 5_000_000));
        let many = Limits { max_connections: 10_000, ..few };
        let expected = [40_000_000, 22_500_000, 33_750_000];
        assert_eq!((shares(&many), message_queue_bytes(&many)), (expected, 3_750_000));
    }
}
