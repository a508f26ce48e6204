//! A table of the limits that users can set by name, for the R package and the command line.

use std::ffi::CStr;
use std::time::Duration;

use super::Config;

/// A limit of [`Config`] that programs read and set by its name. Its value is an `f64`. Infinity
/// means no limit, and NaN means that the server chooses the value.
pub struct NamedLimit {
    name: &'static CStr,
    kind: LimitKind,
    least: f64,
    get: fn(&Config) -> f64,
    set: fn(&mut Config, f64),
}

/// The unit and range of a limit's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    /// A limit that is a whole number, or infinity.
    Count,
    /// A limit in bytes, or infinity.
    Bytes,
    /// A limit in seconds, or infinity.
    Seconds,
}

impl NamedLimit {
    /// Returns all limits that can be set by name. The other fields of [`Limits`](super::Limits)
    /// and of the queue are constants for users: the defaults protect the server, and no user can
    /// know better values.
    pub fn all() -> &'static [NamedLimit] {
        NAMED
    }

    /// Returns the name of the limit, which is also the name of its argument in R's
    /// `server_limits()`.
    pub fn name(&self) -> &'static CStr {
        self.name
    }

    /// Returns the unit and range of the limit's value.
    pub fn kind(&self) -> LimitKind {
        self.kind
    }

    /// Returns the smallest value of the limit with which a server can work.
    pub fn least(&self) -> f64 {
        self.least
    }

    /// Returns the value of this limit in `config`.
    pub fn get(&self, config: &Config) -> f64 {
        (self.get)(config)
    }

    /// Sets this limit in `config`. A value that is too large for the field's type becomes the
    /// largest value of the type.
    pub fn set(&self, config: &mut Config, value: f64) {
        (self.set)(config, value);
    }

    /// Returns true if `value` is valid for this limit.
    pub fn takes(&self, value: f64) -> bool {
        let is_whole = value.fract() == 0.0;
        value >= self.least
            && match self.kind {
                LimitKind::Count => value.is_infinite() || is_whole,
                LimitKind::Bytes | LimitKind::Seconds => true,
            }
    }
}

impl std::fmt::Debug for NamedLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NamedLimit")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// A number type that stores a limit in a field of the configuration.
trait Number: Copy {
    fn to_f64(self) -> f64;
    fn of(value: f64) -> Self;
}

macro_rules! numbers {
    ($($kind:ty)*) => { $(impl Number for $kind {
        #[allow(clippy::cast_precision_loss, clippy::cast_lossless)] // as R has numbers
        fn to_f64(self) -> f64 {
            if self == <$kind>::MAX { f64::INFINITY } else { self as f64 }
        }

        // A value out of range becomes 0 or the maximum.
        #[allow(clippy::cast_sign_loss)]
        fn of(value: f64) -> $kind {
            value as $kind
        }
    })* };
}

numbers! { usize u64 }

impl Number for Duration {
    fn to_f64(self) -> f64 {
        if self == Duration::MAX { f64::INFINITY } else { self.as_secs_f64() }
    }

    fn of(value: f64) -> Duration {
        Duration::try_from_secs_f64(value).unwrap_or(Duration::MAX)
    }
}

impl Number for Option<usize> {
    fn to_f64(self) -> f64 {
        self.map_or(f64::NAN, usize::to_f64)
    }

    fn of(value: f64) -> Option<usize> {
        Some(usize::of(value))
    }
}

macro_rules! limits {
    ($($name:literal $kind:ident $least:literal $($field:ident).+;)*) => {
        const NAMED: &[NamedLimit] = &[$(NamedLimit {
            name: $name,
            kind: LimitKind::$kind,
            least: $least,
            get: |config| Number::to_f64(config.$($field).+),
            set: |config, value| config.$($field).+ = Number::of(value),
        }),*];
    };
}

// hyper does not accept a smaller `head_bytes` than 8192.
limits! {
    c"max_header_size" Bytes 8192.0 limits.max_header_size;
    c"max_body_size" Bytes 0.0 limits.max_body_size;
    c"header_timeout" Seconds 0.01 limits.header_timeout;
    c"idle_timeout" Seconds 0.01 limits.idle_timeout;
    c"request_timeout" Seconds 0.01 limits.request_timeout;
    c"max_connections" Count 1.0 limits.max_connections;
    c"max_connections_per_ip" Count 1.0 limits.max_connections_per_ip;
    c"ws_max_message_size" Bytes 1.0 limits.ws_max_message_size;
    c"ws_ping_interval" Seconds 0.01 limits.ws_ping_interval;
    c"max_client_memory" Bytes 1_048_576.0 limits.max_client_memory;
    c"max_queued_requests" Count 0.0 queue.max_queued_requests;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_there_and_nothing_else() {
        let values =
            |config: &Config| NAMED.iter().map(|limit| limit.get(config)).collect::<Vec<f64>>();
        for (at, limit) in NAMED.iter().enumerate() {
            let value = limit.least + 12345.0;
            assert!(
                limit.takes(value) && !limit.takes(limit.least - 1.0) && !limit.takes(f64::NAN),
                "{limit:?}"
            );
            let mut expected = values(&Config::default());
            expected[at] = value;
            let mut config = Config::default();
            limit.set(&mut config, value);
            for (set, expected) in values(&config).into_iter().zip(expected) {
                let is_same = (set - expected).abs() < 1e-6 || set.to_bits() == expected.to_bits();
                assert!(is_same, "{limit:?}: {set}");
            }
        }
    }

    #[test]
    fn without_end_is_the_greatest() {
        let mut config = Config::default();
        for limit in NAMED {
            limit.set(&mut config, f64::INFINITY);
            assert!(limit.get(&config).is_infinite(), "{limit:?}");
            assert!(limit.takes(f64::INFINITY), "{limit:?}");
        }
        assert_eq!(
            (config.limits.max_body_size, config.limits.max_client_memory),
            (u64::MAX, Some(usize::MAX))
        );
        assert_eq!(config.limits.idle_timeout, Duration::MAX);
    }

    #[test]
    fn halves_are_no_counts() {
        for limit in NAMED {
            let is_whole = !matches!(limit.kind, LimitKind::Bytes | LimitKind::Seconds);
            assert_eq!(limit.takes(limit.least + 1.5), !is_whole, "{limit:?}");
        }
    }
}
