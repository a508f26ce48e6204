//! The settings for R: their table, the values that their sources give, and the contents of a
//! `_server.yml`. Values are passed as [`Lines`] of `key=value`.

use std::ffi::OsString;
use std::path::Path;

use rookery_settings::key_value_lines::{self, Lines};
use rookery_settings::{
    Default as InTable, GivenValue, InvalidValue, Places, Raw, Section, Setting, Settings, Source,
    Value, environment, expected_form, server_yml, table,
};

use crate::text::path::path_bytes;

/// Returns a line for each setting that R accepts. Its fields are separated by tabs.
pub(crate) fn table_text() -> String {
    let logical = |is: bool| if is { "TRUE" } else { "FALSE" };
    let line = |row: &Setting| {
        [
            row.name,
            &row.r_argument().unwrap_or_default(),
            logical(row.places.has(Places::OPTION)),
            logical(row.section == Section::Limits),
            row.kind.name(),
            row.default_text().unwrap_or("none"),
            logical(row.default_text().is_some() && !matches!(row.default, InTable::Derived(_))),
            row.help,
            row.paragraph,
        ]
        .join("\t")
    };
    let rows =
        table::all().filter(|row| row.places.has(Places::R) || row.places.has(Places::OPTION));
    rows.map(line).collect::<Vec<_>>().join("\n")
}

/// Adds to `lines` why a setting does not accept a value: a line `wanted` (with the expected form)
/// or `wrong` (with an error message).
fn add_reason(lines: &mut Lines, setting: &Setting, invalid: Option<&InvalidValue>) {
    let Some(invalid) = invalid else {
        return lines.line("wanted", expected_form(setting).as_bytes());
    };
    match invalid.wanted() {
        Some(wanted) => lines.line("wanted", wanted.as_bytes()),
        None => {
            let reason = invalid.at("");
            let reason = reason.trim_start_matches(": ").trim_end_matches('.');
            lines.line("wrong", reason.as_bytes());
        }
    }
}

fn add_shown(lines: &mut Lines, setting: &Setting, text: &str) {
    lines.line(&format!("shown:{}", setting.name), text.as_bytes());
}

/// Returns how messages for R name the value of a setting from a source.
fn place(setting: &Setting, source: Source) -> String {
    let name = setting.name;
    match source {
        Source::CommandLine => format!("`{name}` of the command line"),
        Source::Environment => format!("The environment variable {}", setting.variable()),
        Source::File => format!("`{name}:` of the _server.yml"),
        Source::Option => format!("The option `rookery.{name}`"),
        _ => format!("`{name}`"),
    }
}

