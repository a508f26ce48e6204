//! The program `rookery` as a single file, for users who install it without the R package. Chooses
//! the memory allocator, and calls [`rookery_cli::run`].
//!
//! On Linux, the allocator is mimalloc, because it returns the memory of idle connections to the
//! operating system. `r/src/rust/src/allocator.rs` explains why.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
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
/// turned off would occupy two huge pages (4 MiB) for the life of the process. The launcher in the
/// R package (`r/src/launcher.c`) does the same.
// SAFETY: the section contains pointers to functions of this type, which the C runtime calls before
// `main`. The function does not use Rust's runtime, which is not initialised yet.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array.00099")]
static BEFORE_MAIN: extern "C" fn() = without_huge_pages;

fn main() -> ExitCode {
    ExitCode::from(rookery_cli::run(std::env::args_os()))
}
