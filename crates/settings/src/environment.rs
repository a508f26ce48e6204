//! Reads settings from environment variables.

use std::ffi::OsString;

use crate::combined::{GivenValue, Source};
use crate::kind::Raw;
use crate::setting::{Places, Setting};
use crate::suggestions::did_you_mean;
use crate::table;
use crate::value_parser::InvalidValue;

/// The environment variables that hosting services set, each with the setting whose value it gives.
const PLATFORM: [(&str, &str); 2] = [("PORT", "port"), ("WEB_CONCURRENCY", "workers")];

/// The settings that are given in environment variables.
#[derive(Debug, Default)]
pub struct Environment {
    /// The values that environment variables give to settings.
    pub given: Vec<GivenValue>,
    /// Warnings about ignored environment variables, which the caller has to log.
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
        let name = setting.variable();
        let Some(value) = variable(&name)? else { continue };
        let given = GivenValue::parse(setting, &Raw::Text(value), Source::Environment);
        let wrong = |invalid: InvalidValue| invalid.at(&format!("The environment variable {name}"));
        environment.given.push(given.map_err(wrong)?);
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

/// The beginning of the names of the environment variables of settings.
const PREFIX: &str = "ROOKERY_";

/// The beginnings of the names of variables that are no settings: by the first kind, processes of
/// Rookery communicate, and the second kind describes a build.
const NO_SETTINGS: [&str; 2] = ["ROOKERY_INTERNAL_", "ROOKERY_BUILD_"];

/// Further variables that are no settings. A supervisor sets the first three for the app in a
/// worker, and the others are read when the R package is built and tested.
const OTHERS: [&str; 5] = [
    "ROOKERY_WORKER",
    "ROOKERY_WORKER_COUNT",
    "ROOKERY_GENERATION",
    "ROOKERY_COMPAT",
    "ROOKERY_LIB",
];

/// Returns a warning for each of the environment variables `names` that begins like that of a
/// setting, but belongs to none, with the most similar name of a setting. The caller has to log the
/// warnings.
pub fn unknown_variables(names: &[String]) -> Vec<String> {
    let known: Vec<String> = table::all()
        .filter(|row| row.places.has(Places::ENVIRONMENT))
        .map(Setting::variable)
        .collect();
    let is_known = |name: &String| {
        known.contains(name)
            || OTHERS.contains(&name.as_str())
            || NO_SETTINGS.iter().any(|beginning| name.starts_with(beginning))
    };
    let mut unknown: Vec<&String> = names
        .iter()
        .filter(|name| name.starts_with(PREFIX) && !is_known(name) && !is_of_service(name, names))
        .collect();
    unknown.sort_unstable();
    let known: Vec<&str> = known.iter().filter_map(|name| name.strip_prefix(PREFIX)).collect();
    let warning = |name: &String| {
        unknown_name("environment variable", PREFIX, &name[PREFIX.len()..], known.iter().copied())
    };
    unknown.into_iter().map(warning).collect()
}

/// The beginning of the names of the R options of settings.
const OPTION_PREFIX: &str = "rookery.";

/// Returns a warning for each of the R options `names` that begins like that of a setting, but
/// belongs to none, with the most similar name of a setting.
pub fn unknown_options(names: &[String]) -> Vec<String> {
    let known = || table::all().filter(|row| row.places.has(Places::OPTION)).map(|row| row.name);
    let unknown = names.iter().filter_map(|name| name.strip_prefix(OPTION_PREFIX));
    let unknown = unknown.filter(|name| known().all(|known| known != *name));
    let warning = |name: &str| match table::all().find(|row| row.name == name) {
        Some(row) if row.places.has(Places::ENVIRONMENT) => format!(
            "the option {OPTION_PREFIX}{name} has no effect, because `{name}` cannot be set by an \
             option of R. `rookery serve` reads it from the environment variable {}.",
            row.variable()
        ),
        _ => unknown_name("option", OPTION_PREFIX, name, known()),
    };
    unknown.map(warning).collect()
}

/// Returns the warning about a name that belongs to no setting. `name` and `known`, the names of
/// settings, lack the common beginning `prefix`, which would make all names similar.
fn unknown_name<'a>(
    kind: &str,
    prefix: &str,
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> String {
    let near = did_you_mean(name, known, |near| format!("{prefix}{near}"));
    format!("the {kind} {prefix}{name} does not belong to a setting and has no effect.{near}")
}

/// Returns true if Kubernetes sets the environment variable `name` for a service whose name begins
/// with `rookery`. For a service `a`, Kubernetes sets `A_SERVICE_HOST` and several variables that
/// begin with `A_SERVICE_` and `A_PORT`.
fn is_of_service(name: &str, names: &[String]) -> bool {
    names.iter().filter_map(|name| name.strip_suffix("_SERVICE_HOST")).any(|service| {
        name.strip_prefix(service)
            .is_some_and(|rest| rest.starts_with("_SERVICE_") || rest.starts_with("_PORT"))
    })
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
        .filter(|row| row.is_program_variable())
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
    fn a_mistyped_variable_is_reported_with_the_most_similar_name() {
        let warnings = |names: &[&str]| {
            unknown_variables(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        let text = "the environment variable ROOKERY_WORKERZ does not belong to a setting and has \
                    no effect. Did you mean ROOKERY_WORKERS?";
        assert_eq!(warnings(&["HOME", "ROOKERY_WORKERZ", "ROOKERY_WORKERS"]), [text]);
        for (name, near) in [
            ("ROOKERY_MAX_BODYSIZE", "ROOKERY_MAX_BODY_SIZE"),
            ("ROOKERY_MAX_BODY", "ROOKERY_MAX_BODY_SIZE"),
            ("ROOKERY_PROT", "ROOKERY_PORT"),
            ("ROOKERY_TRUSTED_PROXY", "ROOKERY_TRUSTED_PROXIES"),
        ] {
            let warnings = warnings(&[name]);
            assert!(warnings[0].ends_with(&format!(" Did you mean {near}?")), "{warnings:?}");
        }
        assert!(warnings(&["ROOKERY_ZZZZ"])[0].ends_with("has no effect."));
        // Variables of workers and internal ones, and those of other programs.
        for known in [
            &["ROOKERY_WORKER", "ROOKERY_INTERNAL_X", "ROOKERYX", "rookery_x"][..],
            &["ROOKERY_SERVICE_HOST", "ROOKERY_SERVICE_PORT_HTTP", "ROOKERY_PORT_80_TCP_ADDR"],
            &["ROOKERY_ADMIN_SERVICE_HOST", "ROOKERY_ADMIN_SERVICE_PORT", "ROOKERY_ADMIN_PORT"],
        ] {
            assert!(warnings(known).is_empty(), "{:?}", warnings(known));
        }
        for row in table::all().filter(|row| row.places.has(Places::ENVIRONMENT)) {
            assert!(warnings(&[&row.variable()]).is_empty(), "{}", row.name);
        }
    }

    #[test]
    fn a_mistyped_option_of_r_is_reported_with_the_most_similar_name() {
        let names = ["rookery.max_bodysize", "rookery.port", "rookery.spool_dir", "digits"];
        assert_eq!(
            unknown_options(&names.map(str::to_owned)),
            [
                "the option rookery.max_bodysize does not belong to a setting and has no effect. \
                 Did you mean rookery.max_body_size?",
                // A setting that is no option of R.
                "the option rookery.port has no effect, because `port` cannot be set by an option \
                 of R. `rookery serve` reads it from the environment variable ROOKERY_PORT."
            ]
        );
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
        for name in ["ROOKERY_PORT", "ROOKERY_TLS_KEY", "ROOKERY_MAX_AGE", "ROOKERY_LOG"] {
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
