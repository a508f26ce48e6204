//! The program's allocator, which gives back what connections that have gone quiet gave up: the reason is in the R package's
//! `memory.rs`.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Keeps huge pages out of this process: the system would fill the holes that were given back. Whoever becomes another program
/// leaves that alone, since it is inherited.
#[cfg(target_os = "linux")]
extern "C" fn without_huge_pages() {
    // A system that does not know it has none to keep out.
    // SAFETY: no pointers are involved.
    unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
    }
}

/// Has that be done before `main`: what is allocated until then would take two huge pages, 4 MiB, which stay.
// SAFETY: the section has pointers to functions of this type, which the system calls before `main`. The function
// needs nothing of Rust's runtime, which is not there yet.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array.00099")]
static BEFORE_MAIN: extern "C" fn() = without_huge_pages;

/// [`rookery_server::Config::trim`].
pub(crate) fn reclaim(all: bool) {
    // SAFETY: it may be called at any time, and looks after the calling thread's memory and what no thread has.
    unsafe { libmimalloc_sys::mi_collect(all) }
}
