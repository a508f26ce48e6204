//! What processes use, from the system calls of Windows.

use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::time::Duration;

use windows_sys::Win32::Foundation::{FILETIME, HANDLE};
use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, GetProcessHandleCount, GetProcessTimes, GetThreadTimes, OpenProcess,
    OpenThread, PROCESS_QUERY_LIMITED_INFORMATION, THREAD_QUERY_LIMITED_INFORMATION,
};

use super::Pid;

/// Returns how much memory a process uses, in bytes: memory that it shares with no other process,
/// including what is in the paging file. Returns `None` if the process has ended or belongs to
/// another user.
pub fn own_memory(pid: Pid) -> Option<u64> {
    let process = process(pid)?;
    let size = size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
    let mut counters = PROCESS_MEMORY_COUNTERS { cb: size, ..PROCESS_MEMORY_COUNTERS::default() };
    // SAFETY: the handle is open, and `counters` is valid for writes of `size` bytes.
    let is_known =
        unsafe { K32GetProcessMemoryInfo(process.as_raw_handle(), &raw mut counters, size) };
    (is_known != 0).then_some(counters.PagefileUsage as u64)
}

/// Returns the processor time of a process.
pub fn processor_time(pid: Pid) -> Option<Duration> {
    time(&process(pid)?, GetProcessTimes)
}

/// Returns the processor time of one thread. Its process need not be named.
pub fn thread_time(_: Pid, thread: u32) -> Option<Duration> {
    // SAFETY: the call passes no memory.
    let thread = unsafe { OpenThread(THREAD_QUERY_LIMITED_INFORMATION, 0, thread) };
    time(&owned(thread)?, GetThreadTimes)
}

/// Returns the number of open handles of this process.
pub(crate) fn open_descriptors() -> Option<u64> {
    let mut count = 0;
    // SAFETY: the handle of this process is always valid, and `count` is valid for writes.
    let is_known = unsafe { GetProcessHandleCount(GetCurrentProcess(), &raw mut count) };
    (is_known != 0).then_some(u64::from(count))
}

fn process(pid: Pid) -> Option<OwnedHandle> {
    let pid = u32::try_from(pid).ok()?;
    // SAFETY: the call passes no memory.
    owned(unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, pid) })
}

fn owned(handle: HANDLE) -> Option<OwnedHandle> {
    // SAFETY: the caller has just created the handle, so nothing else owns it.
    (!handle.is_null()).then(|| unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// The system calls that return the times of a process or a thread: of its creation and its end,
/// and its processor time in the kernel and outside.
type GetTimes = unsafe extern "system" fn(
    HANDLE,
    *mut FILETIME,
    *mut FILETIME,
    *mut FILETIME,
    *mut FILETIME,
) -> i32;

fn time(of: &OwnedHandle, get_times: GetTimes) -> Option<Duration> {
    let [mut created, mut ended, mut kernel, mut user] = [FILETIME::default(); 4];
    // SAFETY: the handle is open, and all times are valid for writes.
    let is_known = unsafe {
        get_times(
            of.as_raw_handle(),
            &raw mut created,
            &raw mut ended,
            &raw mut kernel,
            &raw mut user,
        )
    };
    let ticks =
        |time: FILETIME| u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
    // A tick has 100 ns.
    (is_known != 0).then(|| Duration::from_nanos((ticks(kernel) + ticks(user)) * 100))
}

#[cfg(test)]
mod tests {
    use super::super::own_pid;
    use super::*;

    #[test]
    fn this_process_uses_memory_and_time() {
        assert!(own_memory(own_pid()).is_some_and(|bytes| bytes > 100_000));
        let before = processor_time(own_pid()).unwrap();
        let started = std::time::Instant::now();
        while started.elapsed() < Duration::from_millis(300) {
            std::hint::spin_loop();
        }
        assert!(processor_time(own_pid()).unwrap() > before);
        let thread = rookery_system::signals::thread_id();
        assert!(thread_time(own_pid(), thread).unwrap() > Duration::ZERO);
    }

    #[test]
    fn this_process_has_handles() {
        assert!(open_descriptors().is_some_and(|count| count > 0));
    }

    #[test]
    fn nothing_is_known_about_a_process_that_does_not_exist() {
        assert_eq!((own_memory(-1), processor_time(3)), (None, None));
    }
}
