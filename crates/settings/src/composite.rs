//! Settings whose value has several fields, such as `hsts`. On the command line, all fields are
//! given as one text.

use crate::kind::{Composite, Kind, Raw, Rejected, Value};
use crate::value_parser::flag;

/// One year in seconds. Browsers' preload lists require at least this `max-age` in the header
/// `Strict-Transport-Security`.
const YEAR: f64 = 31_536_000.0;
/// The maximum `max-age` in seconds of the header `Strict-Transport-Security`, which is the largest
/// integer of R (32 bits).
const MAX_AGE: f64 = 2_147_483_647.0;

pub(crate) static COMPRESSION: Composite = Composite {
    wanted: "on, off, or one or more of level=1 to level=9, threshold=<bytes> and takeover=on, \
             separated by commas",
    fields: &[("level", Kind::Count), ("threshold", Kind::Bytes), ("takeover", Kind::Flag)],
    read: compression,
    show: show_compression,
};

pub(crate) static HSTS: Composite = Composite {
    wanted: "off, or a number of seconds, optionally followed by subdomains and preload, \
             separated by commas",
    fields: &[
        ("max_age", Kind::Seconds),
        ("include_subdomains", Kind::Flag),
        ("preload", Kind::Flag),
    ],
    read: hsts,
    show: show_hsts,
};

/// Parses the setting for the compression of WebSocket messages. Level 0 means no compression.
fn compression(raw: &Raw) -> Result<Value, Rejected> {
    let (mut level, mut threshold, mut takeover) = (2.0, 512.0, false);
    let fields: Vec<(&str, &str)> = match raw {
        Raw::Text(text) => match flag(text.trim()) {
            Some(true) => Vec::new(),
            Some(false) => {
                level = 0.0;
                Vec::new()
            }
            None => text
                .split(',')
                .map(|word| word.split_once('=').map(|(name, value)| (name.trim(), value.trim())))
                .collect::<Option<_>>()
                .ok_or(Rejected::Form)?,
        },
        Raw::Fields(fields) => fields
            .iter()
            .map(|(name, value)| Some((name.as_str(), value.text()?)))
            .collect::<Option<_>>()
            .ok_or(Rejected::Form)?,
        Raw::List(_) | Raw::Bytes(_) => return Err(Rejected::Form),
    };
    for (name, value) in fields {
        let number = crate::units::read(value, Kind::Bytes).filter(|number| number.is_finite());
        match (name, number, flag(value)) {
            ("level", Some(number), _) if (1.0..=9.0).contains(&number) && value.len() == 1 => {
                level = number;
            }
            ("level", ..) => {
                return Err(Rejected::Because(format!(
                    "level is a digit from 1 to 9, not {value}"
                )));
            }
            ("threshold", Some(number), _) => threshold = number,
            ("takeover", _, Some(is_on)) => takeover = is_on,
            _ => return Err(Rejected::Form),
        }
    }
    Ok(Value::Fields(vec![
        ("level", Value::Number(level)),
        ("threshold", Value::Number(threshold)),
        ("takeover", Value::Flag(takeover)),
    ]))
}

fn show_compression(value: &Value) -> String {
    let number = |name| value.field(name).and_then(Value::number).unwrap_or_default();
    let takeover =
        if value.field("takeover").and_then(Value::flag) == Some(true) { "on" } else { "off" };
    match number("level") {
        0.0 => "off".to_owned(),
        level => format!("level={level},threshold={},takeover={takeover}", number("threshold")),
    }
}

fn show_hsts(value: &Value) -> String {
    let is_on = |name| value.field(name).and_then(Value::flag) == Some(true);
    let age = value.field("max_age").and_then(Value::number).unwrap_or_default();
    let subdomains = if is_on("include_subdomains") { ",subdomains" } else { "" };
    let preload = if is_on("preload") { ",preload" } else { "" };
    format!("{age}{subdomains}{preload}")
}

