//! Reads the arguments of the R function `serve()`, which R passes to this program in an
//! environment variable.

use rookery_settings::{GivenValue, key_value_lines, table};

/// The environment variable with the arguments of R's `serve()`, one per line as `name=value`.
/// Options of the R session have the prefix `option:`. Workers must not inherit the variable.
pub(crate) const VARIABLE: &str = "ROOKERY_INTERNAL_ARGUMENTS";

/// Reads the arguments of R's `serve()` from the environment. Returns an empty list if R did not
/// start this program.
///
/// # Errors
/// Fails with a message if an argument is wrong.
pub(crate) fn read() -> Result<Vec<GivenValue>, String> {
    read_lines(&std::env::var(VARIABLE).unwrap_or_default())
}

fn read_lines(text: &str) -> Result<Vec<GivenValue>, String> {
    let given = key_value_lines::read_given(text).into_iter().map(|(source, name, raw)| {
        let setting = table::find(&name).ok_or_else(|| format!("`{name}` is not a setting."))?;
        let raw = raw.ok_or_else(|| format!("`{name}` has no value."))?;
        GivenValue::parse(setting, &raw, source)
            .map_err(|invalid| invalid.at(&source.show(setting)))
    });
    given.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let given = read_lines(text)?;
        Ok(given
            .iter()
            .map(|it| format!("{} {:?} {:?}", it.setting.name, it.source, it.value))
            .collect())
    }

    #[test]
    fn distinguishes_arguments_and_options_of_r() {
        assert_eq!(
            read("drain=5\noption:error_detail=full\nwarmup=/a\nwarmup=/b\nlog=a%25%0Ab\n")
                .unwrap(),
            [
                "drain Argument Number(5.0)",
                "error_detail Option Text(\"full\")",
                "warmup Argument List([\"/a\", \"/b\"])",
                "log Argument Path(\"a%\\nb\")",
            ]
        );
        assert!(read("").unwrap().is_empty());
    }

    #[test]
    fn rejects_wrong_arguments() {
        assert_eq!(read("nonsense=1").unwrap_err(), "`nonsense` is not a setting.");
        assert_eq!(
            read("port=http").unwrap_err(),
            "`port` must be a whole number from 0 to 65535, not `http`."
        );
        assert!(read("port=1\nport=2").is_err());
    }
}
