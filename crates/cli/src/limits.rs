//! Limits as people write them: `body_bytes=10MB`, `request_time=30s`. R reads the same (limits.R).

use std::time::Duration;

use rookery_server::{Config, LimitKind, NamedLimit};

use crate::failure::Failure;
use crate::memory;
use crate::names::near;

/// Units of bytes, as GNU coreutils have them: `M` is `MiB`, and `MB` a million.
const BYTES: [(&str, f64); 13] = [
    ("B", 1.0),
    ("K", 1024.0),
    ("M", 1_048_576.0),
    ("G", 1_073_741_824.0),
    ("T", 1_099_511_627_776.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KIB", 1024.0),
    ("MIB", 1_048_576.0),
    ("GIB", 1_073_741_824.0),
    ("TIB", 1_099_511_627_776.0),
];
const SECONDS: [(&str, f64); 10] = [
    ("MS", 0.001),
    ("S", 1.0),
    ("SEC", 1.0),
    ("SECONDS", 1.0),
    ("MIN", 60.0),
    ("MINUTES", 60.0),
    ("H", 3600.0),
    ("HOURS", 3600.0),
    ("D", 86400.0),
    ("DAYS", 86400.0),
];
const PERCENT: [(&str, f64); 1] = [("%", 1.0)];

/// One that was given.
#[derive(Debug, Clone)]
pub(crate) struct Limit {
    of: &'static NamedLimit,
    value: f64,
    /// `name=value`, for R.
    pub(crate) text: String,
}

impl Limit {
    pub(crate) fn name(&self) -> &'static str {
        name_of(self.of)
    }

    /// Of `name=value`.
    ///
    /// # Errors
    /// When there is no such limit, or it is not to have this value.
    pub(crate) fn of(text: &str) -> Result<Limit, Failure> {
        let Some((name, value)) =
            text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty())
        else {
            return Err(Failure::CommandLine(format!(
                "`--limit` needs a name and a value, such as body_bytes=10MB, not `{text}`."
            )));
        };
        let names = || NamedLimit::all().iter().map(|limit| name_of(limit).to_owned());
        let Some(limit) = NamedLimit::all().iter().find(|limit| name_of(limit) == name) else {
            let hint = near(name, names())
                .first()
                .map(|near| format!(" Did you mean `{near}`?"))
                .unwrap_or_default();
            return Err(Failure::CommandLine(format!("`{name}` is no limit.{hint}")));
        };
        match read(limit, value) {
            Some(number) => Ok(Limit { of: limit, value: number, text: text.to_owned() }),
            None => Err(Failure::CommandLine(wrong(&format!("`--limit {name}`"), limit, value))),
        }
    }

    fn of_environment(limit: &'static NamedLimit) -> Result<Option<Limit>, Failure> {
        let name = name_of(limit);
        let variable = format!("ROOKERY_{}", name.to_uppercase());
        let Some(value) = std::env::var(&variable).ok().filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        match read(limit, &value) {
            Some(number) => Ok(Some(Limit { of: limit, value: number, text: format!("{name}={value}") })),
            None => {
                Err(Failure::Serving(wrong(&format!("The environment variable {variable}"), limit, &value)))
            }
        }
    }
}

/// The limits of a server that has no R: what was given, else what the environment says, else the defaults.
///
/// # Errors
/// When the environment, or all of them together, say what cannot be.
pub(crate) fn config(given: &[Limit]) -> Result<Config, Failure> {
    let mut config = Config { reclaim: Some(memory::reclaim), ..Config::default() };
    for limit in NamedLimit::all() {
        // The last of several counts.
        let own = given.iter().rev().find(|given| given.of.name() == limit.name()).cloned();
        let found = match own {
            Some(limit) => Some(limit),
            None => Limit::of_environment(limit)?,
        };
        if let Some(found) = found {
            limit.set(&mut config, found.value);
        }
    }
    let shares = NamedLimit::all().iter().filter(|limit| limit.kind() == LimitKind::Percent);
    let total: f64 = shares.map(|limit| limit.get(&config)).sum();
    if total > 100.0 {
        return Err(Failure::Serving(format!(
            "The shares of `memory` are {total} % in all: they must be 100 % at most."
        )));
    }
    Ok(config)
}

/// Parses a size with its unit, such as `2GB`. A number without a unit is refused: `512` may be
/// meant in any unit.
#[expect(clippy::cast_sign_loss, reason = "an amount is positive")]
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let has_unit = text.trim().ends_with(|last: char| last.is_ascii_alphabetic());
    amount(text, &BYTES).filter(|bytes| has_unit && is_sensible(*bytes)).map(|bytes| bytes as u64)
}

/// Reads a time, such as `30s`.
pub(crate) fn time(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(amount(text, &SECONDS).filter(|time| is_sensible(*time))?).ok()
}

/// Returns whether an amount is positive and small enough to be a plausible number of bytes or a
/// plausible time.
fn is_sensible(amount: f64) -> bool {
    (0.001..1e18).contains(&amount)
}

/// Reads a number with one of these units, or none.
fn amount(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim().to_uppercase();
    let (number, unit) = split(&text)?;
    // It may have an exponent too great for a number.
    let number: f64 = number.parse().ok().filter(|number: &f64| number.is_finite())?;
    let factor = if unit.is_empty() { 1.0 } else { units.iter().find(|(name, _)| *name == unit)?.1 };
    Some(number * factor).filter(|amount| amount.is_finite())
}

fn name_of(limit: &NamedLimit) -> &'static str {
    limit.name().to_str().expect("a name of the table's is ASCII")
}

