//! File operations that never wait for a disk, so that the I/O thread can call them. An operation
//! succeeds if the kernel has the data in memory, and otherwise fails with [`WouldBlock`]. The I/O
//! thread then passes the operation to another thread.
//!
//! If the kernel lacks a system call that is needed here, or a sandbox forbids it, operations
//! always use the other thread, which is slower.
//!
//! [`open`] may wait after all if a daemon or another machine provides the file system (FUSE, NFS).
//! It must therefore only be used for files on a device for which [`is_local`] has returned true.
//! [`is_local`] itself may wait, and must be called on a thread that may block.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::LazyLock;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::ReadWriteFlags;

use super::file_state::{FileState, Kind, Stamp, WouldBlock, is_missing};

/// True if the system call `openat2` is available with the flag that prevents waiting
/// (`RESOLVE_CACHED`). It is unavailable before Linux 5.12 and in some sandboxes.
static IS_KNOWN: LazyLock<bool> = LazyLock::new(|| {
    rustix::fs::openat2(
        CWD,
        "/",
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::CACHED,
    )
    .is_ok()
});

/// Looks up the kind and the attributes of the file at a path, without opening the file. Follows
/// symbolic links. Returns `None` if there is no such file, and fails if the lookup would have to
/// wait for a disk.
pub(crate) fn look(path: &[u8]) -> Result<Option<(Kind, FileState)>, WouldBlock> {
    let Some(found) = open_known(path, OFlags::PATH)? else { return Ok(None) };
    state(&found).map(Some)
}

/// Opens a file, or returns `None` if there is no such file. Fails if opening would have to wait
/// for a disk.
pub(crate) fn open(path: &[u8]) -> Result<Option<(File, Kind, FileState)>, WouldBlock> {
    // `NONBLOCK` prevents that opening a FIFO blocks the thread.
    let Some(file) = open_known(path, OFlags::NONBLOCK | OFlags::NOCTTY)? else { return Ok(None) };
    let (kind, state) = state(&file)?;
    Ok(Some((file.into(), kind, state)))
}

fn open_known(path: &[u8], flags: OFlags) -> Result<Option<rustix::fd::OwnedFd>, WouldBlock> {
    if !*IS_KNOWN {
        return Err(WouldBlock);
    }
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
        Ok(fd) => Ok(Some(fd)),
        Err(error) if is_missing(error.raw_os_error()) => Ok(None),
        Err(_) => Err(WouldBlock),
    }
}

fn state(fd: &impl AsFd) -> Result<(Kind, FileState), WouldBlock> {
    // What a network file system has cached is sufficient, because files on such a system are not
    // served from here.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found =
        rustix::fs::statx(fd, c"", flags, StatxFlags::BASIC_STATS).map_err(|_| WouldBlock)?;
    if found.stx_mask & StatxFlags::BASIC_STATS.bits() != StatxFlags::BASIC_STATS.bits() {
        return Err(WouldBlock);
    }
    let kind = match FileType::from_raw_mode(u32::from(found.stx_mode)) {
        FileType::RegularFile => Kind::Regular,
        FileType::Directory => Kind::Directory,
        _ => Kind::Other,
    };
    Ok((kind, state_of(&found)))
}

fn state_of(found: &Statx) -> FileState {
    FileState {
        device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        len: found.stx_size,
        modified: Stamp { seconds: found.stx_mtime.tv_sec, nanos: found.stx_mtime.tv_nsec },
        changed: Stamp { seconds: found.stx_ctime.tv_sec, nanos: found.stx_ctime.tv_nsec },
    }
}

/// Fills `buffer` with the bytes of a file from offset `at`. Fails if not all of these bytes are in
/// the page cache.
pub(crate) fn read(file: &File, buffer: &mut [u8], at: u64) -> Result<(), WouldBlock> {
    if buffer.is_empty() {
        return Ok(());
    }
    let len = buffer.len();
    match rustix::io::preadv2(file, &mut [IoSliceMut::new(buffer)], at, ReadWriteFlags::NOWAIT) {
        Ok(read) if read == len => Ok(()),
        Ok(_) | Err(_) => Err(WouldBlock),
    }
}

/// Returns true if a range of a local file is in the page cache, so that sending it does not wait
/// for a disk. Fails if the system does not report whether the range is cached. Linux reports this
/// since version 6.5, and only to the owner of the file and to users who may write to it.
pub(crate) fn is_resident(file: &File, at: u64, len: usize) -> Result<bool, WouldBlock> {
    #[repr(C)]
    struct Part {
        at: u64,
        len: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Counts {
        cached: u64,
        dirty: u64,
        written: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    let part = Part { at, len: len as u64 };
    let mut counts = Counts::default();
    let (part_at, counts_at) = (&raw const part, &raw mut counts);
    // SAFETY: The kernel reads the first struct and writes the second one. Both have the layout
    // that it expects (uapi/linux/mman.h).
    let told = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), part_at, counts_at, 0) };
    if told != 0 {
        return Err(WouldBlock);
    }
    let page = rustix::param::page_size() as u64;
    let last = at + (len as u64).saturating_sub(1);
    // The kernel counts a page as cached as soon as it starts to read it. Because it reads ahead in
    // runs of pages, only the first or the last page of the range can be incomplete.
    Ok(counts.cached > last / page - at / page
        && !is_arriving(file, at)
        && !is_arriving(file, last))
}

/// Returns true if the kernel is still reading the page at offset `at` of a file from disk,
/// although it already counts the page as cached. Returns false on file systems that do not report
/// this, such as tmpfs, whose cached pages are always complete.
fn is_arriving(file: &File, at: u64) -> bool {
    let mut byte = [0];
    let read =
        rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT);
    read == Err(rustix::io::Errno::AGAIN)
}

/// The number of the Linux system call `cachestat`. It is the same on all architectures that Rust's
/// standard library supports, except Alpha and MIPS, where the call fails.
const SYS_CACHESTAT: libc::c_long = 451;

/// Returns true if a file is on a file system that is local to this machine. Looking up and opening
/// files there never waits for another machine or process. This function itself may block.
pub(crate) fn is_local(file: &File) -> bool {
    rustix::fs::fstatfs(file)
        .is_ok_and(|found| u64::try_from(found.f_type).is_ok_and(|kind| LOCAL.contains(&kind)))
}

/// The magic numbers of file systems that are local to a machine: ext2 to ext4, XFS, Btrfs, F2FS,
/// tmpfs, ramfs, and overlayfs, which containers use.
const LOCAL: [u64; 7] =
    [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x0102_1994, 0x8584_58F6, 0x794C_7630];

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_the_disk_is_still_reading_is_not_resident() {
        const LEN: usize = 8 << 20;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![b'x'; LEN]).unwrap();
        file.sync_all().unwrap();
        let readable = |at: u64| read(&file, &mut [0], at).is_ok();
        // tmpfs and overlayfs do not support reading without waiting, and `cachestat` exists since
        // Linux 6.5.
        if !readable(0) || is_resident(&file, 0, LEN) != Ok(true) {
            return;
        }
        for _ in 0..50 {
            // SAFETY: No pointers are involved; both calls are advice on an open file.
            unsafe {
                assert_eq!(
                    libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED),
                    0
                );
                assert_eq!(libc::readahead(file.as_raw_fd(), 0, 64 << 10), 0);
            }
            let told = is_resident(&file, 0, 64 << 10);
            assert!(told == Ok(false) || readable((64 << 10) - 1), "it would have been waited for");
        }
    }
}
