//! The allocator of the package's Rust half: mimalloc, which leaves R's own allocations alone, and counts.
//!
//! The buffers of a connection that has gone quiet are given up, and lie between what others keep. glibc returns what is free at a
//! heap's end and no hole in it, so 10,000 quiet connections stayed at 11.8 KB each of which 1.1 were theirs; mimalloc keeps one
//! size a page and returns pages: 1.2 KB (`make bench GROUP=memory`, idle-10k).
//!
//! It counts the bytes that live, since starting and stopping servers for ever must leave them where they were, and the
//! allocations, since an exchange makes none; tests say so of both.
//!
//! Cost: two relaxed atomic additions per allocation and one per free, and the paths that run per request and per
//! frame have none of either of ours.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicI64, Ordering};

use mimalloc::MiMalloc;

struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);
static ALLOCATIONS: AtomicI64 = AtomicI64::new(0);

/// No allocation is larger than `isize::MAX`.
fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn add(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    LIVE.fetch_add(signed(bytes), Ordering::Relaxed);
}

fn subtract(bytes: usize) {
    LIVE.fetch_sub(signed(bytes), Ordering::Relaxed);
}

// SAFETY: every call is handed to mimalloc as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's duties are the callee's.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's duties are the callee's.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        subtract(layout.size());
        add(size);
        // SAFETY: the caller's duties are the callee's.
        unsafe { MiMalloc.realloc(start, layout, size) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        subtract(layout.size());
        // SAFETY: the caller's duties are the callee's.
        unsafe { MiMalloc.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Address space that mimalloc has before any other of its own: 1 GiB, as much as it would reserve by itself.
const INITIAL_SPACE: usize = 1 << 30;

/// What it has, and takes at a time, where a process may have only so much address space (`ulimit -v`): that is R's, whose vectors
/// need it. It takes no less.
const LIMITED_SPACE: usize = 32 << 20;

/// mimalloc's slices begin at multiples of it.
const SLICE: usize = 64 << 10;

/// Its option `arena_reserve`, in KiB, which its crate has no name for.
const ARENA_RESERVE: libmimalloc_sys::mi_option_t = 23;

/// Address space to begin with.
fn initial_space() -> usize {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: it lives for the call.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    if limit.rlim_cur == libc::RLIM_INFINITY {
        return INITIAL_SPACE;
    }
    let kib = |bytes: usize| libc::c_long::try_from(bytes >> 10).unwrap_or(libc::c_long::MAX);
    // SAFETY: no pointers are involved.
    unsafe {
        // Should the option have another number one day, that one keeps its value.
        if libmimalloc_sys::mi_option_get(ARENA_RESERVE) == kib(INITIAL_SPACE) {
            libmimalloc_sys::mi_option_set(ARENA_RESERVE, kib(LIMITED_SPACE));
        }
    }
    LIMITED_SPACE
}

/// Gives mimalloc the address space to begin with, in which there are no huge pages: by itself it asks for them, and the system
/// then fills the holes that were given back (10 seconds later 1.4 KB for a quiet connection were 5, and 12 after 20).
/// Called before the first allocation. Where there is no room, under a limit on address space, it goes on with its own.
pub(crate) fn reserve() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let size = initial_space();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new memory, which nobody may touch yet.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), size + SLICE, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return;
        }
        let initial_space = start.wrapping_byte_add(start.align_offset(SLICE));
        let mut arena = ptr::null_mut();
        // SAFETY: the memory is ours, is never unmapped, and is mimalloc's alone from now on.
        let is_taken = unsafe {
            // A system without huge pages does not know the advice.
            #[cfg(target_os = "linux")]
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
            // SAFETY: nobody has it.
            unsafe { libc::munmap(start, size + SLICE) };
        }
    });
}

/// [`rookery_server::Config::reclaim`].
pub(crate) fn reclaim(all: bool) {
    // SAFETY: it may be called at any time, and looks after the calling thread's memory and what no thread has.
    unsafe { libmimalloc_sys::mi_collect(all) }
}

/// Bytes allocated and not freed.
#[unsafe(no_mangle)]
pub extern "C" fn rk_live_bytes() -> i64 {
    LIVE.load(Ordering::Relaxed)
}

/// Allocations so far, and changes of an allocation's size.
#[unsafe(no_mangle)]
pub extern "C" fn rk_allocations() -> i64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}
