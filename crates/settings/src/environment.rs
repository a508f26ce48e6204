//! Reads settings from environment variables.

use std::ffi::OsString;

use crate::combined::{GivenValue, Source};
use crate::kind::Raw;
use crate::setting::{Places, Setting};
use crate::table;
use crate::value_parser::InvalidValue;

/// The environment variables that hosting services set, each with the setting whose value it gives.
const PLATFORM: [(&str, &str); 2] = [("PORT", "port"), ("WEB_CONCURRENCY", "workers")];

/// The settings that are given in environment variables.
#[derive(Debug, Default)]
pub struct Environment {
    /// The values that environment variables give to settings.
    pub given: Vec<GivenValue>,
    /// Warnings about deprecated or ignored environment variables, which the caller has to log.
    pub notes: Vec<String>,
}

/// Reads the environment variables of all settings. An empty variable counts as unset.
///
/// # Errors
/// Fails with a message if a variable is not valid UTF-8, or if its setting does not accept the
/// value.
pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Environment, String> {
    let variable = |name: &str| -> Result<Option<String>, String> {
        let value = variable(name).map(OsString::into_string).transpose();
        let value =
            value.map_err(|_| format!("The environment variable {name} is not valid UTF-8."))?;
        Ok(value.filter(|value| !value.is_empty() && !is_service_link(value)))
    };
    let mut environment = Environment::default();
    // In a worker, the supervisor sets the variable of this setting to the number of workers.
    let is_worker = variable("ROOKERY_WORKER")?.is_some();
    for setting in table::all().filter(|row| row.places.has(Places::ENVIRONMENT)) {
        if setting.name == "workers" && is_worker {
            continue;
        }
        let own = setting.variable();
        let mut found = variable(&own)?.map(|value| (own.clone(), value));
        for former in setting.former.iter().filter(|former| former.places.has(Places::ENVIRONMENT))
        {
            let old = format!("ROOKERY_{}", former.name.to_ascii_uppercase());
            let Some(value) = variable(&old)? else { continue };
            if found.is_some() {
                return Err(format!(
                    "The environment variables {own} and {old} are the same setting: unset {old}."
                ));
            }
            environment
                .notes
                .push(format!("the environment variable {old} is deprecated: use {own}"));
            found = Some((old, value));
        }
        if let Some((name, value)) = found {
            let given = GivenValue::parse(setting, &Raw::Text(value), Source::Environment);
            let wrong =
                |invalid: InvalidValue| invalid.at(&format!("The environment variable {name}"));
            environment.given.push(given.map_err(wrong)?);
        }
    }
    for (name, of) in PLATFORM {
        // The variable may belong to another program, so any value is accepted.
        let Ok(Some(text)) = variable(name) else { continue };
        match GivenValue::parse(table::row(of), &Raw::Text(text), Source::Platform) {
            Ok(given) => environment.given.push(given),
            Err(invalid) => {
                let why = invalid.at(&format!("the environment variable {name}"));
                environment.notes.push(format!("{why} It is ignored"));
            }
        }
    }
    Ok(environment)
}

/// Returns true if `value`, the value of `ROOKERY_PORT`, is not a port but the address of a
/// Kubernetes service. Kubernetes sets this variable if a service has the name `rookery`.
fn is_service_link(value: &str) -> bool {
    ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme))
}

/// Returns the names of the environment variables that only the program `rookery` reads. They are
/// removed from the environment of the workers (R processes).
pub fn program_variables() -> impl Iterator<Item = String> {
    table::all()
        .filter(|row| row.is_program_variable && row.places.has(Places::ENVIRONMENT))
        // The program itself sets this variable for workers, for one more release.
        .filter(|row| row.name != "workers")
        .map(Setting::variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(variables: &[(&str, &str)]) -> Result<(Vec<String>, Vec<String>), String> {
        let variable = |name: &str| {
            variables.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).into())
        };
        let environment = read(variable)?;
        let given = environment
            .given
            .iter()
            .map(|given| format!("{} {:?}", given.setting.name, given.value));
        Ok((given.collect(), environment.notes))
    }

    #[test]
    fn parses_variables_with_the_rows_of_the_table() {
        let (given, notes) = read_all(&[
            ("ROOKERY_MAX_BODY_SIZE", "1MB"),
            ("ROOKERY_PROXY_PROTOCOL", "TRUE"),
            ("ROOKERY_PORT", ""),
        ])
        .unwrap();
        assert_eq!(given, ["proxy_protocol Flag(true)", "max_body_size Number(1000000.0)"]);
        assert!(notes.is_empty());
        let wrong = read_all(&[("ROOKERY_PORT", "http")]).unwrap_err();
        assert_eq!(
            wrong,
            "The environment variable ROOKERY_PORT must be a whole number from 0 to 65535, not \
             `http`."
        );
    }

    #[test]
    fn former_variables_are_accepted_with_a_message() {
        let (given, notes) = read_all(&[("ROOKERY_BODY_BYTES", "1")]).unwrap();
        assert_eq!(given, ["max_body_size Number(1.0)"]);
        assert_eq!(
            notes,
            ["the environment variable ROOKERY_BODY_BYTES is deprecated: use \
                 ROOKERY_MAX_BODY_SIZE"]
        );
        let both = read_all(&[("ROOKERY_BODY_BYTES", "1"), ("ROOKERY_MAX_BODY_SIZE", "1")]);
        assert!(both.unwrap_err().contains("are the same setting"));
        // There never was such a variable.
        assert_eq!(read_all(&[("ROOKERY_KILL_STUCK", "1s")]).unwrap().0.len(), 0);
    }

    #[test]
    fn variables_of_hosting_services_have_low_precedence_and_may_be_invalid() {
        let (given, notes) = read_all(&[("PORT", "5000"), ("WEB_CONCURRENCY", "many")]).unwrap();
        assert_eq!(given, ["port Number(5000.0)"]);
        assert!(
            notes[0].starts_with("the environment variable WEB_CONCURRENCY must be auto"),
            "{notes:?}"
        );
    }

    #[test]
    fn ignores_service_addresses_of_kubernetes() {
        let (given, notes) =
            read_all(&[("ROOKERY_PORT", "tcp://10.0.0.11:80"), ("PORT", "tcp://10.0.0.12:80")])
                .unwrap();
        assert!(given.is_empty() && notes.is_empty(), "{given:?} {notes:?}");
    }

    #[test]
    fn a_worker_ignores_the_variable_with_the_number_of_workers() {
        assert_eq!(read_all(&[("ROOKERY_WORKERS", "4")]).unwrap().0, ["workers Number(4.0)"]);
        assert!(
            read_all(&[("ROOKERY_WORKERS", "4"), ("ROOKERY_WORKER", "0")]).unwrap().0.is_empty()
        );
    }

    #[test]
    fn lists_the_variables_that_only_the_program_reads() {
        let own: Vec<String> = program_variables().collect();
        for name in [
            "ROOKERY_PORT",
            "ROOKERY_TLS_KEY",
            "ROOKERY_MAX_AGE",
            "ROOKERY_LOG",
            "ROOKERY_PROXY_PROTOCOL",
        ] {
            assert!(own.contains(&name.to_owned()), "{name}");
        }
        for name in [
            "ROOKERY_MAX_BODY_SIZE",
            "ROOKERY_ERROR_DETAIL",
            "ROOKERY_WORKERS",
            "ROOKERY_HTTP2_WEBSOCKETS",
        ] {
            assert!(!own.contains(&name.to_owned()), "{name}");
        }
    }
}
