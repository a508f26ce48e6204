//! Reads the arguments of the R function `serve()`, which R passes to this program.

use rookery_settings::{GivenValue, Raw, key_value_lines, table};

use crate::process::session;

/// The arguments of R's `serve()`.
#[derive(Debug, Default)]
pub(crate) struct RArguments {
    pub(crate) given: Vec<GivenValue>,
    /// Whether the access log is written to the R session, whose `log` is a function.
    pub(crate) is_log_read: bool,
    /// The arguments for the function that runs the app, as R has serialized them.
    pub(crate) for_app: Option<String>,
}

/// Reads the arguments of R's `serve()`, one per line as `name=value`. Options of the R session
/// have the prefix `option:`, and arguments that are no settings have the prefix `session:`. There
/// are no arguments if R did not start this program.
///
/// # Errors
/// Fails with a message if an argument is wrong.
pub(crate) fn read() -> Result<RArguments, String> {
    let text = session::read_arguments()
        .map_err(|error| format!("The arguments of serve() cannot be read: {error}."))?;
    read_lines(&text)
}

/// Reads the arguments of R's `serve()` from lines `name=value`, in which each element of a list
/// has a line of its own.
///
/// # Errors
/// Fails with a message if an argument is wrong.
pub(crate) fn read_lines(text: &str) -> Result<RArguments, String> {
    let mut arguments = RArguments::default();
    for (source, name, raw) in key_value_lines::read_given(text) {
        match (name.as_str(), raw) {
            ("session:log", _) => arguments.is_log_read = true,
            ("session:app", Some(Raw::Text(text))) => arguments.for_app = Some(text),
            (_, raw) => {
                let setting =
                    table::find(&name).ok_or_else(|| format!("`{name}` is not a setting."))?;
                let raw = raw.ok_or_else(|| format!("`{name}` has no value."))?;
                let given = GivenValue::parse(setting, &raw, source)
                    .map_err(|invalid| invalid.at(&source.show(setting)))?;
                arguments.given.push(given);
            }
        }
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let given = read_lines(text)?.given;
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
    fn separates_what_is_no_setting() {
        let read = read_lines("session:log=TRUE\nport=1\nsession:app=A%0A%25").unwrap();
        assert_eq!((read.given.len(), read.is_log_read), (1, true));
        assert_eq!(read.for_app.as_deref(), Some("A\n%"));
    }

    #[test]
    fn a_key_may_be_given_as_text() {
        let key = "-----BEGIN PRIVATE KEY-----%0AAA==%0A";
        let given = read(&format!("tls_cert=/c.pem\ntls_key={key}")).unwrap();
        assert!(given[1].contains("-----BEGIN PRIVATE KEY-----\\nAA==\\n"), "{given:?}");
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