/// Determines the values of settings from all their sources. `names` has the name of a setting in
/// each line, and `sources` what the sources give that R knows. The environment is read here,
/// unless R has got the variable's value from the program.
///
/// Returns for each setting its value, a line `shown:<name>` with the value for people, a line
/// `origin:<name>` with its source, and a line `where:<name>` with the words by which messages name
/// the value. If the value is wrong, returns only lines with the setting, its source, the words and
/// the reason.
pub(crate) fn resolve(
    names: &str,
    sources: &str,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Lines {
    let given = key_value_lines::read_given(sources);
    let mut lines = Lines::default();
    for setting in names.lines().filter_map(table::find) {
        let own = given.iter().filter(|(_, name, _)| name == setting.name);
        let own = own.map(|(source, _, raw)| (*source, raw.clone()));
        let may_be_in_environment = setting.places.has(Places::ENVIRONMENT);
        let in_environment = may_be_in_environment.then(|| variable(&setting.variable())).flatten();
        let in_environment = in_environment.filter(|value| !value.is_empty());
        let strongest = own
            .chain(in_environment.map(|value| (Source::Environment, Some(Raw::from(value)))))
            .min_by_key(|(source, _)| *source);
        let Some((source, raw)) = strongest else {
            let none = (setting.section == Section::Limits).then_some(Value::Number(f64::NAN));
            if let Some(value) = Settings::default().value(setting.name).or(none) {
                lines.value("", setting.name, &value);
                let is_derived = value.number().is_some_and(f64::is_nan);
                let shown = setting.default_text().filter(|_| is_derived);
                add_shown(
                    &mut lines,
                    setting,
                    &shown.map_or(value.show(setting.kind), str::to_owned),
                );
            }
            lines.line(&format!("origin:{}", setting.name), Source::Default.name().as_bytes());
            continue;
        };
        let read = raw.as_ref().map(|raw| setting.read(raw));
        let place = place(setting, source);
        if let Some(Ok(value)) = read {
            lines.value("", setting.name, &value);
            add_shown(&mut lines, setting, &value.show(setting.kind));
            lines.line(&format!("origin:{}", setting.name), source.name().as_bytes());
            lines.line(&format!("where:{}", setting.name), place.as_bytes());
            continue;
        }
        let mut lines = Lines::default();
        lines.line("setting", setting.name.as_bytes());
        lines.line("origin", source.name().as_bytes());
        lines.line("where", place.as_bytes());
        add_reason(&mut lines, setting, read.and_then(Result::err).as_ref());
        return lines;
    }
    lines
}

/// Parses a `_server.yml` for R. Returns a line `app` with the app's path, and a line for each
/// setting; or only a line `engine` if the file is for another package. After an error, returns
/// only a line `wrong` with the message.
///
/// `is_alone` is true if this R process does not run under the program `rookery`. Then this
/// function also checks that the HTTPS settings in the file are complete. Otherwise the program has
/// already checked them together with its command line and environment.
pub(crate) fn read_file(path: &Path, is_alone: bool) -> Lines {
    let mut lines = Lines::default();
    let mut wrong = |message: String| lines.line("wrong", message.as_bytes());
    let bytes = match server_yml::bytes(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            wrong(format!("`{}` cannot be read: {error}.", path.display()));
            return lines;
        }
    };
    match server_yml::read(&bytes, path) {
        Ok(None) => match server_yml::engine(&bytes) {
            Ok(engine) => lines.line("engine", engine.as_bytes()),
            Err(problem) => wrong(format!("In `{}`, {problem}", path.display())),
        },
        Err(problem) => wrong(format!("In `{}`, {problem}", path.display())),
        Ok(Some(file)) => {
            // Other settings that belong together, such as those about workers, are checked when
            // the sources are combined. `tls:` counts as one value.
            let is_of_tls = |given: &&GivenValue| {
                matches!(given.setting.section, Section::Tls | Section::Acme)
                    || ["tls", "host"].contains(&given.setting.name)
            };
            let of_tls = Settings::combine(file.given.iter().filter(is_of_tls).cloned());
            if let Some(conflict) = of_tls.check().err().filter(|_| is_alone) {
                lines.line("wrong", conflict.message.as_bytes());
                return lines;
            }
            lines.line("app", path_bytes(&file.app));
            for given in &file.given {
                lines.value("", given.setting.name, &given.value);
            }
        }
    }
    lines
}

