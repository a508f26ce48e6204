//! Files without waiting for a disk: each call answers from what the kernel has in memory, or says that it would have to wait.
//!
//! For the I/O thread. Whoever is told [`WouldBlock`] has a thread do it that may block: so a kernel without one of these calls, or a
//! sandbox that forbids it, costs time and nothing else.
//!
//! A lookup waits for nobody on any file system. Opening a file does where a daemon or another machine has it (FUSE, NFS),
//! whatever the flags: so [`open`] is only for a device that [`is_local`] has been asked about, by a thread that may block.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::LazyLock;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::ReadWriteFlags;

use super::file_state::{FileState, Kind, Stamp, WouldBlock, is_missing};

/// Whether `openat2` and its flag are to be had: not before Linux 5.12, nor in sandboxes that do not know it.
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

/// Looks at what a path leads to, symbolic links followed, without opening it; `None` where there is nothing.
pub(crate) fn look(path: &[u8]) -> Result<Option<(Kind, FileState)>, WouldBlock> {
    let Some(found) = open_known(path, OFlags::PATH)? else { return Ok(None) };
    state(&found).map(Some)
}

/// Opens a file, if it is there; it may be something else by now than when it was looked at.
pub(crate) fn open(path: &[u8]) -> Result<Option<(File, Kind, FileState)>, WouldBlock> {
    // Not blocking keeps a FIFO from holding the thread.
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
    // What a network file system remembers is enough: such a file is not answered here.
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

/// Fills `buffer` from a place in a file, if all of that is in the page cache.
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

/// Whether a part of a local file is in the page cache, so that sending it waits for no disk. Only its owner is told, and
/// whoever may write to it; since Linux 6.5.
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
    // SAFETY: the kernel reads the one and writes the other, both laid out as it has them (uapi/linux/mman.h).
    let told = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), part_at, counts_at, 0) };
    if told != 0 {
        return Err(WouldBlock);
    }
    let page = rustix::param::page_size() as u64;
    let last = at + (len as u64).saturating_sub(1);
    Ok(counts.cached > last / page - at / page
        && !is_arriving(file, at)
        && !is_arriving(file, last))
}

/// Whether a page is still being read. It counts as cached since that was begun; the system reads ahead in runs, so of a part
/// it is the first or the last. A file system that cannot be asked has what is cached (tmpfs).
fn is_arriving(file: &File, at: u64) -> bool {
    let mut byte = [0];
    let read =
        rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT);
    read == Err(rustix::io::Errno::AGAIN)
}

/// The same on every architecture that Rust's standard library is built for, but Alpha and MIPS, where it fails.
const SYS_CACHESTAT: libc::c_long = 451;

/// Whether a file system is this machine's alone, so that looking at its files and opening them wait for nobody else. Asks
/// the file system, and so may block.
pub(crate) fn is_local(file: &File) -> bool {
    rustix::fs::fstatfs(file)
        .is_ok_and(|found| u64::try_from(found.f_type).is_ok_and(|kind| LOCAL.contains(&kind)))
}

/// ext2 to ext4, XFS, Btrfs, F2FS, tmpfs, ramfs, and overlayfs, which containers have their files on.
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
        // tmpfs and overlayfs cannot be read without waiting, and kernels before Linux 6.5 tell of no file.
        if !readable(0) || is_resident(&file, 0, LEN) != Ok(true) {
            return;
        }
        for _ in 0..50 {
            // SAFETY: no pointers; advice on an open file.
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
