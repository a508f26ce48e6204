//! Returns memory to the operating system. On Linux, the allocator is mimalloc in both programs
//! that contain this crate: `main.rs`, and the shared library of the R package.

/// Returns unused memory to the operating system: all of it if `all` is true, otherwise only what
/// can be returned at little cost. The server calls this function as
/// [`rookery_server::Config::trim`].
pub(crate) fn trim(all: bool) {
    // SAFETY: `mi_collect` may be called at any time. It only frees memory that no thread uses.
    unsafe { libmimalloc_sys::mi_collect(all) }
}