/// The number that a text stands for, if it is one that the limit may have.
fn read(limit: &NamedLimit, text: &str) -> Option<f64> {
    let text = text.trim().to_uppercase();
    if ["INF", ".INF", "NONE"].contains(&text.as_str()) {
        return Some(f64::INFINITY).filter(|value| limit.takes(*value));
    }
    let units: &[(&str, f64)] = match limit.kind() {
        LimitKind::Count => &[],
        LimitKind::Bytes | LimitKind::Rate => &BYTES,
        LimitKind::Seconds => &SECONDS,
        LimitKind::Percent => &PERCENT,
    };
    let is_rate = limit.kind() == LimitKind::Rate;
    let text = text.strip_suffix("/S").filter(|_| is_rate).unwrap_or(&text);
    amount(text, units).filter(|value| limit.takes(*value))
}

/// The digits, perhaps with a fraction and an exponent, and behind them the unit. `1E3` is a number; `1EB` a unit.
fn split(text: &str) -> Option<(&str, &str)> {
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let mut end = digits(0);
    if end == 0 {
        return None;
    }
    if text[end..].starts_with('.') {
        end += 1 + digits(end + 1);
    }
    if text[end..].starts_with('E') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    Some((&text[..end], text[end..].trim_start_matches([' ', '_'])))
}

fn wrong(place: &str, limit: &NamedLimit, value: &str) -> String {
    let wanted = match limit.kind() {
        LimitKind::Count => "a whole number, or Inf",
        LimitKind::Bytes => "a number of bytes, such as 1e6 or 10MB, or Inf",
        LimitKind::Seconds => "a number of seconds, such as 30 or 2min, or Inf",
        LimitKind::Rate => "a whole number of bytes a second, such as 512",
        LimitKind::Percent => "a whole number of percent, from 1 to 100",
    };
    let least = limit.least();
    let least = if least > 0.0 { format!(", and at least {least}") } else { String::new() };
    format!("{place} must be {wanted}{least}, not `{value}`.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::said;

    fn value(text: &str) -> f64 {
        Limit::of(text).unwrap().value
    }

    #[test]
    fn units_are_those_of_r() {
        for (text, wanted) in [
            ("body_bytes=1000", 1000.0),
            ("body_bytes=10MB", 10e6),
            ("body_bytes=10 MiB", 10_485_760.0),
            ("body_bytes=300M", 314_572_800.0),
            ("body_bytes=2k", 2048.0),
            ("body_bytes=1.5kb", 1500.0),
            ("body_bytes=1e6", 1e6),
            ("body_bytes=1e1_KB", 1e4),
            ("body_bytes=Inf", f64::INFINITY),
            ("body_bytes=none", f64::INFINITY),
            ("request_time=30s", 30.0),
            ("request_time=500 ms", 0.5),
            ("request_time=2min", 120.0),
            ("connections=10000", 10_000.0),
            ("head_rate=1KB/s", 1000.0),
            ("share_replies=20%", 20.0),
        ] {
            let found = value(text);
            assert!((found - wanted).abs() < 1e-9 || found.to_bits() == wanted.to_bits(), "{text}: {found}");
        }
    }

    #[test]
    fn a_size_has_a_unit_which_is_that_of_limits() {
        for (text, wanted) in [
            ("300M", 314_572_800),
            ("300MB", 300_000_000),
            ("300MiB", 314_572_800),
            ("1.5 gb", 1_500_000_000),
        ] {
            assert_eq!(bytes(text), Some(wanted), "{text}");
            assert_eq!(value(&format!("body_bytes={text}")).to_string(), wanted.to_string(), "{text}");
        }
        for text in ["512", "0", "2e9", "M", "1 s", "0.0001B", "1e18B", "-1MB", ""] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (text, says) in [
            ("body_bytes", "`--limit` needs a name and a value, such as body_bytes=10MB, not `body_bytes`."),
            ("=1", "`--limit` needs a name and a value, such as body_bytes=10MB, not `=1`."),
            ("body_byte=1", "`body_byte` is no limit. Did you mean `body_bytes`?"),
            ("zzzzzz=1", "`zzzzzz` is no limit."),
            (
                "body_bytes=a lot",
                "`--limit body_bytes` must be a number of bytes, such as 1e6 or 10MB, or Inf, not `a lot`.",
            ),
            (
                "head_bytes=1",
                "`--limit head_bytes` must be a number of bytes, such as 1e6 or 10MB, or Inf, and at least 8192, not `1`.",
            ),
            (
                "connections=1.5",
                "`--limit connections` must be a whole number, or Inf, and at least 1, not `1.5`.",
            ),
            (
                "head_rate=Inf",
                "`--limit head_rate` must be a whole number of bytes a second, such as 512, not `Inf`.",
            ),
        ] {
            assert_eq!(said(Limit::of(text)), says);
        }
        for text in [
            "request_time=1MB",
            "request_time=-1",
            "body_bytes=1e999",
            "body_bytes=.5",
            "share_replies=101",
            "body_bytes=\u{e9}1",
        ] {
            assert!(Limit::of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_last_of_several_counts_and_shares_are_no_more_than_all() {
        let of =
            |texts: &[&str]| config(&texts.iter().map(|text| Limit::of(text).unwrap()).collect::<Vec<_>>());
        let config = of(&["body_bytes=1", "body_bytes=2", "queue_requests=3"]).unwrap();
        assert_eq!((config.limits.body_bytes, config.queue.requests), (2, 3));
        assert!(said(of(&["share_replies=50", "share_queues=50"])).ends_with("they must be 100 % at most."));
    }
}
