//! The folder for temporary files with request bodies that are too large for memory. This module
//! also checks how much disk space must stay free, and reports failures.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rookery_exchange::{ById, Peer};
use rookery_system::disk::DiskSpace;

use crate::config::Limits;

/// The minimum time between two notices about a failed spool file, so that repeated uploads cannot
/// fill the log.
const NOTICE_INTERVAL: Duration = Duration::from_secs(10);

/// The quota of all spooled bodies together, in quarters of the space that would be free without
/// them. The rest is for the other users of the disk.
const QUOTA_QUARTERS: u64 = 3;

/// The maximum size of the spooled bodies of a network together, as a multiple of what the quota
/// has left. A network that takes all it can leaves a fifth of the quota to the others, and of this
/// fifth, the next one leaves a fifth again. In the same way, each body leaves a fifth of what its
/// network may have to the network's other bodies.
const SHARE_OF_REST: u64 = 4;

/// The folder for temporary files with large request bodies. Its path is determined when the
/// listener starts, so later changes of `TMPDIR` have no effect.
pub struct SpoolFolder {
    path: PathBuf,
    spooled: Mutex<Spooled>,
    notice: fn(&str),
    last_notice: Mutex<Option<Instant>>,
}

/// The numbers of bytes of the spooled bodies in a folder.
#[derive(Debug, Default)]
struct Spooled {
    all: u64,
    networks: ById<u64>,
}

impl Spooled {
    fn of_network(&self, network: u64) -> u64 {
        self.networks.get(&network).copied().unwrap_or(0)
    }
}

impl SpoolFolder {
    /// Creates a spool folder at the given path. When a request body cannot be written to the
    /// folder, `notice` is called with a line of text, at most every ten seconds. It is called on a
    /// thread that may block.
    pub fn new(path: impl Into<PathBuf>, notice: fn(&str)) -> SpoolFolder {
        let (spooled, last_notice) = (Mutex::default(), Mutex::new(None));
        SpoolFolder { path: path.into(), spooled, notice, last_notice }
    }

    /// Returns the path of the folder for large request bodies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn spooled(&self) -> MutexGuard<'_, Spooled> {
        self.spooled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a temporary file without a name in the folder.
    pub(crate) fn create_file(&self) -> io::Result<File> {
        tempfile::tempfile_in(&self.path)
    }

    /// Sends a notice that says why a request body could not be written to the folder.
    pub(crate) fn report_failure(&self, error: &io::Error) {
        let now = Instant::now();
        let mut last_notice = self.last_notice.lock().unwrap_or_else(PoisonError::into_inner);
        if last_notice.is_some_and(|last_notice| now.duration_since(last_notice) < NOTICE_INTERVAL)
        {
            return;
        }
        *last_notice = Some(now);
        drop(last_notice);
        (self.notice)(&format!(
            "an upload was rejected with status 507 because the spool folder {} \
             cannot store it: {error}",
            self.path.display()
        ));
    }
}

/// Creates a spool folder in the temporary folder of the system (`TMPDIR`, or `/tmp`). Failures are
/// not reported.
impl Default for SpoolFolder {
    fn default() -> SpoolFolder {
        SpoolFolder::new(std::env::temp_dir(), |_| ())
    }
}

impl fmt::Debug for SpoolFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpoolFolder").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The amount of disk space that must stay free when request bodies are written to disk: a number
/// of bytes, but at most a fraction of the disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiskReserve {
    bytes: u64,
    share: u64,
}

impl DiskReserve {
    pub(crate) fn of(limits: &Limits) -> DiskReserve {
        DiskReserve { bytes: limits.disk_reserve, share: limits.disk_share }
    }

    /// Returns how many bytes must stay free on a file system of `total` bytes. This is at most a
    /// fraction of `total`, because otherwise a small file system might never accept an upload.
    fn on(self, total: u64) -> u64 {
        self.bytes.min(total / self.share.max(1))
    }

    /// Checks that `wanted` more bytes may be written to a file system.
    ///
    /// # Errors
    /// Fails with `StorageFull` if writing the bytes would leave less free disk space than must
    /// stay free.
    fn check(self, space: &DiskSpace, wanted: u64) -> io::Result<()> {
        let reserve = self.on(space.total);
        if space.free < reserve.saturating_add(wanted) {
            return Err(full(format!(
                "{} of {} bytes are free, and {reserve} must stay free",
                space.free, space.total
            )));
        }
        Ok(())
    }
}

fn full(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, message)
}

/// The space of a spooled body, which counts towards the quota of its folder until this value is
/// dropped.
#[derive(Debug)]
pub(crate) struct SpoolSpace {
    folder: Arc<SpoolFolder>,
    /// The network of the client that sends the body.
    network: u64,
    bytes: u64,
}

impl SpoolSpace {
    pub(crate) fn new(folder: Arc<SpoolFolder>, peer: Peer) -> SpoolSpace {
        SpoolSpace { folder, network: peer.network(), bytes: 0 }
    }

