//! Parses values of settings and `_server.yml` files for R, according to the table of settings. The
//! results are [`Lines`] of `key=value`.

use std::path::Path;

use rookery_settings::key_value_lines::{self, Lines};
use rookery_settings::{
    GivenValue, Section, Settings, environment, expected_form, server_yml, table,
};

use crate::text::lend;
use crate::text::path::{path_bytes, path_of};
use crate::{Bytes, entry};

/// Parses the value of the setting `name` for R. `values` has a line for each part of the value.
/// Returns the parsed value as lines `key=value`. After an error, the only line has the key
/// `wanted` (with the expected form) or `wrong` (with an error message).
fn read_value(name: &str, values: &str) -> Lines {
    let mut lines = Lines::default();
    let Some(setting) = table::find(name) else {
        lines.line("wrong", format!("`{name}` is not a setting").as_bytes());
        return lines;
    };
    let Some(raw) = key_value_lines::raw(values.lines()) else {
        lines.line("wanted", expected_form(setting).as_bytes());
        return lines;
    };
    match setting.read(&raw) {
        Ok(value) => lines.value("", "value", &value),
        Err(invalid) => match invalid.wanted() {
            Some(wanted) => lines.line("wanted", wanted.as_bytes()),
            None => {
                lines.line(
                    "wrong",
                    invalid.at("").trim_start_matches(": ").trim_end_matches('.').as_bytes(),
                );
            }
        },
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

/// Parses the value of the setting `name` for R. `values` has a line for each part of the value.
/// Returns lines `key=value`, which are valid until `rk_text_free`.
///
/// # Safety
/// - The bytes are readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_read_setting(name: Bytes, values: Bytes) -> Bytes {
    entry(Bytes::EMPTY, || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let (name, values) = unsafe { (name.get(), values.get()) };
        lend(
            read_value(&String::from_utf8_lossy(name), &String::from_utf8_lossy(values))
                .into_bytes(),
        )
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

    fn value(name: &str, values: &str) -> String {
        String::from_utf8(read_value(name, values).into_bytes()).unwrap()
    }

    #[test]
    fn values_have_a_type() {
        assert_eq!(value("max_body_size", "10 MB"), "number:value=10000000\n");
        assert_eq!(value("max_body_size", "Inf"), "number:value=Inf\n");
        assert_eq!(value("reload", "TRUE"), "flag:value=TRUE\n");
        assert_eq!(value("warmup", "/a\n/b%25"), "text:value=/a\ntext:value=/b%25\n");
        assert_eq!(value("workers", "auto"), "word:value=auto\n");
        assert_eq!(
            value("ws_compression", "level=3"),
            "number:value.level=3\nnumber:value.threshold=512\nflag:value.takeover=FALSE\n"
        );
        assert_eq!(value("surge", "2"), "wanted=0 or 1\n");
        assert_eq!(value("surge", ""), "wanted=0 or 1\n");
        assert!(value("hsts", "1,preload").starts_with("wrong=preload needs subdomains"));
        assert_eq!(value("nonsense", "1"), "wrong=`nonsense` is not a setting\n");
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
