//! Parses and formats numbers with units: sizes and times.

use crate::kind::Kind;

type Units = &'static [(&'static str, f64)];

/// The units of sizes in bytes, as in GNU coreutils: `M` means MiB (1024 * 1024), and `MB` means a
/// million bytes.
const BYTES: Units = &[
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
const SECONDS: Units = &[
    ("MS", 0.001),
    ("S", 1.0),
    ("SEC", 1.0),
    ("SECONDS", 1.0),
    ("M", 60.0),
    ("MIN", 60.0),
    ("MINUTES", 60.0),
    ("H", 3600.0),
    ("HOURS", 3600.0),
    ("D", 86400.0),
    ("DAYS", 86400.0),
];

/// The words that mean "no limit" as the value of a setting.
const UNLIMITED: [&str; 4] = ["INF", ".INF", "NONE", "UNLIMITED"];

/// The largest finite number that a setting accepts. A larger number is probably a mistake.
const MAX_FINITE: f64 = 1e18;

/// Parses the number in a setting's value, such as `1.5MB`. `kind` determines which units may
/// follow the number. Returns infinity for a word that means "no limit". Returns `None` if the text
/// is not an accepted number, for example `1e999`, `NaN` or `-1`.
pub(crate) fn read(text: &str, kind: Kind) -> Option<f64> {
    let upper = text.trim().to_ascii_uppercase();
    if UNLIMITED.contains(&upper.as_str()) {
        return Some(f64::INFINITY);
    }
    let units = match kind {
        Kind::Bytes => BYTES,
        Kind::Seconds => SECONDS,
        _ => &[],
    };
    let (number, unit) = split(&upper)?;
    let factor =
        if unit.is_empty() { 1.0 } else { units.iter().find(|(name, _)| *name == unit)?.1 };
    let amount = number.parse::<f64>().ok()? * factor;
    (amount <= MAX_FINITE).then_some(if matches!(kind, Kind::Bytes) {
        amount.trunc()
    } else {
        amount
    })
}

/// Splits a text such as `1.5MB` into its number and its unit. The number may have a fraction and
/// an exponent: `1E3` is a number without a unit, but `1EB` is 1 with the unit `EB`. Returns `None`
/// if the number has leading zeros, because YAML 1.1 would read `010` as 8.
fn split(text: &str) -> Option<(&str, &str)> {
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let mut end = digits(0);
    if end == 0 || (end > 1 && text.starts_with('0')) {
        return None;
    }
    if text[end..].starts_with('.') {
        end += 1 + digits(end + 1);
    }
    if text[end..].starts_with('E') {
        let sign = usize::from(text[end + 1..].starts_with(['+', '-']));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    Some((&text[..end], text[end..].trim_start_matches([' ', '_'])))
}

/// Formats a number with the largest unit that needs at most two decimals. [`read`] can parse the
/// result again.
pub(crate) fn show(amount: f64, kind: Kind) -> String {
    if amount.is_infinite() {
        return "none".to_owned();
    }
    let with = |units: &[(&str, f64)]| {
        let fits = |unit: f64| {
            let hundredths = amount / unit * 100.0;
            amount >= unit && (hundredths - hundredths.round()).abs() < 1e-9
        };
        units
            .iter()
            .find(|(_, unit)| fits(*unit))
            .map(|(name, unit)| format!("{} {name}", amount / unit))
    };
    let found = match kind {
        Kind::Bytes if amount % 1024.0 == 0.0 => with(&[
            ("TiB", 1_099_511_627_776.0),
            ("GiB", 1_073_741_824.0),
            ("MiB", 1_048_576.0),
            ("KiB", 1024.0),
        ]),
        Kind::Bytes => with(&[("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)]),
        Kind::Seconds => with(&[("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 0.001)]),
        _ => None,
    };
    found.unwrap_or_else(|| match kind {
        Kind::Bytes => format!("{amount} B"),
        Kind::Seconds => format!("{amount} s"),
        _ => amount.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_units() {
        for (text, kind, wanted) in [
            ("1000", Kind::Bytes, 1000.0),
            ("10MB", Kind::Bytes, 10e6),
            ("10 MiB", Kind::Bytes, 10_485_760.0),
            ("300M", Kind::Bytes, 314_572_800.0),
            ("2k", Kind::Bytes, 2048.0),
            ("1.5kb", Kind::Bytes, 1500.0),
            ("1.0005kB", Kind::Bytes, 1000.0),
            ("1e6", Kind::Bytes, 1e6),
            ("1.5e+6", Kind::Bytes, 1.5e6),
            ("1e1_KB", Kind::Bytes, 1e4),
            ("Inf", Kind::Bytes, f64::INFINITY),
            (".inf", Kind::Seconds, f64::INFINITY),
            (" none ", Kind::Bytes, f64::INFINITY),
            ("30s", Kind::Seconds, 30.0),
            ("500 ms", Kind::Seconds, 0.5),
            ("2min", Kind::Seconds, 120.0),
            ("5m", Kind::Seconds, 300.0),
            ("5M", Kind::Bytes, 5_242_880.0),
            ("1.5 d", Kind::Seconds, 129_600.0),
            ("0", Kind::Seconds, 0.0),
            ("0.5", Kind::Seconds, 0.5),
            ("10000", Kind::Count, 10_000.0),
        ] {
            assert_eq!(read(text, kind).map(f64::to_bits), Some(wanted.to_bits()), "{text}");
        }
    }

    #[test]
    fn rejects_texts_that_are_not_numbers() {
        for text in [
            "", " ", "1e999", "1e19", "NaN", "nan", ".nan", "-1", "+1", "-0", "0x10", "010",
            "1_000", "1:30", "1,5", ".5", "1 2", "1e", "1EB", "MB", "1 s s", "\u{e9}1", "1\u{e9}",
            "\u{0661}", "-Inf", "1/s",
        ] {
            assert_eq!(read(text, Kind::Bytes), None, "{text}");
        }
        assert_eq!(read("10MB", Kind::Count), None);
        assert_eq!(read("10MB", Kind::Seconds), None);
        assert_eq!(read("10s", Kind::Bytes), None);
        assert_eq!(read("10MB/s", Kind::Bytes), None);
    }

    #[test]
    fn shown_numbers_parse_as_the_same_number() {
        for (amount, kind, shown) in [
            (1_048_576.0, Kind::Bytes, "1 MiB"),
            (98_304.0, Kind::Bytes, "96 KiB"),
            (1.5e6, Kind::Bytes, "1.5 MB"),
            (123_457.0, Kind::Bytes, "123457 B"),
            (0.0, Kind::Bytes, "0 B"),
            (30.0, Kind::Seconds, "30 s"),
            (90.0, Kind::Seconds, "1.5 min"),
            (0.25, Kind::Seconds, "250 ms"),
            (f64::INFINITY, Kind::Seconds, "none"),
            (10_000.0, Kind::Count, "10000"),
        ] {
            assert_eq!(show(amount, kind), shown);
            assert_eq!(read(shown, kind).map(f64::to_bits), Some(amount.to_bits()), "{shown}");
        }
    }
}
