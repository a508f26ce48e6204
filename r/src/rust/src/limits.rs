//! The limits as R names and sets them: one table, from which R's `server_limits()` is made as well.

use std::ffi::{CStr, c_char};
use std::time::Duration;

use rookery_exchange::Link;
use rookery_server::Config;

use crate::core::{self, Core};
use crate::{entry, refusal};

/// `enum rk_limit_kind`.
const COUNT: i32 = 0;
const BYTES: i32 = 1;
const SECONDS: i32 = 2;
/// Bytes a second.
const RATE: i32 = 3;
const PERCENT: i32 = 4;

/// A limit: `f64::INFINITY` stands for none, NaN for what the server finds out by itself.
struct Limit {
    name: &'static CStr,
    kind: i32,
    least: f64,
    get: fn(&Config) -> f64,
    set: fn(&mut Config, f64),
}

/// A number that a limit is kept as.
trait Number: Copy {
    fn to_f64(self) -> f64;
    fn of(value: f64) -> Self;
}

macro_rules! numbers {
    ($($kind:ty)*) => { $(#[allow(
        clippy::cast_lossless,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "one for all of them; the numbers are R's, which has no others, and which has checked that they are not negative"
    )]
    impl Number for $kind {
        fn to_f64(self) -> f64 {
            if self == <$kind>::MAX { f64::INFINITY } else { self as f64 }
        }

        // The cast ends at the greatest.
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
        const LIMITS: &[Limit] = &[$(Limit {
            name: $name,
            kind: $kind,
            least: $least,
            get: |config| Number::to_f64(config.$($field).+),
            set: |config, value| config.$($field).+ = Number::of(value),
        }),*];
    };
}

// In the order of `rookery_server::Limits`, behind them what may wait for R. hyper takes no smaller head than that.
limits! {
    c"head_bytes" BYTES 8192.0 limits.head_bytes;
    c"header_lines" COUNT 1.0 limits.header_lines;
    c"stream_head_bytes" BYTES 1024.0 limits.stream_head_bytes;
    c"streams" COUNT 1.0 limits.streams;
    c"body_bytes" BYTES 0.0 limits.body_bytes;
    c"body_memory" BYTES 0.0 limits.body_memory;
    c"disk_reserve" BYTES 0.0 limits.disk_reserve;
    c"disk_share" COUNT 1.0 limits.disk_share;
    c"handshake_time" SECONDS 0.01 limits.handshake_time;
    c"handshakes" COUNT 1.0 limits.handshakes;
    c"head_time" SECONDS 0.01 limits.head_time;
    c"head_rate" RATE 0.0 limits.head_rate;
    c"head_grace" SECONDS 0.01 limits.head_grace;
    c"body_rate" RATE 0.0 limits.body_rate;
    c"reply_rate" RATE 0.0 limits.reply_rate;
    c"idle_time" SECONDS 0.01 limits.idle_time;
    c"request_time" SECONDS 0.01 limits.request_time;
    c"connections" COUNT 1.0 limits.connections;
    c"per_address" COUNT 1.0 limits.per_address;
    c"message_bytes" BYTES 1.0 limits.message_bytes;
    c"socket_queue" BYTES 1.0 limits.socket_queue;
    c"message_rate" RATE 0.0 limits.message_rate;
    c"stall_time" SECONDS 0.01 limits.stall_time;
    c"ping_time" SECONDS 0.01 limits.ping_time;
    c"pong_time" SECONDS 0.01 limits.pong_time;
    c"kept_windows" COUNT 0.0 limits.kept_windows;
    c"close_time" SECONDS 0.01 limits.close_time;
    c"memory" BYTES 1_048_576.0 limits.memory;
    c"share_connections" PERCENT 1.0 limits.shares.connections;
    c"share_requests" PERCENT 1.0 limits.shares.requests;
    c"share_messages" PERCENT 1.0 limits.shares.messages;
    c"share_waiting" PERCENT 1.0 limits.shares.waiting;
    c"share_queues" PERCENT 1.0 limits.shares.queues;
    c"share_replies" PERCENT 1.0 limits.shares.replies;
    c"share_compressors" PERCENT 1.0 limits.shares.compressors;
    c"pool_bytes" BYTES 0.0 limits.pool_bytes;
    c"stop_time" SECONDS 0.0 limits.stop_time;
    c"queue_requests" COUNT 0.0 queue.requests;
    c"queue_messages" COUNT 1.0 queue.messages;
    c"queue_bytes" BYTES 1.0 queue.message_bytes;
    c"stream_queue" BYTES 1.0 queue.stream_bytes;
}

