//! The limits of the server, which R sets for all servers of the process.

use rookery_exchange::Link;

use crate::core::{self, Core, config_of};
use crate::{entry, result};

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

/// Sets the values of all limits, in the order of the table of settings. NaN stands for the default
/// of a limit. Returns `RK_STALE` if the server is in use with other limits.
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
    use rookery_server::Config;

    use super::*;
    use crate::core::limit_rows;

    #[test]
    fn nan_means_the_default_limit() {
        let values = |name: &str| -> Vec<f64> {
            limit_rows().map(|row| if row.name == name { 10_000.0 } else { f64::NAN }).collect()
        };
        let config = config_of(&values("max_header_size"));
        assert_eq!(config.limits.max_header_size, 10_000);
        let expected = Config { trim: config.trim, ..Config::default() };
        assert_eq!(format!("{:?}", config_of(&values(""))), format!("{expected:?}"));
    }
}
