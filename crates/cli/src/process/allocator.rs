//! The program's allocator. It returns the memory of idle connections to the system; `memory.rs` of
//! the R package explains why.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Turns huge pages off in this process, because the kernel would fill returned memory again to
/// make huge pages. A process that becomes another program must not do this, because the setting is
/// inherited.
#[cfg(target_os = "linux")]
extern "C" fn without_huge_pages() {
    // A kernel that does not know this setting has no huge pages to turn off. SAFETY: the call
    // takes no pointers.
    unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
    }
}

/// Calls the function before `main`, because the memory allocated until then would otherwise take
/// two huge pages (4 MiB) for the life of the process.
// SAFETY: the section contains pointers to functions of this type, which the C runtime calls before
// `main`. The function does not use Rust's runtime, which is not initialised yet.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array.00099")]
static BEFORE_MAIN: extern "C" fn() = without_huge_pages;

/// Returns unused memory to the system: see [`rookery_server::Config::trim`].
pub(crate) fn trim(all: bool) {
    // SAFETY: `mi_collect` may be called at any time. It only frees memory that no thread uses.
    unsafe { libmimalloc_sys::mi_collect(all) }
}
