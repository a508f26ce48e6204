//! The settings for R: their table, the values that their sources give, and the contents of a
//! `_server.yml`. Values are passed as [`Lines`] of `key=value`.

use std::ffi::OsString;
use std::path::Path;

use rookery_settings::key_value_lines::{self, Lines};
use rookery_settings::{
    Default as InTable, GivenValue, InvalidValue, Places, Raw, Section, Setting, Settings, Source,
    Value, environment, expected_form, server_yml, table,
};

use crate::text::lend;
use crate::text::path::{path_bytes, path_of};
use crate::{Bytes, entry};

/// Returns a line for each setting that R accepts. Its fields are separated by tabs.
fn table_text() -> String {
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
/// Returns for each setting its value, a line `origin:<name>` with its source, and a line
/// `where:<name>` with the words by which messages name the value. If the value is wrong, returns
/// only lines with the setting, its source, the words and the reason.
fn resolve(names: &str, sources: &str, variable: impl Fn(&str) -> Option<OsString>) -> Lines {
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
            }
            lines.line(&format!("origin:{}", setting.name), Source::Default.name().as_bytes());
            continue;
        };
        let read = raw.as_ref().map(|raw| setting.read(raw));
        let place = place(setting, source);
        if let Some(Ok(value)) = read {
            lines.value("", setting.name, &value);
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
/// setting. After an error, returns only a line `wrong` with the message. Returns no lines if the
/// file is for a server other than Rookery.
///
/// `is_alone` is true if this R process does not run under the program `rookery`. Then this
/// function also checks that the HTTPS settings in the file are complete. Otherwise the program has
/// already checked them together with its command line and environment.
fn read_file(path: &Path, is_alone: bool) -> Lines {
    let mut lines = Lines::default();
    let bytes = match server_yml::bytes(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            lines
                .line("wrong", format!("`{}` cannot be read: {error}.", path.display()).as_bytes());
            return lines;
        }
    };
    match server_yml::read(&bytes, path) {
        Ok(None) => {}
        Err(problem) => {
            lines.line("wrong", format!("In `{}`, {problem}", path.display()).as_bytes());
        }
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

/// Returns a line for each setting that R accepts, which is valid until `rk_text_free`.
#[unsafe(no_mangle)]
pub extern "C" fn rk_setting_table() -> Bytes {
    entry(Bytes::EMPTY, || lend(table_text().into_bytes()))
}

/// Determines the values of settings from all their sources. `names` has the name of a setting in
/// each line, and `sources` what the sources give that R knows. The result is valid until
/// `rk_text_free`.
///
/// # Safety
/// - The bytes are readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_resolve_settings(names: Bytes, sources: Bytes) -> Bytes {
    entry(Bytes::EMPTY, || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let (names, sources) = unsafe { (names.get(), sources.get()) };
        let (names, sources) = (String::from_utf8_lossy(names), String::from_utf8_lossy(sources));
        lend(resolve(&names, &sources, |name| std::env::var_os(name)).into_bytes())
    })
}

/// Returns a line for each of the environment variables `names`, one a line, that begins with
/// `ROOKERY_` and does not belong to a setting. The result is valid until `rk_text_free`.
///
/// # Safety
/// - The bytes are readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_unknown_variables(names: Bytes) -> Bytes {
    entry(Bytes::EMPTY, || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let names = String::from_utf8_lossy(unsafe { names.get() });
        let names: Vec<String> = names.lines().map(str::to_owned).collect();
        lend(environment::unknown_variables(&names).join("\n").into_bytes())
    })
}

/// Parses the `_server.yml` at a path for R. The result is valid until `rk_text_free`.
///
/// # Safety
/// - The bytes are readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_read_server_yml(path: Bytes, is_alone: i32) -> Bytes {
    entry(Bytes::EMPTY, || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let path = path_of(unsafe { path.get() });
        lend(read_file(&path, is_alone != 0).into_bytes())
    })
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
        let is_value =
            |line: &&str| !["origin", "where", "setting"].iter().any(|key| line.starts_with(key));
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
            "number:max_body_size=1000\norigin:max_body_size=argument\n\
             where:max_body_size=`max_body_size`\n"
        );
        assert_eq!(
            resolved("max_connections", "file:max_connections=many"),
            "number:max_connections=5\norigin:max_connections=environment\n\
             where:max_connections=The environment variable ROOKERY_MAX_CONNECTIONS\n"
        );
        let all = resolved("max_client_memory\nspool_dir\nidle_timeout", "");
        assert!(all.starts_with("number:max_client_memory=NaN\norigin:max_client_memory=default"));
        assert!(all.contains("\norigin:spool_dir=default\nnumber:idle_timeout=120\n"), "{all}");
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
        assert_eq!(lines_of("engine: plumber2\n"), "");
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
