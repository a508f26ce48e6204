//! The settings that are passed to an R process when it is started.

use rookery_settings::key_value_lines::Lines;
use rookery_settings::{Places, Section, Setting, Source, Value, table};

use crate::settings::combined::CombinedSettings;
use crate::user_paths::absolute;

/// The settings that a worker gets if the supervisor accepts the connections. The supervisor itself
/// applies all other settings.
#[cfg(unix)]
const WORKER_SETTINGS: [&str; 9] = [
    // R needs the timeout for `interrupt_requests`.
    "request_timeout",
    "ws_origins",
    "ws_compression",
    "interrupt_requests",
    "error_detail",
    "reconnect",
    "server_timing",
    // R needs these for further servers that the app starts.
    "request_id_header",
    "spool_dir",
];

impl CombinedSettings {
    /// Adds to `lines`, which contains the settings for an R process, all given settings that R
    /// also accepts as `options()`.
    pub(crate) fn pass_to_r(&self, lines: &mut Lines) {
        self.pass_rows(lines, |row| row.places.has(Places::OPTION));
    }

    /// Adds to `lines`, which contains the settings for a worker, all given settings that a worker
    /// needs if the supervisor accepts its connections.
    #[cfg(unix)]
    pub(crate) fn pass_to_worker(&self, lines: &mut Lines) {
        self.pass_rows(lines, |row| WORKER_SETTINGS.contains(&row.name));
    }

    /// Adds the given settings that `is_included` accepts to `lines`, which contains the settings
    /// for an R process. The key of each line begins with the source of the setting.
    fn pass_rows(&self, lines: &mut Lines, is_included: impl Fn(&Setting) -> bool) {
        for given in
            table::all().filter(|row| is_included(row)).filter_map(|row| self.0.given(row.name))
        {
            let source = match given.source {
                Source::Environment => "environment:",
                Source::File => "file:",
                _ => "cli:",
            };
            lines.value(source, given.setting.name, &with_absolute_paths(given.value.clone()));
        }
    }

    /// Adds the HTTPS settings that `is_included` accepts to `lines`, which contains the settings
    /// for an R process. Settings that are not given get their defaults.
    pub(crate) fn pass_https(&self, lines: &mut Lines, is_included: impl Fn(&Setting) -> bool) {
        if self.https().is_none() {
            return;
        }
        let is_https = |row: &Setting| {
            row.name == "tls" || matches!(row.section, Section::Tls | Section::Acme)
        };
        for row in table::all().filter(|row| is_https(row) && is_included(row)) {
            if let Some(value) = self.0.value(row.name) {
                lines.value("tls:", row.name, &with_absolute_paths(value));
            }
        }
    }
}

/// Makes the paths in a setting's value absolute, because the R process is started in another
/// folder.
fn with_absolute_paths(value: Value) -> Value {
    match value {
        Value::Path(path) => Value::Path(absolute(&path)),
        Value::Paths(paths) => Value::Paths(paths.iter().map(|path| absolute(path)).collect()),
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

    #[cfg(unix)]
    #[test]
    fn passes_only_settings_that_apply_in_r_to_workers() {
        let settings = settings_from(&[
            (Source::CommandLine, "ws_max_message_size", "1MB"),
            (Source::CommandLine, "max_body_size", "2MB"),
            (Source::File, "error_detail", "full"),
            (Source::CommandLine, "ws_compression", "level=3"),
            (Source::CommandLine, "ws_origins", "same"),
            (Source::CommandLine, "trusted_proxies", "unix"),
        ]);
        let lines = lines_of(|lines| settings.pass_to_worker(lines));
        assert_eq!(
            lines,
            [
                "cli:text:ws_origins=same",
                "cli:number:ws_compression.level=3",
                "cli:number:ws_compression.threshold=512",
                "cli:flag:ws_compression.takeover=FALSE",
                "file:text:error_detail=full",
            ]
        );
    }

    /// Tests which settings can change at a reload: those that only the worker uses, and those of
    /// the process that accepts connections if that process is the worker.
    #[cfg(unix)]
    #[test]
    fn settings_that_workers_get_apply_at_a_reload() {
        use rookery_settings::Applies;
        let of_both = ["request_timeout", "server_timing", "request_id_header", "spool_dir"];
        for row in table::all() {
            if WORKER_SETTINGS.contains(&row.name) && !of_both.contains(&row.name) {
                assert_eq!(row.applies, Applies::AtReload, "{}", row.name);
            } else if row.places.has(Places::OPTION) {
                assert_eq!(row.applies, Applies::WithAcceptingProcess, "{}", row.name);
            }
        }
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
        let lines = lines_of(|lines| settings.pass_to_r(lines));
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