    pub(crate) fn folder(&self) -> &SpoolFolder {
        &self.folder
    }

    /// Returns the number of bytes of the spooled body.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts `wanted` more bytes, which the caller is about to write to `file`.
    ///
    /// # Errors
    /// Fails with `StorageFull` if too little of the disk would stay free, or if the quota does not
    /// permit the bytes.
    pub(crate) fn grow(
        &mut self,
        file: &File,
        reserve: DiskReserve,
        wanted: u64,
    ) -> io::Result<()> {
        let space = DiskSpace::of(file, &self.folder.path)?;
        reserve.check(&space, wanted)?;
        self.count(space.free, wanted)
    }

    fn count(&mut self, free: u64, wanted: u64) -> io::Result<()> {
        let mut spooled = self.folder.spooled();
        let (all, own) = (spooled.all, spooled.of_network(self.network));
        let quota = free.saturating_add(all) / 4 * QUOTA_QUARTERS;
        let rest = quota.saturating_sub(all + wanted);
        // What the network may have in addition: `own + more` is at most a multiple of
        // `rest - more`.
        let more = rest
            .saturating_mul(SHARE_OF_REST)
            .checked_sub(own + wanted)
            .map(|more| more / (SHARE_OF_REST + 1));
        if more.is_none_or(|more| self.bytes + wanted > more.saturating_mul(SHARE_OF_REST)) {
            return Err(full(format!(
                "all request bodies take {all} of the {quota} bytes that they may take together, \
                 and those of this client's address take {own}"
            )));
        }
        spooled.all += wanted;
        spooled.networks.insert(self.network, own + wanted);
        self.bytes += wanted;
        Ok(())
    }
}

impl Drop for SpoolSpace {
    fn drop(&mut self) {
        let mut spooled = self.folder.spooled();
        spooled.all -= self.bytes;
        match spooled.of_network(self.network) - self.bytes {
            0 => drop(spooled.networks.remove(&self.network)),
            rest => drop(spooled.networks.insert(self.network, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn disk_reserve_is_at_most_a_gibibyte_and_a_tenth() {
        let reserve = DiskReserve::of(&Limits::default());
        for (total, kept) in [
            (0, 0),
            (9, 0),
            (64 << 20, (64 << 20) / 10),
            (10 << 30, 1 << 30),
            ((10 << 30) - 10, (1 << 30) - 1),
            (1 << 40, 1 << 30),
            (u64::MAX, 1 << 30),
        ] {
            assert_eq!(reserve.on(total), kept, "{total}");
        }
        assert_eq!(DiskReserve { bytes: 7, share: 0 }.on(100), 7);
    }

    #[test]
    fn networks_whose_bodies_take_all_they_can_leave_room_for_those_of_others() {
        const FREE: u64 = 1 << 40;
        let folder = Arc::new(SpoolFolder::default());
        let disk = || FREE - folder.spooled().all;
        // Each body grows in steps until it may not.
        let take_all = |network| {
            let mut space = SpoolSpace::new(Arc::clone(&folder), Peer::new(1, network));
            while space.count(disk(), FREE / 100_000).is_ok() {}
            space
        };
        let parts = |bodies: &[SpoolSpace]| {
            let all: u64 = bodies.iter().map(|space| space.bytes).sum();
            all * 100 / FREE
        };
        // However many bodies a network sends, they take four fifths of the quota together, and
        // one of them leaves room for the others.
        let of_one: Vec<_> = (0..100).map(|_| take_all(1)).collect();
        assert!((47..=48).contains(&parts(&of_one[..1])), "{}", parts(&of_one[..1]));
        assert!((9..=10).contains(&parts(&of_one[1..2])), "{}", parts(&of_one[1..2]));
        assert!((59..=60).contains(&parts(&of_one)), "{}", parts(&of_one));
        let of_another: Vec<_> = (0..100).map(|_| take_all(2)).collect();
        assert!((11..=12).contains(&parts(&of_another)), "{}", parts(&of_another));
        let others: Vec<_> = (3..20).map(take_all).collect();
        let all = parts(&of_one) + parts(&of_another) + parts(&others);
        assert!(all <= 75, "{all}");
        drop((of_one, of_another, others));
        let spooled = folder.spooled();
        assert!(spooled.all == 0 && spooled.networks.is_empty());
    }

    #[test]
    fn failure_notices_are_rate_limited() {
        static NOTICES: AtomicUsize = AtomicUsize::new(0);
        let folder = SpoolFolder::new("/nowhere/at/all", |line| {
            assert!(line.contains("/nowhere/at/all") && line.contains("507"), "{line}");
            NOTICES.fetch_add(1, Ordering::Relaxed);
        });
        for _ in 0..3 {
            folder.report_failure(&folder.create_file().unwrap_err());
        }
        assert_eq!(NOTICES.load(Ordering::Relaxed), 1);
    }
}
