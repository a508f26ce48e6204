//! A table of all limits by name, for programs that let users set limits: the R package and the
//! command line.

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
    /// A rate in bytes per second.
    Rate,
    /// A limit in percent, from 1 to 100.
    Percent,
}

impl NamedLimit {
    /// Returns all limits that can be set by name. The fields of [`Limits`](super::Limits) come
    /// first, in their order, followed by the limits on the data that is queued for the
    /// application.
    pub fn all() -> &'static [NamedLimit] {
        NAMED
    }

    /// Returns the name of the limit, which is also the name of its argument in R's
    /// `server_limits()`. The name of a limit in [`Shares`](super::Shares) is `share_` followed by
    /// the name of the field.
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
                LimitKind::Rate => value.is_finite() && is_whole,
                LimitKind::Percent => value <= 100.0 && is_whole,
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

numbers! { usize u64 u32 u8 }

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
    c"max_headers" Count 1.0 limits.max_headers;
    c"http2_max_header_list_size" Bytes 1024.0 limits.http2_max_header_list_size;
    c"http2_max_concurrent_streams" Count 1.0 limits.http2_max_concurrent_streams;
    c"max_body_size" Bytes 0.0 limits.max_body_size;
    c"body_buffer_size" Bytes 0.0 limits.body_buffer_size;
    c"disk_reserve" Bytes 0.0 limits.disk_reserve;
    c"disk_share" Count 1.0 limits.disk_share;
    c"tls_handshake_timeout" Seconds 0.01 limits.tls_handshake_timeout;
    c"tls_max_handshakes" Count 1.0 limits.tls_max_handshakes;
    c"header_timeout" Seconds 0.01 limits.header_timeout;
    c"min_header_rate" Rate 0.0 limits.min_header_rate;
    c"header_grace" Seconds 0.01 limits.header_grace;
    c"min_body_rate" Rate 0.0 limits.min_body_rate;
    c"min_response_rate" Rate 0.0 limits.min_response_rate;
    c"idle_timeout" Seconds 0.01 limits.idle_timeout;
    c"request_timeout" Seconds 0.01 limits.request_timeout;
    c"max_connections" Count 1.0 limits.max_connections;
    c"max_connections_per_ip" Count 1.0 limits.max_connections_per_ip;
    c"ws_max_message_size" Bytes 1.0 limits.ws_max_message_size;
    c"ws_max_send_queue_size" Bytes 1.0 limits.ws_max_send_queue_size;
    c"ws_min_rate" Rate 0.0 limits.ws_min_rate;
    c"ws_stall_timeout" Seconds 0.01 limits.ws_stall_timeout;
    c"ws_ping_interval" Seconds 0.01 limits.ws_ping_interval;
    c"ws_ping_timeout" Seconds 0.01 limits.ws_ping_timeout;
    c"kept_windows" Count 0.0 limits.kept_windows;
    c"ws_close_timeout" Seconds 0.01 limits.ws_close_timeout;
    c"max_client_memory" Bytes 1_048_576.0 limits.max_client_memory;
    c"share_connections" Percent 1.0 limits.shares.connections;
    c"share_requests" Percent 1.0 limits.shares.requests;
    c"share_messages" Percent 1.0 limits.shares.messages;
    c"share_waiting" Percent 1.0 limits.shares.waiting;
    c"share_queues" Percent 1.0 limits.shares.queues;
    c"share_replies" Percent 1.0 limits.shares.replies;
    c"share_compressors" Percent 1.0 limits.shares.compressors;
    c"pool_bytes" Bytes 0.0 limits.pool_bytes;
    c"stop_timeout" Seconds 0.0 limits.stop_timeout;
    c"max_queued_requests" Count 0.0 queue.max_queued_requests;
    c"ws_max_receive_queue_messages" Count 1.0 queue.ws_max_receive_queue_messages;
    c"ws_max_receive_queue_size" Bytes 1.0 queue.ws_max_receive_queue_size;
    c"max_stream_queue_size" Bytes 1.0 queue.max_stream_queue_size;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(limit: &NamedLimit) -> &'static str {
        limit.name().to_str().unwrap()
    }

    /// Returns the names of a struct's fields, taken from its `Debug` output.
    fn fields(debug: &str) -> Vec<String> {
        let own =
            debug.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
        own.filter_map(|line| Some(line.trim().split_once(": ")?.0.to_owned())).collect()
    }

    #[test]
    fn every_limit_has_a_name() {
        let config = Config::default();
        let mut wanted = fields(&format!("{:#?}", config.limits));
        // Users cannot choose when a server with probes evicts clients.
        wanted.retain(|name| name != "shares" && name != "evicts_at_once");
        wanted.extend(
            fields(&format!("{:#?}", config.limits.shares))
                .iter()
                .map(|name| format!("share_{name}")),
        );
        assert_eq!(
            fields(&format!("{:#?}", config.queue)).len(),
            4,
            "name those that are new in the table"
        );
        wanted.extend(
            [
                "max_queued_requests",
                "ws_max_receive_queue_messages",
                "ws_max_receive_queue_size",
                "max_stream_queue_size",
            ]
            .map(str::to_owned),
        );
        wanted.sort();
        let mut names: Vec<&str> = NAMED.iter().map(name).collect();
        names.sort_unstable();
        assert_eq!(names, wanted);
    }

    #[test]
    fn what_is_set_is_there_and_nothing_else() {
        let values =
            |config: &Config| NAMED.iter().map(|limit| limit.get(config)).collect::<Vec<f64>>();
        for (at, limit) in NAMED.iter().enumerate() {
            let value = if limit.kind == LimitKind::Percent { 33.0 } else { limit.least + 12345.0 };
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
            let is_number = matches!(limit.kind, LimitKind::Rate | LimitKind::Percent);
            assert_ne!(limit.takes(f64::INFINITY), is_number, "{limit:?}");
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
