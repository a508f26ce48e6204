//! Returns memory to the operating system. On Linux, the allocator is mimalloc in both programs
//! that contain this crate: `main.rs`, and the shared library of the R package.

/// Returns unused memory to the operating system: all of it if `all` is true, otherwise only what
/// can be returned at little cost. The server calls this function as
/// [`rookery_server::Config::trim`].
pub(crate) fn trim(all: bool) {
    // SAFETY: `mi_collect` may be called at any time. It only frees memory that no thread uses.
    unsafe { libmimalloc_sys::mi_collect(all) }
}

/// The number by which mimalloc identifies its option `purge_delay`: the milliseconds for which it
/// keeps free pages before it returns them to the operating system. The crate libmimalloc-sys does
/// not define this number.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// The default of [`PURGE_DELAY`] in mimalloc 3.
const DEFAULT_PURGE_DELAY: libc::c_long = 1000;

/// The milliseconds for which free pages are kept in this process. Clients that send as fast as
/// they can, and whose requests are refused, free and allocate hundreds of megabytes per second. In
/// a second, half of the memory budget would be kept beside what the budget counts, because memory
/// of one size class is not reused for another.
const OWN_PURGE_DELAY: libc::c_long = 100;

/// Makes mimalloc return free pages to the operating system soon, unless the environment variable
/// `MIMALLOC_PURGE_DELAY` sets another time.
pub fn shorten_purge_delay() {
    // SAFETY: no pointers are involved.
    unsafe {
        // The comparison also protects another option, in case that a later version has other
        // numbers.
        if libmimalloc_sys::mi_option_get(PURGE_DELAY) == DEFAULT_PURGE_DELAY {
            libmimalloc_sys::mi_option_set(PURGE_DELAY, OWN_PURGE_DELAY);
        }
    }
}
