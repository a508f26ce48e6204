//! What processes use, from the system calls of macOS.

use std::time::Duration;

use super::Pid;

/// Returns how much memory a process uses, in bytes: its "footprint", which the system's activity
/// monitor shows as well. Returns `None` if the process has ended or belongs to another user.
pub fn own_memory(pid: Pid) -> Option<u64> {
    usage(pid).map(|usage| usage.ri_phys_footprint)
}

/// Returns the processor time of a process.
pub fn processor_time(pid: Pid) -> Option<Duration> {
    let usage = usage(pid)?;
    // The times are in units that depend on the machine. The functions of `libc` are marked as
    // deprecated in favour of another crate.
    #[allow(deprecated)]
    let (numerator, denominator) = {
        let mut unit = libc::mach_timebase_info { numer: 0, denom: 0 };
        // SAFETY: `unit` is valid for writes. If the call fails, the denominator stays 0.
        unsafe { libc::mach_timebase_info(&raw mut unit) };
        (u128::from(unit.numer), u128::from(unit.denom))
    };
    let units = u128::from(usage.ri_user_time) + u128::from(usage.ri_system_time);
    let nanos = (units * numerator).checked_div(denominator)?;
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}

/// Returns `None`, because only a process itself can read the times of its threads.
pub fn thread_time(_: Pid, _: u32) -> Option<Duration> {
    None
}

/// Returns the number of open descriptors of this process.
pub(crate) fn open_descriptors() -> Option<u64> {
    // One of the entries is the descriptor of the folder that is being read.
    Some((std::fs::read_dir("/dev/fd").ok()?.count() as u64).saturating_sub(1))
}

fn usage(pid: Pid) -> Option<libc::rusage_info_v2> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage_info_v2>::zeroed();
    // SAFETY: `usage` has the size that this version of the structure has.
    let result =
        unsafe { libc::proc_pid_rusage(pid, libc::RUSAGE_INFO_V2, usage.as_mut_ptr().cast()) };
    // SAFETY: the call has succeeded, and zeros are a valid value of the structure in any case.
    (result == 0).then(|| unsafe { usage.assume_init() })
}
