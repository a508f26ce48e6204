//! What `--workers`, and the options that go with it, ask for.

use std::time::Duration;

use crate::failure::Failure;
use crate::limits::{bytes, time};
use crate::settings::{list, number};

/// An R process has more than that when it has done nothing yet, and would be replaced for ever.
const LEAST_MEMORY: u64 = 32 << 20;

/// Workers past that are a mistake: each is an R, with its memory.
const MOST: u64 = 1000;

/// How several R processes serve.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "choices that have nothing to do with each other")]
pub(crate) struct Workers {
    pub(crate) count: u32,
    /// How many more wait, ready, to take the place of one that ends.
    pub(crate) spares: u32,
    /// How many more there may be while one takes another's place, which has to end first where that is 0.
    pub(crate) surge: u32,
    /// What a new one is asked for before it serves.
    pub(crate) warmup: Vec<String>,
    pub(crate) max_sessions: Option<u64>,
    /// How many requests one may have in hand whose R waits for something else.
    pub(crate) max_in_flight: usize,
    pub(crate) max_requests: Option<u64>,
    pub(crate) max_age: Option<Duration>,
    pub(crate) max_memory: MaxMemory,
    /// How long a request waits for a worker.
    pub(crate) queue_timeout: Duration,
    pub(crate) request_timeout: Option<Duration>,
    pub(crate) kill_stuck: Option<Duration>,
    pub(crate) start_timeout: Duration,
    /// How often a failed start is retried while no worker has ever been ready.
    pub(crate) start_retries: u32,
    pub(crate) drain: Duration,
    /// For WebSockets; none: the same.
    pub(crate) drain_sessions: Option<Duration>,
    pub(crate) sticky: Sticky,
    /// The part of the cookie's name that identifies this server; `None` to derive it from the
    /// app's path and address.
    pub(crate) name: Option<String>,
    /// Whether they are replaced when a file of the app has changed.
    pub(crate) reload: bool,
    /// Whether the program ends when all of them end again and again.
    pub(crate) fail_fast: bool,
    /// So many have to be ready for the whole to be.
    pub(crate) min_ready: u32,
    /// What a probe of that is answered with while it ends.
    pub(crate) drain_status: u16,
    /// Whether another begins once more with a GET whose worker has ended.
    pub(crate) retry_begun: bool,
    /// Whether something was given that only the front end can do.
    pub(crate) needs_front_end: bool,
    /// Whether a client that sends a FIN behind its request is answered also where that had to wait.
    pub(crate) keep_half_closed: bool,
}

/// How much memory of its own a worker may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MaxMemory {
    /// Its share of what the control group may have, where that is limited.
    Share,
    Bytes(u64),
    /// As much as it likes.
    Any,
}

impl MaxMemory {
    fn of(text: &str) -> Result<MaxMemory, Failure> {
        match bytes(text) {
            _ if text == "0" => Ok(MaxMemory::Any),
            Some(bytes) if bytes >= LEAST_MEMORY => Ok(MaxMemory::Bytes(bytes)),
            Some(_) => Err(wrong("max-memory", "at least 32MiB, which R needs by itself, or 0", text)),
            None => Err(wrong("max-memory", "a size with its unit, such as 512MB or 2GB, or 0", text)),
        }
    }
}

/// Whether clients come back to the worker that they began with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sticky {
    Auto,
    None,
    Cookie,
}