/// Parses the setting for the header `Strict-Transport-Security`. The value `off` means that the
/// header is not sent.
fn hsts(raw: &Raw) -> Result<Value, Rejected> {
    let (mut age, mut subdomains, mut preload) = (None, false, false);
    match raw {
        // `0` is an age, with which browsers forget the host.
        Raw::Text(text) if text.trim() != "0" && flag(text.trim()) == Some(false) => {
            return Ok(Value::Flag(false));
        }
        Raw::Text(text) => {
            for (at, word) in text.split(',').map(str::trim).enumerate() {
                // R passes the fields of a list as `max_age=60`.
                let (name, value) = word.split_once('=').unwrap_or((word, "on"));
                match (name, flag(value)) {
                    ("max_age", _) => age = Some(value.to_owned()),
                    ("subdomains" | "include_subdomains", Some(is_on)) => subdomains = is_on,
                    ("preload", Some(is_on)) => preload = is_on,
                    _ if at == 0 => age = Some(word.to_owned()),
                    _ => return Err(Rejected::Form),
                }
            }
        }
        Raw::Fields(fields) => {
            for (name, value) in fields {
                let text = value.text().ok_or(Rejected::Form)?;
                match (name.as_str(), flag(text)) {
                    ("max_age", _) => age = Some(text.to_owned()),
                    ("include_subdomains", Some(is_on)) => subdomains = is_on,
                    ("preload", Some(is_on)) => preload = is_on,
                    _ => return Err(Rejected::Form),
                }
            }
        }
        Raw::List(_) | Raw::Bytes(_) => return Err(Rejected::Form),
    }
    let age = age.and_then(|age| crate::units::read(&age, Kind::Seconds)).ok_or(Rejected::Form)?;
    if age > MAX_AGE || age.fract() != 0.0 {
        return Err(Rejected::Form);
    }
    if preload && !(subdomains && age >= YEAR) {
        return Err(Rejected::Because(
            "preload needs subdomains and at least a year, such as 31536000,subdomains,preload"
                .to_owned(),
        ));
    }
    Ok(Value::Fields(vec![
        ("max_age", Value::Number(age)),
        ("include_subdomains", Value::Flag(subdomains)),
        ("preload", Value::Flag(preload)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(
        read: fn(&Raw) -> Result<Value, Rejected>,
        text: &str,
    ) -> Result<Vec<String>, Rejected> {
        read(&Raw::from(text)).map(|value| match value {
            Value::Fields(fields) => fields
                .iter()
                .map(|(_, value)| match value {
                    Value::Number(number) => number.to_string(),
                    Value::Flag(is_on) => is_on.to_string(),
                    other => panic!("{other:?}"),
                })
                .collect(),
            other => vec![format!("{other:?}")],
        })
    }

    fn fields(pairs: &[(&str, &str)]) -> Raw {
        Raw::Fields(
            pairs.iter().map(|(name, value)| ((*name).to_owned(), Raw::from(*value))).collect(),
        )
    }

    #[test]
    fn parses_compression_from_short_form_and_fields() {
        for (given, wanted) in [
            ("on", ["2", "512", "false"]),
            ("yes", ["2", "512", "false"]),
            ("off", ["0", "512", "false"]),
            ("level=6", ["6", "512", "false"]),
            ("threshold=1kB, takeover=on,level=9", ["9", "1000", "true"]),
        ] {
            assert_eq!(text(compression, given).unwrap(), wanted, "{given}");
        }
        for given in ["", "level", "threshold=none", "takeover=x", "on,level=1"] {
            assert_eq!(text(compression, given), Err(Rejected::Form), "{given}");
        }
        for given in ["level=0", "level=10", "level=1.0", "level=x"] {
            assert!(matches!(text(compression, given), Err(Rejected::Because(_))), "{given}");
        }
        for given in ["on", "level=9,threshold=1kB,takeover=on"] {
            let value = compression(&Raw::from(given)).unwrap();
            assert_eq!(compression(&Raw::Text(show_compression(&value))).unwrap(), value);
        }
        let from_fields = compression(&fields(&[("level", "6"), ("takeover", "yes")])).unwrap();
        assert_eq!(from_fields, compression(&Raw::from("level=6,takeover=on")).unwrap());
        assert_eq!(compression(&fields(&[("levels", "6")])), Err(Rejected::Form));
        assert_eq!(compression(&Raw::List(vec![])), Err(Rejected::Form));
    }

    #[test]
    fn parses_hsts_from_short_form_and_fields() {
        assert_eq!(text(hsts, "300").unwrap(), ["300", "false", "false"]);
        assert_eq!(text(hsts, "0").unwrap(), ["0", "false", "false"]);
        assert_eq!(text(hsts, "1h, subdomains").unwrap(), ["3600", "true", "false"]);
        assert_eq!(hsts(&Raw::from("off")), Ok(Value::Flag(false)));
        for given in ["", "x", "none", "-1", "2147483648", "300,all", "1.5", "subdomains"] {
            assert_eq!(text(hsts, given), Err(Rejected::Form), "{given}");
        }
        for given in ["300,subdomains,preload", "31536000,preload"] {
            assert!(matches!(text(hsts, given), Err(Rejected::Because(_))), "{given}");
        }
        let whole = hsts(&fields(&[
            ("max_age", "31536000"),
            ("include_subdomains", "on"),
            ("preload", "true"),
        ]));
        assert_eq!(whole, hsts(&Raw::from("31536000,subdomains,preload")));
        assert_eq!(hsts(&fields(&[("max_ages", "1")])), Err(Rejected::Form));
    }
}
