//! Values of settings for R, by the table of settings, and `_server.yml`.
//!
//! What R is told are lines `key=value`, with `%` and ends of lines as URLs write them (`cli_read()` in
//! R). The key of a value begins with its type: `number:port=8000`. A list has a line for each value.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rookery_settings::table::{find, find_former_in};
use rookery_settings::{Given, Places, Raw, Section, Setting, Settings, Value, file, wanted};

use crate::text::lend;
use crate::{Bytes, entry};

/// Lines for R.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn line(&mut self, key: &str, value: &[u8]) {
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(b'=');
        for byte in value {
            match byte {
                b'%' => self.0.extend_from_slice(b"%25"),
                b'\n' => self.0.extend_from_slice(b"%0A"),
                other => self.0.push(*other),
            }
        }
        self.0.push(b'\n');
    }

    /// Adds a value under a name.
    fn value(&mut self, name: &str, value: &Value) {
        match value {
            Value::Flag(is_on) => self.line(&format!("flag:{name}"), if *is_on { b"TRUE" } else { b"FALSE" }),
            Value::Number(number) if number.is_infinite() => self.line(&format!("number:{name}"), b"Inf"),
            Value::Number(number) => self.line(&format!("number:{name}"), number.to_string().as_bytes()),
            Value::Word(word) => self.line(&format!("word:{name}"), word.as_bytes()),
            Value::Text(text) => self.line(&format!("text:{name}"), text.as_bytes()),
            Value::Path(path) => self.line(&format!("text:{name}"), path.as_os_str().as_bytes()),
            Value::List(list) => {
                for one in list {
                    self.line(&format!("text:{name}"), one.as_bytes());
                }
            }
            Value::Paths(paths) => {
                for one in paths {
                    self.line(&format!("text:{name}"), one.as_os_str().as_bytes());
                }
            }
            Value::Fields(fields) => {
                for (field, value) in fields {
                    self.value(&format!("{name}.{field}"), value);
                }
            }
        }
    }
}

/// Finds a setting by its name, or by the former one that R still has.
fn setting_of(name: &str) -> Option<&'static Setting> {
    find(name).or_else(|| find_former_in(Places::R, name).map(|found| found.setting))
}

fn decoded(line: &str) -> String {
    line.replace("%0A", "\n").replace("%25", "%")
}

/// Reads a value of a setting: its lines, or `wanted` or `wrong`.
fn read_value(name: &str, values: &str) -> Lines {
    let mut lines = Lines::default();
    let Some(setting) = setting_of(name) else {
        lines.line("wrong", format!("`{name}` is not a setting").as_bytes());
        return lines;
    };
    let mut raw: Vec<Raw> = values.lines().map(|line| Raw::Text(decoded(line))).collect();
    let raw = match raw.pop() {
        None => {
            lines.line("wanted", wanted(setting).as_bytes());
            return lines;
        }
        Some(one) if raw.is_empty() => one,
        Some(last) => Raw::List(raw.into_iter().chain([last]).collect()),
    };
    match setting.read(&raw) {
        Ok(value) => lines.value("value", &value),
        Err(invalid) => match invalid.wanted() {
            Some(wanted) => lines.line("wanted", wanted.as_bytes()),
            None => {
                lines.line("wrong", invalid.at("").trim_start_matches(": ").trim_end_matches('.').as_bytes());
            }
        },
    }
    lines
}

/// Reads a `_server.yml`: `app`, each value and each `note`; or `wrong`. Nothing for another engine.
/// A file that is alone is to have all that its settings of HTTPS need; to others the command line or
/// the environment may add it, which the program has checked.
fn read_file(path: &Path, is_alone: bool) -> Lines {
    let mut lines = Lines::default();
    let bytes = match file::bytes(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            lines.line("wrong", format!("`{}` cannot be read: {error}.", path.display()).as_bytes());
            return lines;
        }
    };
    match file::read(&bytes, path) {
        Ok(None) => {}
        Err(problem) => lines.line("wrong", format!("In `{}`, {problem}", path.display()).as_bytes()),
        Ok(Some(file)) => {
            // What belongs together across sources, such as the number of workers, is checked by whoever
            // combines them; `tls:` is one value.
            let is_of_tls = |given: &&Given| {
                matches!(given.setting.section, Section::Tls | Section::Acme)
                    || ["tls", "host"].contains(&given.setting.name)
            };
            let of_tls = Settings::combine(file.given.iter().filter(is_of_tls).cloned());
            if let Some(conflict) = of_tls.check().err().filter(|_| is_alone) {
                lines.line("wrong", conflict.message.as_bytes());
                return lines;
            }
            lines.line("app", file.app.as_os_str().as_bytes());
            for note in &file.notes {
                lines.line("note", note.as_bytes());
            }
            for given in &file.given {
                lines.value(given.setting.name, &given.value);
            }
        }
    }
    lines
}

/// Reads the value of a setting, of which `values` has a line for each part. What is returned lives
/// until `rk_text_done`.
///
/// # Safety
/// - The bytes are readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_setting(name: Bytes, values: Bytes) -> Bytes {
    entry(Bytes::EMPTY, || {
        // SAFETY: the caller's duty.
        let (name, values) = unsafe { (name.get(), values.get()) };
        lend(read_value(&String::from_utf8_lossy(name), &String::from_utf8_lossy(values)).0)
    })
}

/// Reads the `_server.yml` at a path. What is returned lives until `rk_text_done`.
///
/// # Safety
/// - The bytes are readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_server_file(path: Bytes, is_alone: i32) -> Bytes {
    entry(Bytes::EMPTY, || {
        // SAFETY: the caller's duty.
        let path = Path::new(OsStr::from_bytes(unsafe { path.get() }));
        lend(read_file(path, is_alone != 0).0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str, values: &str) -> String {
        String::from_utf8(read_value(name, values).0).unwrap()
    }

    #[test]
    fn values_are_told_with_their_type() {
        assert_eq!(value("max_body_size", "10 MB"), "number:value=10000000\n");
        assert_eq!(value("body_bytes", "Inf"), "number:value=Inf\n");
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
    fn a_file_is_told_with_the_types_of_its_values() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("_server.yml");
        let told = |text: &str| {
            std::fs::write(&path, text).unwrap();
            String::from_utf8(read_file(&path, true).0)
                .unwrap()
                .replace(&format!("{}/", folder.path().display()), "")
        };
        assert_eq!(
            told(
                "engine: rookery\napp: a.R\noptions: {worker_timeout: 5, log: no, limits: {body_bytes: 1}}\n"
            ),
            "app=a.R\nnote=`body_bytes:` in `_server.yml`, line 3 is deprecated: write `limits.max_body_size:`\n\
             number:worker_timeout=5\nword:log=none\nnumber:max_body_size=1\n"
        );
        assert_eq!(told("engine: plumber2\n"), "");
        std::fs::write(&path, b"engine: rookery\napp: a\xFF.R\n").unwrap();
        assert!(
            String::from_utf8(read_file(&path, true).0)
                .unwrap()
                .contains("line 2, column 7: the file is not text in UTF-8.")
        );
        assert!(
            told("engine: rookery\napp: a.R\noptions: {tls: {hsts: 1}}\n")
                .starts_with("wrong=In `_server.yml`, line 3")
        );
        assert!(
            told("engine: rookery\napp: a.R\noptions: {prot: 1}\n")
                .starts_with("wrong=In `_server.yml`, line 3, column 11: `prot:`")
        );
    }
}