impl Workers {
    /// Reads the options about workers; returns `None` if a single R process without a supervisor
    /// is asked for. `auto` starts a supervisor on any machine, so that the options that need one
    /// do not depend on the number of processors.
    ///
    /// # Errors
    /// When it is wrong.
    pub(crate) fn of<'a>(
        given: impl Fn(&str) -> Option<&'a str>,
        flag: impl Fn(&str) -> bool,
    ) -> Result<Option<Workers>, Failure> {
        let reload = flag("reload");
        let is_auto = given("workers") == Some("auto");
        let count = match given("workers") {
            None => 1,
            Some("auto") => processors(),
            Some(text) => match number(text) {
                Some(count @ 1..=MOST) => count as u32,
                _ => return Err(wrong("workers", "auto, or a number from 1 to 1000", text)),
            },
        };
        let a_time = |name| given(name).map(|text| a_time(name, text)).transpose();
        let a_count = |name| given(name).map(|text| a_count(name, text)).transpose();
        let min_ready = match a_count("min-ready")? {
            None => 1,
            Some(ready) => u32::try_from(ready).ok().filter(|ready| *ready <= count).ok_or_else(|| {
                wrong(
                    "min-ready",
                    &format!("a number from 1 to that of the workers, {count}"),
                    &ready.to_string(),
                )
            })?,
        };
        let minute = Duration::from_secs(60);
        let workers = Workers {
            count,
            spares: given("spares").map_or(Ok(0), some_spares)?,
            surge: match given("surge") {
                None | Some("1") => 1,
                Some("0") => 0,
                Some(text) => return Err(wrong("surge", "1 or 0", text)),
            },
            warmup: given("warmup").map(paths).transpose()?.unwrap_or_default(),
            max_sessions: a_count("max-sessions")?,
            max_in_flight: a_count("max-in-flight")?
                .map_or(64, |most| usize::try_from(most).unwrap_or(usize::MAX)),
            max_requests: a_count("max-requests")?,
            max_age: a_time("max-age")?,
            max_memory: given("max-memory").map_or(Ok(MaxMemory::Share), MaxMemory::of)?,
            queue_timeout: a_time("queue-timeout")?.unwrap_or(Duration::from_secs(10)),
            request_timeout: a_time("request-timeout")?,
            kill_stuck: a_time("kill-stuck")?,
            start_timeout: a_time("start-timeout")?.unwrap_or(minute),
            // With `--reload` the app is being written: its author has made a mistake, and should
            // see it once.
            start_retries: given("start-retries").map_or(Ok(if reload { 0 } else { 3 }), retries)?,
            // Whoever writes an app wants to see the new one, and not that old pages end well.
            drain: a_time("drain")?.unwrap_or(if reload { Duration::from_secs(1) } else { minute }),
            drain_sessions: a_time("drain-sessions")?,
            reload,
            fail_fast: flag("fail-fast"),
            min_ready,
            drain_status: match given("drain-status") {
                None | Some("503") => 503,
                Some("404") => 404,
                Some(text) => return Err(wrong("drain-status", "503 or 404", text)),
            },
            retry_begun: flag("retry-begun"),
            needs_front_end: ["max-sessions", "max-in-flight", "queue-timeout"]
                .iter()
                .any(|name| given(name).is_some())
                || flag("retry-begun")
                || given("sticky") == Some("cookie"),
            keep_half_closed: flag("keep-half-closed"),
            name: given("name").map(a_name).transpose()?,
            sticky: match given("sticky") {
                None | Some("auto") => Sticky::Auto,
                Some("none") => Sticky::None,
                Some("cookie") => Sticky::Cookie,
                Some(text) => return Err(wrong("sticky", "auto, none or cookie", text)),
            },
        };
        Ok(Some(workers).filter(|workers| workers.count > 1 || is_auto || reload))
    }
}

/// The maximum length of `--name` in characters; it is limited because every request carries the
/// cookie.
const NAME_MOST: usize = 64;

fn a_name(text: &str) -> Result<String, Failure> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if (1..=NAME_MOST).contains(&text.len()) && text.bytes().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err(wrong("name", "1 to 64 letters, digits, `-`, `_` or `.`", text))
}

fn a_time(name: &str, text: &str) -> Result<Duration, Failure> {
    time(text).ok_or_else(|| wrong(name, "a time, such as 30s, 5min or 12h", text))
}

fn a_count(name: &str, text: &str) -> Result<u64, Failure> {
    number(text).filter(|count| *count > 0).ok_or_else(|| wrong(name, "a number from 1 on", text))
}

fn some_spares(text: &str) -> Result<u32, Failure> {
    match number(text) {
        Some(count @ 0..=MOST) => Ok(count as u32),
        _ => Err(wrong("spares", "a number from 0 to 1000", text)),
    }
}

fn retries(text: &str) -> Result<u32, Failure> {
    match number(text) {
        Some(count @ 0..=MOST) => Ok(count as u32),
        _ => Err(wrong("start-retries", "a number from 0 to 1000", text)),
    }
}