/// What NaN is the default of.
fn config_of(values: &[f64]) -> Config {
    let mut config = Config::default();
    for (limit, value) in LIMITS.iter().zip(values) {
        if !value.is_nan() {
            (limit.set)(&mut config, *value);
        }
    }
    config
}

impl Core {
    /// Whether nothing of the server's is in use, nor waits to be told to R.
    fn is_idle(&self) -> bool {
        self.listeners.is_empty()
            && self.sockets.is_empty()
            && self.streams.is_empty()
            && self.receivers.is_empty()
            && self.is_holding_nothing()
            && self.link.is_empty()
    }

    /// Sets the limits of the server, which is made anew for that: `false` when it is in use with others.
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
        drop(self.replace_server(config_of(values)));
        // What was lent is given back when the thread has ended; nobody asks the link from before again.
        Link::releases(&before).take(&mut self.tokens);
        self.limits = values.to_vec();
        true
    }
}

/// `struct rk_limit`.
#[derive(Debug)]
#[repr(C)]
pub struct RawLimit {
    name: *const c_char,
    kind: i32,
    least: f64,
    value: f64,
}

// As in rookery.h.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<RawLimit>() == 32 && std::mem::offset_of!(RawLimit, least) == 16);

/// The limit with the number `at`, and its default; 0 when there is none such.
///
/// # Safety
/// - `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_limit(at: usize, out: *mut RawLimit) -> i32 {
    entry(0, || {
        let Some(limit) = LIMITS.get(at) else { return 0 };
        let value = (limit.get)(&Config::default());
        let raw = RawLimit { name: limit.name.as_ptr(), kind: limit.kind, least: limit.least, value };
        // SAFETY: the caller's duty.
        unsafe { out.write(raw) };
        1
    })
}

/// Sets all limits, in their order; NaN is a default. Refused while the server is in use with others.
///
/// # Safety
/// - `values..values + count` is readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_limits_set(values: *const f64, count: usize) -> i32 {
    entry(refusal::STALE, || {
        // SAFETY: the caller's duty; an R vector is aligned.
        let values = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(values, count) } };
        if core::with(|core| core.set_limits(values)) { refusal::OK } else { refusal::STALE }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of a struct's fields, as its `Debug` has them.
    fn fields(debug: &str) -> Vec<String> {
        let own = debug.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
        own.filter_map(|line| Some(line.trim().split_once(": ")?.0.to_owned())).collect()
    }

    #[test]
    fn every_limit_of_the_server_can_be_set() {
        let config = Config::default();
        let mut wanted = fields(&format!("{:#?}", config.limits));
        wanted.retain(|name| name != "shares");
        wanted.extend(
            fields(&format!("{:#?}", config.limits.shares)).iter().map(|name| format!("share_{name}")),
        );
        let names: Vec<&str> = LIMITS.iter().map(|limit| limit.name.to_str().unwrap()).collect();
        for name in wanted {
            assert!(names.contains(&name.as_str()), "{name} is missing from the table");
        }
        assert!(fields(&format!("{:#?}", config.queue)).len() == 4, "name those that are new in the table");
    }

    #[test]
    fn what_is_set_is_there_and_nothing_else() {
        let defaults: Vec<f64> = LIMITS.iter().map(|limit| (limit.get)(&Config::default())).collect();
        for (at, limit) in LIMITS.iter().enumerate() {
            let mut values = vec![f64::NAN; LIMITS.len()];
            values[at] = if limit.kind == PERCENT { 33.0 } else { limit.least + 12345.0 };
            let config = config_of(&values);
            for (other, limit) in LIMITS.iter().enumerate() {
                let expected = if other == at { values[at] } else { defaults[other] };
                let set = (limit.get)(&config);
                assert!(set.total_cmp(&expected).is_eq(), "{:?}", limit.name);
            }
        }
    }

    #[test]
    fn without_end_is_the_greatest() {
        let config = config_of(&vec![f64::INFINITY; LIMITS.len()]);
        assert_eq!(config.limits.body_bytes, u64::MAX);
        assert_eq!(config.limits.idle_time, Duration::MAX);
        assert_eq!(config.limits.memory, Some(usize::MAX));
        assert!(LIMITS.iter().all(|limit| (limit.get)(&config) == f64::INFINITY));
    }
}
