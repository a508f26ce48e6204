//! Functions with which R reads and sets the server's limits. The limits are defined in the table
//! of [`NamedLimit`], from which R's function `server_limits()` is also generated.

use std::ffi::c_char;

use rookery_exchange::Link;
use rookery_server::{Config, LimitKind, NamedLimit};

use crate::core::{self, Core, config_of};
use crate::{entry, result};

/// Returns the kind of a limit, such as bytes or seconds, as a value of `enum rk_limit_kind`.
fn kind_of(limit: &NamedLimit) -> i32 {
    match limit.kind() {
        LimitKind::Count => 0,
        LimitKind::Bytes => 1,
        LimitKind::Seconds => 2,
    }
}

impl Core {
    /// Returns true if the server is not in use, so that it can be replaced: it has no listeners,
    /// and no events wait for R.
    fn is_idle(&self) -> bool {
        self.listeners.is_empty()
            && self.sockets.is_empty()
            && self.streams.is_empty()
            && self.receivers.is_empty()
            && self.holds_no_exchange()
            && self.link.is_empty()
    }

    /// Sets the limits by replacing the server. Returns `false` if that is not possible, because
    /// the server is in use and has other limits.
    fn set_limits(&mut self, values: &[f64]) -> bool {
        let is_same = |(a, b): (&f64, &f64)| a.total_cmp(b).is_eq();
        if self.limits.len() == values.len() && self.limits.iter().zip(values).all(is_same) {
            return true;
        }
        if self.limits.is_empty() && values.iter().all(|value| value.is_nan()) {
            return true;
        }
        if !self.is_idle() {
            return false;
        }
        let before = self.link.clone();
        let config = config_of(values);
        let replaced = self.replace_server(&config);
        self.observe_server(&config);
        drop(replaced);
        // The previous I/O thread has ended by now; only one thread at a time may read from the
        // supervisor.
        self.attach_supervisor();
        // The I/O thread has ended and returned all lent memory, and the previous link is not read
        // again.
        Link::releases(&before).take(&mut self.tokens);
        self.limits = values.to_vec();
        true
    }
}

/// The description of a limit as C reads it: `struct rk_limit`.
#[derive(Debug)]
#[repr(C)]
pub struct RawLimit {
    name: *const c_char,
    kind: i32,
    least: f64,
    value: f64,
}

// The layout is the same as in rookery.h.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<RawLimit>() == 32 && std::mem::offset_of!(RawLimit, least) == 16);

/// Writes the name, kind, minimum and default of the limit with index `at` to `out`. Returns 0 if
/// there is no such limit.
///
/// # Safety
/// - `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_limit(at: usize, out: *mut RawLimit) -> i32 {
    entry(0, || {
        let Some(limit) = NamedLimit::all().get(at) else { return 0 };
        let value = limit.get(&Config::default());
        let raw = RawLimit {
            name: limit.name().as_ptr(),
            kind: kind_of(limit),
            least: limit.least(),
            value,
        };
        // SAFETY: guaranteed by the caller, see `# Safety`.
        unsafe { out.write(raw) };
        1
    })
}

/// Sets the values of all limits, in the order in which `rk_limit` returns the limits. NaN stands
/// for the default of a limit. Returns `RK_STALE` if the server is in use with other limits.
///
/// # Safety
/// - `values..values + count` is readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_limits_set(values: *const f64, count: usize) -> i32 {
    entry(result::STALE, || {
        let values = if count == 0 {
            &[]
        } else {
            // SAFETY: guaranteed by the caller; the elements of an R vector are aligned.
            unsafe { std::slice::from_raw_parts(values, count) }
        };
        if core::with(|core| core.set_limits(values)) { result::OK } else { result::STALE }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_means_the_default_limit() {
        let mut values = vec![f64::NAN; NamedLimit::all().len()];
        values[0] = 10_000.0;
        let config = config_of(&values);
        assert_eq!(config.limits.max_header_size, 10_000);
        for limit in &NamedLimit::all()[1..] {
            assert_eq!(
                limit.get(&config).to_bits(),
                limit.get(&Config::default()).to_bits(),
                "{limit:?}"
            );
        }
    }
}