/// Returns a line for each of the `options` of R, one a line, that begins like that of a setting
/// and does not belong to one. With `has_variables`, returns the same for environment variables.
pub(crate) fn unknown_names(options: &str, has_variables: bool) -> String {
    let options: Vec<String> = options.lines().map(str::to_owned).collect();
    let mut unknown = environment::unknown_options(&options);
    if has_variables {
        let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        unknown.append(&mut environment::unknown_variables(&variables.collect::<Vec<_>>()));
    }
    unknown.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines for a value that is given as an argument.
    fn value(name: &str, texts: &[&str]) -> String {
        let lines: Vec<String> = if texts.is_empty() {
            vec![name.to_owned()]
        } else {
            texts.iter().map(|text| format!("{name}={text}")).collect()
        };
        let lines = resolve(name, &lines.join("\n"), |_| None).into_bytes();
        let lines = String::from_utf8(lines).unwrap();
        let is_value = |line: &&str| {
            !["shown", "origin", "where", "setting"].iter().any(|key| line.starts_with(key))
        };
        lines.lines().filter(is_value).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn values_have_a_type() {
        assert_eq!(value("max_body_size", &["10 MB"]), "number:max_body_size=10000000");
        assert_eq!(value("max_body_size", &["Inf"]), "number:max_body_size=Inf");
        assert_eq!(value("reload", &["TRUE"]), "flag:reload=TRUE");
        assert_eq!(value("warmup", &["/a", "/b%25"]), "text:warmup=/a text:warmup=/b%25");
        assert_eq!(value("workers", &["auto"]), "word:workers=auto");
        assert_eq!(
            value("ws_compression", &["level=3"]),
            "number:ws_compression.level=3 number:ws_compression.threshold=512 \
             flag:ws_compression.takeover=FALSE"
        );
        assert_eq!(value("surge", &["2"]), "wanted=0 or 1");
        assert_eq!(value("surge", &[]), "wanted=0 or 1");
        assert!(value("hsts", &["1,preload"]).starts_with("wrong=preload needs subdomains"));
    }

    #[test]
    fn the_strongest_source_gives_the_value() {
        let resolved = |name: &str, sources: &str| {
            let variable = |name: &str| (name == "ROOKERY_MAX_CONNECTIONS").then(|| "5".into());
            String::from_utf8(resolve(name, sources, variable).into_bytes()).unwrap()
        };
        assert_eq!(
            resolved("max_body_size", "option:max_body_size=many\nmax_body_size=1 kB"),
            "number:max_body_size=1000\nshown:max_body_size=1 kB\norigin:max_body_size=argument\n\
             where:max_body_size=`max_body_size`\n"
        );
        assert_eq!(
            resolved("max_connections", "file:max_connections=many"),
            "number:max_connections=5\nshown:max_connections=5\norigin:max_connections=environment\n\
             where:max_connections=The environment variable ROOKERY_MAX_CONNECTIONS\n"
        );
        let all = resolved("max_client_memory\nspool_dir\nidle_timeout", "");
        assert!(
            all.starts_with(
                "number:max_client_memory=NaN\nshown:max_client_memory=a quarter of the memory"
            ),
            "{all}"
        );
        assert!(
            all.contains(
                "\norigin:spool_dir=default\nnumber:idle_timeout=120\nshown:idle_timeout=2 min\n"
            ),
            "{all}"
        );
        for wrong in ["option:error_detail=all", "option:error_detail"] {
            assert_eq!(
                resolved("idle_timeout\nerror_detail", wrong),
                "setting=error_detail\norigin=option\nwhere=The option `rookery.error_detail`\n\
                 wanted=none, message or full\n"
            );
        }
    }

    #[test]
    fn the_table_has_a_line_of_nine_fields_for_each_setting() {
        let text = table_text();
        assert!(text.lines().count() > 50);
        for line in text.lines() {
            assert_eq!(line.split('\t').count(), 9, "{line}");
        }
    }

    #[test]
    fn values_of_a_file_have_a_type() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("_server.yml");
        let lines_of = |text: &str| {
            std::fs::write(&path, text).unwrap();
            String::from_utf8(read_file(&path, true).into_bytes())
                .unwrap()
                .replace(&format!("{}/", folder.path().display()), "")
        };
        assert_eq!(
            lines_of(
                "engine: rookery\napp: a.R\n\
                 options: {worker_timeout: 5, log: no, limits: {max_body_size: 1}}\n"
            ),
            "app=a.R\n\
             number:worker_timeout=5\nword:log=none\nnumber:max_body_size=1\n"
        );
        assert_eq!(lines_of("engine: plumber2\n"), "engine=plumber2\n");
        assert!(lines_of("").starts_with("wrong=In `_server.yml`, line 1, column 1: there is no"));
        std::fs::write(&path, b"engine: rookery\napp: a\xFF.R\n").unwrap();
        assert!(
            String::from_utf8(read_file(&path, true).into_bytes())
                .unwrap()
                .contains("line 2, column 7: the file is not valid UTF-8: save it in UTF-8.")
        );
        assert!(
            lines_of("engine: rookery\napp: a.R\noptions: {tls: {hsts: 1}}\n")
                .starts_with("wrong=In `_server.yml`, line 3")
        );
        assert!(
            lines_of("engine: rookery\napp: a.R\noptions: {prot: 1}\n")
                .starts_with("wrong=In `_server.yml`, line 3, column 11: `prot:`")
        );
    }
}