/// Paths as a request has them, with commas between them.
fn paths(text: &str) -> Result<Vec<String>, Failure> {
    let paths = list(text);
    // What could end the line of a request, or be its fragment.
    let is_path =
        |path: &String| path.starts_with('/') && path.bytes().all(|it| it.is_ascii_graphic() && it != b'#');
    match paths.iter().find(|path| !is_path(path)) {
        None if !paths.is_empty() => Ok(paths),
        wrong_one => Err(wrong(
            "warmup",
            "paths that begin with / and have no spaces, with commas between them",
            wrong_one.map_or(text, String::as_str),
        )),
    }
}

fn wrong(name: &str, what: &str, text: &str) -> Failure {
    Failure::CommandLine(format!("`--{name}` must be {what}, not `{text}`."))
}

/// As many as platforms say, else as the process may use of the machine's: its control group and its affinity count.
fn processors() -> u32 {
    let told = std::env::var("WEB_CONCURRENCY").ok().and_then(|text| number(&text));
    match told {
        Some(count @ 1..=MOST) => count as u32,
        _ => std::thread::available_parallelism().map_or(1, |count| count.get().min(MOST as usize) as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::said;

    fn of(words: &[(&str, &'static str)]) -> Result<Option<Workers>, Failure> {
        Workers::of(|name| words.iter().find(|(given, _)| *given == name).map(|(_, value)| *value), |_| false)
    }

    #[test]
    fn one_is_none() {
        assert_eq!(of(&[]).unwrap(), None);
        assert_eq!(of(&[("workers", "1")]).unwrap(), None);
        let workers = of(&[("workers", "4")]).unwrap().unwrap();
        assert_eq!(workers.max_memory, MaxMemory::Share);
        assert_eq!(of(&[("workers", "4"), ("max-memory", "0")]).unwrap().unwrap().max_memory, MaxMemory::Any);
        assert_eq!((workers.count, workers.max_requests, workers.drain), (4, None, Duration::from_secs(60)));
        assert_eq!(workers.drain_sessions, None);
        let workers = of(&[
            ("workers", "2"),
            ("max-requests", "1000"),
            ("max-age", "12h"),
            ("max-memory", "1.5GB"),
            ("drain", "500ms"),
            ("drain-sessions", "4h"),
            ("spares", "1"),
            ("kill-stuck", "1min"),
            ("max-sessions", "20"),
            ("warmup", "/, /predict?x=1"),
        ])
        .unwrap()
        .unwrap();
        assert_eq!((workers.min_ready, workers.drain_status, workers.fail_fast), (1, 503, false));
        let ready = of(&[("workers", "2"), ("min-ready", "2"), ("drain-status", "404")]).unwrap().unwrap();
        assert_eq!((ready.min_ready, ready.drain_status), (2, 404));
        assert_eq!((workers.max_requests, workers.max_memory), (Some(1000), MaxMemory::Bytes(1_500_000_000)));
        assert_eq!(workers.max_age, Some(Duration::from_secs(12 * 3600)));
        assert_eq!(workers.drain, Duration::from_millis(500));
        assert_eq!(workers.drain_sessions, Some(Duration::from_secs(4 * 3600)));
        assert_eq!((workers.spares, workers.max_sessions), (1, Some(20)));
        assert_eq!(workers.kill_stuck, Some(Duration::from_secs(60)));
        assert_eq!(workers.warmup, ["/", "/predict?x=1"]);
        let one = Workers::of(|_| None, |name| name == "reload").unwrap().unwrap();
        assert!(!one.retry_begun);
        assert_eq!((one.count, one.reload, one.drain), (1, true, Duration::from_secs(1)));
        assert_eq!((workers.start_retries, one.start_retries), (3, 0));
        let patient = of(&[("workers", "2"), ("start-retries", "20")]).unwrap().unwrap();
        assert_eq!(patient.start_retries, 20);
        // However many processors there are.
        assert_eq!(of(&[("workers", "auto")]).unwrap().unwrap().count, processors());
        assert_eq!(of(&[("drain", "5s")]).unwrap(), None);
    }

    #[test]
    fn how_much_they_hold() {
        let workers = of(&[("workers", "2")]).unwrap().unwrap();
        assert_eq!((workers.surge, workers.max_in_flight), (1, 64));
        assert_eq!(workers.queue_timeout, Duration::from_secs(10));
        let tight =
            of(&[("workers", "2"), ("surge", "0"), ("max-in-flight", "1"), ("queue-timeout", "500ms")]);
        let tight = tight.unwrap().unwrap();
        assert_eq!((tight.surge, tight.max_in_flight), (0, 1));
        assert_eq!(tight.queue_timeout, Duration::from_millis(500));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (words, says) in [
            (&[("workers", "0")][..], "`--workers` must be auto, or a number from 1 to 1000, not `0`."),
            (
                &[("workers", "2"), ("min-ready", "3")],
                "`--min-ready` must be a number from 1 to that of the workers, 2, not `3`.",
            ),
            (&[("workers", "2"), ("min-ready", "0")], "`--min-ready` must be a number from 1 on, not `0`."),
            (&[("workers", "2"), ("drain-status", "500")], "`--drain-status` must be 503 or 404, not `500`."),
            (&[("workers", "1001")], "`--workers` must be auto, or a number from 1 to 1000, not `1001`."),
            (&[("workers", "-1")], "`--workers` must be auto, or a number from 1 to 1000, not `-1`."),
            (
                &[("max-age", "5"), ("drain", "x")],
                "`--drain` must be a time, such as 30s, 5min or 12h, not `x`.",
            ),
            (
                &[("workers", "2"), ("name", "a;b")],
                "`--name` must be 1 to 64 letters, digits, `-`, `_` or `.`, not `a;b`.",
            ),
            (&[("workers", "2"), ("sticky", "yes")], "`--sticky` must be auto, none or cookie, not `yes`."),
            (
                &[("workers", "2"), ("max-requests", "0")],
                "`--max-requests` must be a number from 1 on, not `0`.",
            ),
            (
                &[("workers", "2"), ("max-sessions", "0")],
                "`--max-sessions` must be a number from 1 on, not `0`.",
            ),
            (
                &[("workers", "2"), ("spares", "1001")],
                "`--spares` must be a number from 0 to 1000, not `1001`.",
            ),
            (
                &[("workers", "2"), ("kill-stuck", "yes")],
                "`--kill-stuck` must be a time, such as 30s, 5min or 12h, not `yes`.",
            ),
            (
                &[("workers", "2"), ("warmup", "/a,b")],
                "`--warmup` must be paths that begin with / and have no spaces, with commas between them, not `b`.",
            ),
            (
                &[("workers", "2"), ("warmup", "/a b")],
                "`--warmup` must be paths that begin with / and have no spaces, with commas between them, not `/a b`.",
            ),
            (
                &[("workers", "2"), ("max-memory", "2s")],
                "`--max-memory` must be a size with its unit, such as 512MB or 2GB, or 0, not `2s`.",
            ),
            (
                &[("workers", "2"), ("max-memory", "512")],
                "`--max-memory` must be a size with its unit, such as 512MB or 2GB, or 0, not `512`.",
            ),
            (
                &[("workers", "2"), ("max-memory", "512kB")],
                "`--max-memory` must be at least 32MiB, which R needs by itself, or 0, not `512kB`.",
            ),
            (
                &[("workers", "2"), ("drain-sessions", "0")],
                "`--drain-sessions` must be a time, such as 30s, 5min or 12h, not `0`.",
            ),
            (
                &[("workers", "2"), ("drain", "-5s")],
                "`--drain` must be a time, such as 30s, 5min or 12h, not `-5s`.",
            ),
            (
                &[("workers", "2"), ("drain", "0")],
                "`--drain` must be a time, such as 30s, 5min or 12h, not `0`.",
            ),
        ] {
            assert_eq!(said(of(words)), says);
        }
        for (word, says) in [
            (("start-retries", "x"), "`--start-retries` must be a number from 0 to 1000, not `x`."),
            (("surge", "2"), "`--surge` must be 1 or 0, not `2`."),
            (("max-in-flight", "0"), "`--max-in-flight` must be a number from 1 on, not `0`."),
            (
                ("queue-timeout", "soon"),
                "`--queue-timeout` must be a time, such as 30s, 5min or 12h, not `soon`.",
            ),
        ] {
            assert_eq!(said(of(&[("workers", "2"), word])), says);
        }
    }
}
