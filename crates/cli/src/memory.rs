//! The program's allocator, which gives back what connections that have gone quiet gave up: the reason is in the R package's
//! `memory.rs`.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Keeps huge pages out of this process: the system would fill the holes that were given back. Whoever becomes another program
/// leaves that alone, since it is inherited.
pub(crate) fn without_huge_pages() {
    // A system that does not know it has none to keep out.
    #[cfg(target_os = "linux")]
    // SAFETY: no pointers are involved.
    unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
    }
}

/// [`rookery_server::Config::reclaim`].
pub(crate) fn reclaim(all: bool) {
    // SAFETY: it may be called at any time, and looks after the calling thread's memory and what no thread has.
    unsafe { libmimalloc_sys::mi_collect(all) }
}
