//! The address space of mimalloc: its reservation, and its return to the system.

use std::ptr;
use std::sync::Once;

/// The size in bytes of the address space that is first reserved for mimalloc: 1 GiB, as much as
/// mimalloc would reserve by itself.
const INITIAL_SPACE: usize = 1 << 30;

/// The size in bytes of each piece of address space that mimalloc reserves if the address space of
/// the process is limited (`ulimit -v`). It is as small as mimalloc allows, because R needs most of
/// the limited address space for its vectors.
const LIMITED_SPACE: usize = 32 << 20;

/// The alignment in bytes of the memory blocks (slices) in which mimalloc manages address space.
const SLICE: usize = 64 << 10;

/// The number by which mimalloc identifies its option `arena_reserve`, whose value is in KiB. The
/// crate libmimalloc-sys does not define this number.
const ARENA_RESERVE: libmimalloc_sys::mi_option_t = 23;

/// Returns the size in bytes of the address space that is first reserved for mimalloc.
fn initial_space() -> usize {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` lives for the call.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    if limit.rlim_cur == libc::RLIM_INFINITY {
        return INITIAL_SPACE;
    }
    let kib = |bytes: usize| libc::c_long::try_from(bytes >> 10).unwrap_or(libc::c_long::MAX);
    // SAFETY: no pointers are involved.
    unsafe {
        // The comparison protects another option, in case that a later version has other numbers.
        if libmimalloc_sys::mi_option_get(ARENA_RESERVE) == kib(INITIAL_SPACE) {
            libmimalloc_sys::mi_option_set(ARENA_RESERVE, kib(LIMITED_SPACE));
        }
    }
    LIMITED_SPACE
}

/// Reserves the first address space for mimalloc, turns huge pages off for it, and makes mimalloc
/// return free pages soon. Must be called before the first allocation. If the reservation fails,
/// mimalloc reserves address space itself.
///
/// With huge pages, the system would soon allocate again the memory that mimalloc has returned, and
/// an idle connection would take 12 KB instead of 1.4 KB.
pub(super) fn reserve() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        rookery_cli::shorten_purge_delay();
        let size = initial_space();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the mapping is new, and nothing refers to it.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), size + SLICE, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return;
        }
        let initial_space = start.wrapping_byte_add(start.align_offset(SLICE));
        let mut arena = ptr::null_mut();
        // SAFETY: the memory is ours, is never unmapped, and only mimalloc uses it from now on.
        let is_taken = unsafe {
            // Fails harmlessly on a system without huge pages.
            libc::madvise(initial_space, size, libc::MADV_NOHUGEPAGE);
            libmimalloc_sys::mi_manage_os_memory_ex(
                initial_space,
                size,
                false,
                false,
                true,
                -1,
                false,
                &raw mut arena,
            )
        };
        if !is_taken {
            // SAFETY: nothing refers to the mapping.
            unsafe { libc::munmap(start, size + SLICE) };
        }
    });
}

/// Returns unused memory to the operating system: all of it if `all` is true, otherwise only what
/// can be returned at little cost. The server calls this function as
/// [`rookery_server::Config::trim`].
pub(super) fn trim(all: bool) {
    // SAFETY: may be called at any time. It uses only memory of the calling thread, and memory that
    // no thread owns.
    unsafe { libmimalloc_sys::mi_collect(all) }
}
