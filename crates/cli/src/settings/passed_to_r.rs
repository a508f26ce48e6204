//! The settings that are passed to an R process when it is started.

use std::path::PathBuf;

use rookery_server::tls::Pem;
use rookery_settings::key_value_lines::Lines;
use rookery_settings::{Places, Section, Setting, Settings, Source, Value, table};

use crate::settings::server::Https;
use crate::user_paths::absolute;

/// Adds to `lines`, which contains the settings for an R process, all given settings that R also
/// accepts as `options()`.
pub(crate) fn pass_to_r(all: &Settings, lines: &mut Lines) {
    for given in table::all()
        .filter(|row| row.places.has(Places::OPTION))
        .filter_map(|row| all.given(row.name))
    {
        let source = match given.source {
            Source::Environment => "environment:",
            Source::File => "file:",
            _ => "cli:",
        };
        lines.value(source, given.setting.name, &with_absolute_paths(given.value.clone()));
    }
}

/// Adds the HTTPS settings to `lines`, which contains the settings for an R process. Settings that
/// are not given get their defaults.
#[cfg_attr(unix, allow(dead_code, reason = "the supervisor applies these settings"))]
pub(crate) fn pass_https(all: &Settings, lines: &mut Lines) {
    if Https::of(all).is_none() {
        return;
    }
    let is_https =
        |row: &Setting| row.name == "tls" || matches!(row.section, Section::Tls | Section::Acme);
    for row in table::all().filter(|row| is_https(row)) {
        if let Some(value) = all.value(row.name) {
            lines.value("tls:", row.name, &with_absolute_paths(value));
        }
    }
}

/// Makes the paths in a setting's value absolute, because the R process is started in another
/// folder. Keys that are given as text stay as they are.
fn with_absolute_paths(value: Value) -> Value {
    let absolute = |path: &PathBuf| match Pem::from_text_or_path(&path.to_string_lossy()) {
        Pem::File(_) => absolute(path),
        Pem::Text(_) => path.clone(),
    };
    match value {
        Value::Path(path) => Value::Path(absolute(&path)),
        Value::Paths(paths) => Value::Paths(paths.iter().map(absolute).collect()),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::settings_from;

    fn lines_of(fill: impl Fn(&mut Lines)) -> Vec<String> {
        let mut lines = Lines::default();
        fill(&mut lines);
        String::from_utf8(lines.into_bytes()).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn passes_settings_to_r_with_their_source() {
        let settings = settings_from(&[
            (Source::CommandLine, "trusted_proxies", "10.0.0.0/8,unix"),
            (Source::Environment, "error_detail", "full"),
            (Source::File, "request_id_header", "off"),
            (Source::CommandLine, "spool_dir", "/tmp"),
            (Source::CommandLine, "port", "1"),
        ]);
        let lines = lines_of(|lines| pass_to_r(&settings, lines));
        assert_eq!(
            lines,
            [
                "cli:text:trusted_proxies=10.0.0.0/8",
                "cli:text:trusted_proxies=unix",
                "cli:text:spool_dir=/tmp",
                "file:flag:request_id_header=FALSE",
                "environment:text:error_detail=full",
            ]
        );
    }
}
