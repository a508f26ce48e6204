//! Configures the memory allocator of the program `rookery` so that it returns the memory of idle
//! connections to the operating system. `r/src/rust/src/allocator.rs` explains why.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Turns off huge pages of memory in this process, because the kernel could allocate memory again
/// that the process has returned, in order to complete a huge page. A process that is about to run
/// another program must not call this function, because that program would inherit the setting.
#[cfg(target_os = "linux")]
extern "C" fn without_huge_pages() {
    // A kernel that does not know this setting has no huge pages to turn off. SAFETY: the call
    // takes no pointers.
    unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
    }
}

/// Makes the C runtime turn off huge pages before `main`. Memory that is allocated before they are
/// turned off would occupy two huge pages (4 MiB) for the life of the process.
// SAFETY: the section contains pointers to functions of this type, which the C runtime calls before
// `main`. The function does not use Rust's runtime, which is not initialised yet.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array.00099")]
static BEFORE_MAIN: extern "C" fn() = without_huge_pages;

/// Returns unused memory to the operating system: all of it if `all` is true, otherwise only what
/// can be returned at little cost. The server calls this function as
/// [`rookery_server::Config::trim`].
pub(crate) fn trim(all: bool) {
    // SAFETY: `mi_collect` may be called at any time. It only frees memory that no thread uses.
    unsafe { libmimalloc_sys::mi_collect(all) }
}
