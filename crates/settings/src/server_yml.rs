//! The parser of configuration files `_server.yml` with `engine: rookery`.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::combined::{GivenValue, Source};
use crate::kind::{Form, Kind, Raw, Value, escaped};
use crate::setting::{Section, Setting};
use crate::suggestions::did_you_mean;
use crate::table;
use crate::text_forms::{ADMIN, HOST, UNIX};
use crate::yaml::{self, Content, Field, FileError, Node, Position, file_error};

/// The value of `engine:` in a `_server.yml` that Rookery reads. Files with another value are for
/// other servers.
pub const ENGINE: &str = "rookery";
/// The usual values of `engine:`. Other packages may have a function `launch_server()` as well,
/// unless their names look like a misspelling of these.
const ENGINES: [&str; 2] = [ENGINE, "plumber2"];
const KEYS: [&str; 3] = ["engine", "app", "options"];

/// The content of a configuration file `_server.yml`.
#[derive(Debug)]
pub struct ServerFile {
    /// The file or folder of the app to serve. Its path is absolute if the path of the
    /// `_server.yml` was given as an absolute path.
    pub app: PathBuf,
    /// The settings that the file gives.
    pub given: Vec<GivenValue>,
    /// A warning that the file has no effect, which the caller has to log.
    pub note: Option<String>,
}

/// Reads the content of the `_server.yml` at `path`. If the file is larger than the maximum size,
/// returns one byte more than this size, so that the caller can tell that the file is too large.
///
/// # Errors
/// Fails with the error of the system.
pub fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(yaml::MAX_FILE_SIZE as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Parses `bytes`, the content of the `_server.yml` at `path`. Relative paths in the file are
/// resolved against its folder. Returns `None` if the file is for a server other than Rookery.
///
/// # Errors
/// Fails with the first mistake and its position.
pub fn read(bytes: &[u8], path: &Path) -> Result<Option<ServerFile>, FileError> {
    if utf16(bytes).is_some_and(|text| names_engine(&text)) {
        return file_error(Position::START, "the file is encoded in UTF-16: save it in UTF-8.");
    }
    // A file of another engine need not be valid UTF-8.
    let text = String::from_utf8_lossy(bytes);
    let node = match yaml::parse(&text) {
        Ok(node) => node,
        Err(error) if names_engine(&text) => return Err(error),
        Err(_) => return Ok(None),
    };
    let Content::Fields(fields) = &node.content else { return Ok(None) };
    let find = |key: &str| fields.iter().find(|field| field.key == key);
    let is_ours =
        |field: &Field| matches!(&field.value.content, Content::Text(text) if text == ENGINE);
    if !find("engine").is_some_and(is_ours) {
        return Ok(None);
    }
    if let Err(error) = std::str::from_utf8(bytes) {
        let at = Position::end_of(&String::from_utf8_lossy(&bytes[..error.valid_up_to()]));
        return file_error(at, "the file is not valid UTF-8: save it in UTF-8.");
    }
    if let Some(unknown) = fields.iter().find(|field| !KEYS.contains(&field.key.as_str())) {
        let key = normalized(&unknown.key);
        let below =
            Section::ALL.into_iter().find(|section| table::find_key(*section, &key).is_some());
        let hint = match below {
            _ if Section::ALL.iter().any(|section| section.key() == key) => {
                " It belongs under `options:`.".to_owned()
            }
            Some(section) => format!(" It belongs under `{}:`.", section.key()),
            None => did_you_mean(&unknown.key, KEYS, |near| format!("`{near}:`")),
        };
        return file_error(
            unknown.at,
            format!("`{}:` is not a key of `_server.yml`.{hint}", escaped(&unknown.key)),
        );
    }
    let base = path.parent().unwrap_or(Path::new(""));
    let Some(app) = find("app") else {
        let message = "`engine: rookery` needs `app:`, the file or folder to serve.";
        return file_error(node.at, message);
    };
    let Content::Text(app) = &app.value.content else {
        return file_error(app.value.at, "`app:` must be the path of a file or folder.");
    };
    let mut reader = Reader { base, shown: path.display().to_string(), given: Vec::new() };
    if let Some(options) = find("options") {
        reader.section(Section::Options, &options.value)?;
    }
    let app = relative_to(Path::new(app), base);
    Ok(Some(ServerFile { app, given: reader.given, note: None }))
}

/// Returns the name of the R package in `engine:` of a `_server.yml`, whose content is `bytes`. The
/// other keys are not checked, because only that package knows them.
///
/// # Errors
/// Fails if the file names no package, or one that looks like a misspelling.
pub fn engine(bytes: &[u8]) -> Result<String, FileError> {
    let text = utf16(bytes).unwrap_or_else(|| String::from_utf8_lossy(bytes).into_owned());
    let is_package = |name: &str| {
        let mut letters = name.bytes();
        letters.next().is_some_and(|first| first.is_ascii_alphabetic())
            && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'.')
    };
    let node = match yaml::parse(&text) {
        Ok(node) => node,
        Err(error) if error.message.starts_with(yaml::NOT_VALID) => return Err(error),
        // The package may know more of YAML than this parser, such as tags.
        Err(error) => {
            let named = engines_in_lines(&text).find(|name| is_package(name));
            return named.map(str::to_owned).ok_or(error);
        }
    };
    let named = match &node.content {
        Content::Fields(fields) => fields.iter().find(|field| field.key == "engine"),
        _ => None,
    };
    match named.map(|field| (field.at, &field.value.content)) {
        Some((at, Content::Text(name))) if name != ENGINE && name.eq_ignore_ascii_case(ENGINE) => {
            let message = "package names are case-sensitive: `rookery`";
            file_error(at, format!("`engine:` is `{name}`, but {message}."))
        }
        Some((at, Content::Text(name))) if is_package(name) => {
            let hint = did_you_mean(name, ENGINES, |near| format!("`{near}`"));
            if hint.is_empty() || ENGINES.contains(&name.as_str()) {
                return Ok(name.clone());
            }
            file_error(at, format!("`engine:` is `{name}`, which runs no apps.{hint}"))
        }
        named => {
            let at = named.map_or(node.at, |(at, _)| at);
            file_error(at, "there is no `engine:` that names an R package, such as `rookery`.")
        }
    }
}

/// Decodes the content of a `_server.yml` that is encoded in UTF-16. Returns `None` for other
/// encodings. UTF-16 is recognized by a byte order mark, or by the two bytes of an ASCII character
/// at the start.
fn utf16(bytes: &[u8]) -> Option<String> {
    let unit = match bytes {
        [0xFF, 0xFE, ..] | [1..=0x7F, 0, ..] => u16::from_le_bytes,
        [0xFE, 0xFF, ..] | [0, 1..=0x7F, ..] => u16::from_be_bytes,
        _ => return None,
    };
    let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
    Some(String::from_utf16_lossy(&units))
}

/// Returns true if a line of `text` sets the key `engine` to `rookery`. This shows that a file
/// which is not valid YAML is meant for Rookery.
fn names_engine(text: &str) -> bool {
    engines_in_lines(text).any(|name| name == ENGINE)
}

/// Returns the values that lines of `text`, which need not be valid YAML, give to the key `engine`.
fn engines_in_lines(text: &str) -> impl Iterator<Item = &str> {
    let quotes = [' ', '\t', '"', '\''];
    text.lines().filter_map(move |line| {
        let line =
            line.trim_start_matches('\u{feff}').trim_start_matches('{').trim_start_matches(quotes);
        let value = line.strip_prefix("engine")?.trim_start_matches(quotes).strip_prefix(':')?;
        let mut words =
            value.split([' ', '\t', '"', '\'', ',', '}']).filter(|word| !word.is_empty());
        // An anchor may precede the value.
        words.find(|word| !word.starts_with('&'))
    })
}

/// Replaces each `-` by `_` in a key of `_server.yml`, because both spellings are accepted.
fn normalized(key: &str) -> String {
    key.replace('-', "_")
}

/// The environment variable that names the user's home folder.
const HOME: &str = if cfg!(windows) { "USERPROFILE" } else { "HOME" };

/// Resolves a path relative to the folder `base`. A leading `~` stands for the home folder.
pub fn relative_to(path: &Path, base: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os(HOME)) {
        (Ok(rest), Some(home)) if rest.as_os_str().is_empty() => home.into(),
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        _ => base.join(path),
    }
}

struct Reader<'a> {
    base: &'a Path,
    shown: String,
    given: Vec<GivenValue>,
}

impl Reader<'_> {
    fn section(&mut self, section: Section, node: &Node) -> Result<(), FileError> {
        let fields = match &node.content {
            Content::Null => return Ok(()),
            Content::Fields(fields) => fields,
            _ => {
                let example = match section {
                    Section::Options => "port: 8000",
                    Section::Limits => "max_body_size: 10MB",
                    Section::Tls => "cert: cert.pem",
                    Section::Acme => "domain: app.example.org",
                };
                let message = format!("`{}:` must have fields such as `{example}`.", section.key());
                return file_error(node.at, message);
            }
        };
        let mut seen: Vec<(&'static str, &Field)> = Vec::new();
        for field in fields {
            let key = normalized(&field.key);
            let inner = Section::ALL
                .into_iter()
                .find(|inner| inner.parent() == Some(section) && inner.key() == key);
            match inner {
                // `tls: dev` is a setting, although `tls:` is also a section.
                Some(Section::Tls) if matches!(field.value.content, Content::Text(_)) => {}
                Some(inner) => {
                    if let Some((_, other)) = seen.iter().find(|(name, _)| *name == inner.key()) {
                        return duplicate(field, other);
                    }
                    seen.push((inner.key(), field));
                    self.section(inner, &field.value)?;
                    continue;
                }
                None => {}
            }
            let Some(setting) = table::find_key(section, &key) else {
                let hint = table::hint_for_key(section, &key);
                return file_error(
                    field.at,
                    format!(
                        "`{}:` is not a setting under `{}:`.{hint}",
                        escaped(&field.key),
                        section.key()
                    ),
                );
            };
            if let Some((_, other)) = seen.iter().find(|(name, _)| *name == setting.name) {
                return duplicate(field, other);
            }
            seen.push((setting.name, field));
            self.setting(setting, field)?;
        }
        Ok(())
    }

    fn setting(&mut self, setting: &'static Setting, field: &Field) -> Result<(), FileError> {
        let Some(mut raw) = field.value.to_raw() else { return Ok(()) };
        if let (Kind::Composite(composite), Content::Fields(fields), Raw::Fields(pairs)) =
            (setting.kind, &field.value.content, &mut raw)
        {
            let known = || composite.fields.iter().map(|(name, _)| *name);
            if let Some(unknown) =
                fields.iter().find(|field| !known().any(|name| name == normalized(&field.key)))
            {
                let hint =
                    did_you_mean(&normalized(&unknown.key), known(), |near| format!("`{near}:`"));
                let message = format!(
                    "`{}:` is not a field of `{}:`.{hint}",
                    escaped(&unknown.key),
                    field.key
                );
                return file_error(unknown.at, message);
            }
            for (name, _) in pairs {
                *name = normalized(name);
            }
        }
        let value = setting.read(&raw).map_err(|invalid| FileError {
            at: field.value.at,
            message: invalid.at(&format!("`{}:`", field.key)),
        })?;
        let place = Some(self.place(field.at));
        self.given.push(GivenValue {
            setting,
            value: self.resolved(setting, value),
            source: Source::File,
            place,
        });
        Ok(())
    }

    fn place(&self, at: Position) -> String {
        format!("`{}`, line {}", self.shown, at.line)
    }

    /// Resolves the paths in a setting's value relative to the folder of the `_server.yml`.
    fn resolved(&self, setting: &Setting, value: Value) -> Value {
        let is = |form: &Form, other: &Form| std::ptr::eq(form, other);
        let is_address =
            matches!(setting.kind, Kind::Text(form) if is(form, &HOST) || is(form, &ADMIN));
        match value {
            Value::Path(path) => Value::Path(relative_to(&path, self.base)),
            Value::Paths(paths) => {
                Value::Paths(paths.iter().map(|path| relative_to(path, self.base)).collect())
            }
            Value::Text(text) if is_address => match text.strip_prefix(UNIX) {
                Some(path) => Value::Text(format!(
                    "{UNIX}{}",
                    relative_to(Path::new(path), self.base).display()
                )),
                None => Value::Text(text),
            },
            other => other,
        }
    }
}

fn duplicate(field: &Field, other: &Field) -> Result<(), FileError> {
    let message = format!(
        "`{}:` and `{}:` in line {} are the same setting: leave one of them out.",
        field.key, other.key, other.at.line
    );
    file_error(field.at, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_app(options: &str) -> Result<ServerFile, String> {
        let text = format!("engine: rookery\napp: app.R\noptions:\n{options}");
        match read(text.as_bytes(), Path::new("/srv/_server.yml")) {
            Ok(file) => Ok(file.expect("it is for this engine")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn given(options: &str) -> Vec<String> {
        let file = read_app(options).unwrap();
        file.given.iter().map(|given| format!("{} {:?}", given.setting.name, given.value)).collect()
    }

    fn wrong(options: &str) -> String {
        read_app(options).map_or_else(|error| error, |file| format!("{file:?}"))
    }

    #[test]
    fn parses_every_section() {
        let found = given(
            "  port: 9000\n  trusted-proxies: [10.0.0.0/8, unix]\n  proxy_protocol: yes\n  log: \
             off\n  ws_compression:\n    level: 6\n  limits:\n    max_body_size: 10 MB\n    \
             idle_timeout: .inf\n  tls:\n    cert: cert.pem\n    hsts: {max_age: 300, \
             include-subdomains: on}\n    http2: no\n  workers: auto\n",
        );
        assert_eq!(
            found,
            [
                "port Number(9000.0)",
                "trusted_proxies List([\"10.0.0.0/8\", \"unix\"])",
                "proxy_protocol Flag(true)",
                "log Word(\"none\")",
                "ws_compression Fields([(\"level\", Number(6.0)), (\"threshold\", Number(512.0)), \
                 (\"takeover\", Flag(false))])",
                "max_body_size Number(10000000.0)",
                "idle_timeout Number(inf)",
                "tls_cert Paths([\"/srv/cert.pem\"])",
                "hsts Fields([(\"max_age\", Number(300.0)), (\"include_subdomains\", Flag(true)), \
                 (\"preload\", Flag(false))])",
                "http2 Flag(false)",
                "workers Word(\"auto\")",
            ]
        );
        assert_eq!(given("  tls: dev\n"), ["tls Text(\"dev\")"]);
        assert_eq!(given("  port:\n  tls: ~\n  limits: {}\n"), [""; 0]);
        assert_eq!(
            given(
                "  tls:\n    acme:\n      domain: a.org\n      email: [a@b, c@d]\n      \
                 agree_tos: true\n"
            ),
            ["domain List([\"a.org\"])", "email List([\"a@b\", \"c@d\"])", "agree_tos Flag(true)"]
        );
    }

    #[test]
    fn reports_syntax_errors_for_each_spelling_of_the_engine() {
        let path = Path::new("/srv/_server.yml");
        for (text, is_told) in [
            ("engine: rookery\napp: [\n", true),
            ("\"engine\": \"rookery\"\napp: a.R\noptions: {workers: 3\n", true),
            ("{\"engine\": \"rookery\", \"app\": \"a.R\"\n", true),
            ("engine : rookery # ours\na: 1\na: 2\n", true),
            ("engine: &e rookery\n*e : x\n", true),
            ("\u{feff}engine: rookery\napp: [\n", true),
            ("engine: rookery2\napp: [\n", false),
            ("engine: plumber2\napp: [\n", false),
            ("engines: rookery\napp: [\n", false),
        ] {
            let read = read(text.as_bytes(), path);
            assert_eq!(read.is_err(), is_told, "{text}: {read:?}");
        }
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let found = given(
            "  host: unix:run/s\n  admin: unix:/run/a\n  log: logs/access.log\n  spool_dir: /tmp\n",
        );
        assert_eq!(
            found,
            [
                "host Text(\"unix:/srv/run/s\")",
                "admin Text(\"unix:/run/a\")",
                "log Path(\"/srv/logs/access.log\")",
                "spool_dir Path(\"/tmp\")"
            ]
        );
        assert_eq!(read_app("  port: 1\n").unwrap().app, Path::new("/srv/app.R"));
    }

    #[test]
    fn reports_mistakes_with_line_column_and_hint() {
        for (options, message) in [
            (
                "  prot: 1\n",
                "line 4, column 3: `prot:` is not a setting under `options:`. Did you mean \
                 `port:`?",
            ),
            (
                "  port: 1\n  max_body_size: 1\n",
                "line 5, column 3: `max_body_size:` is not a setting under `options:`. It belongs \
                 under `limits:`.",
            ),
            (
                "  limits:\n    max_bodysize: 1\n",
                "line 5, column 5: `max_bodysize:` is not a setting under `limits:`. Did you mean \
                 `max_body_size:`?",
            ),
            (
                "  port: http\n",
                "line 4, column 9: `port:` must be a whole number from 0 to 65535, not `http`.",
            ),
            (
                "  port: 010\n",
                "line 4, column 9: `port:` must be a whole number from 0 to 65535, not `010`.",
            ),
            (
                "  port: [1]\n",
                "line 4, column 9: `port:` must be a whole number from 0 to 65535, not a list of \
                 `1`.",
            ),
            (
                "  ws_compression: {levels: 1}\n",
                "line 4, column 20: `levels:` is not a field of `ws_compression:`. Did you mean \
                 `level:`?",
            ),
            (
                "  limits: 5\n",
                "line 4, column 11: `limits:` must have fields such as `max_body_size: 10MB`.",
            ),
            ("  tls: [a]\n", "line 4, column 8: `tls:` must have fields such as `cert: cert.pem`."),
            (
                "  log-format: json\n  log_format: json\n",
                "line 5, column 3: `log_format:` and `log-format:` in line 4 are the same \
                 setting: leave one of them out.",
            ),
            (
                "  tls: {password: x}\n",
                "line 4, column 9: `password:` is not a setting under `tls:`.",
            ),
        ] {
            assert_eq!(wrong(options), message, "{options}");
        }
        let read = |text: &str| {
            read(text.as_bytes(), Path::new("_server.yml"))
                .map(|file| file.is_some())
                .map_err(|it| it.to_string())
        };
        assert_eq!(
            read("engine: rookery\n").unwrap_err(),
            "line 1, column 1: `engine: rookery` needs `app:`, the file or folder to serve."
        );
        assert_eq!(
            read("engine: rookery\nap: a\n").unwrap_err(),
            "line 2, column 1: `ap:` is not a key of `_server.yml`. Did you mean `app:`?"
        );
        assert_eq!(
            read("engine: rookery\napp: a\nport: 1\n").unwrap_err(),
            "line 3, column 1: `port:` is not a key of `_server.yml`. It belongs under `options:`."
        );
        assert!(read("engine: rookery\napp: [\n").is_err());
    }

    #[test]
    fn messages_escape_and_cut_text_of_the_file() {
        for (options, expected) in [
            ("  \"a\\e[31m\\nb\": 1\n", "`a\\u{1b}[31m\\nb:` is not a setting"),
            ("  ws_compression: {\"a\\e\": 1}\n", "`a\\u{1b}:` is not a field"),
            ("  port: \"\\e]0;x\\a\"\n", "not `\\u{1b}]0;x\\u{7}`."),
            ("  port: {\"a\\e\": 1}\n", "not a field `a\\u{1b}`."),
            ("  \"a\\e\": 1\n  \"a\\e\": 1\n", "`a\\u{1b}:` is given twice"),
            ("  a: !x%1B y\n", "the tag `!x\\u{1b}` is not supported"),
        ] {
            let message = wrong(options);
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains(char::is_control), "{message:?}");
        }
        let long = wrong(&format!("  {}: 1\n", "x".repeat(500)));
        assert!(long.contains(&format!("`{}...:`", "x".repeat(80))), "{long}");
        let top = read(b"engine: rookery\n\"\\e\": 1\n", Path::new("_server.yml"))
            .unwrap_err()
            .to_string();
        assert!(top.contains("`\\u{1b}:` is not a key"), "{top}");
    }

    #[test]
    fn rejects_utf16_with_the_name_of_the_encoding() {
        let text = "engine: rookery\napp: a.R\n";
        let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for bytes in [
            [&[0xFF, 0xFE], &little[..]].concat(),
            [&[0xFE, 0xFF], &big[..]].concat(),
            little.clone(),
            big.clone(),
        ] {
            let message = read(&bytes, Path::new("_server.yml")).unwrap_err().to_string();
            assert_eq!(
                message,
                "line 1, column 1: the file is encoded in UTF-16: save it in UTF-8."
            );
        }
        let other: Vec<u8> =
            "engine: plumber2\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(read(&other, Path::new("_server.yml")).unwrap().is_none());
        let latin =
            read(b"engine: rookery\napp: a.R # \xE9\n", Path::new("_server.yml")).unwrap_err();
        assert!(latin.to_string().contains("is not valid UTF-8"), "{latin}");
    }

    #[test]
    fn a_file_of_another_engine_names_a_package() {
        let engine = |text: &str| engine(text.as_bytes()).map_err(|error| error.to_string());
        for (text, name) in
            [("engine: plumber2\nport: 1\n", "plumber2"), ("engine: a.b\nx: !expr f()\n", "a.b")]
        {
            assert_eq!(engine(text).as_deref(), Ok(name), "{text}");
        }
        let wanted = "there is no `engine:` that names an R package, such as `rookery`.";
        for text in ["", "# nothing\n", "- a\n", "app: a\n", "engine: a; b\n"] {
            assert!(engine(text).unwrap_err().ends_with(wanted), "{text}");
        }
        assert_eq!(
            engine("app: a\nengine: [rookery]\n"),
            Err(format!("line 2, column 1: {wanted}"))
        );
        assert!(engine("engine: Rookery\n").unwrap_err().contains("case-sensitive"));
        for (text, near) in [
            ("engine: rokery\n", "rookery"),
            ("engine: rook\n", "rookery"),
            ("engine: plumber\n", "plumber2"),
            ("engine: Plumber2\n", "plumber2"),
        ] {
            let message = engine(text).unwrap_err();
            assert!(message.ends_with(&format!("Did you mean `{near}`?")), "{message}");
        }
        for text in ["engine: [a\n", "engine: 'a", "x: [\n", "engine: plumber2\nx: [\n"] {
            assert!(engine(text).unwrap_err().contains("not valid YAML"), "{text}");
        }
    }

    #[test]
    fn ignores_files_of_other_engines() {
        for text in [
            "engine: plumber2\nport: 1\n",
            "engine: Rookery\n",
            "app: a\n",
            "",
            "- a\n",
            "engine: plumber2\nx: [\n",
            "x: !expr f()\n",
            "engine: [rookery]\n",
        ] {
            assert!(read(text.as_bytes(), Path::new("_server.yml")).unwrap().is_none(), "{text}");
        }
        assert!(
            read("{\"engine\": \"rookery\", \"app\": \"a\"}".as_bytes(), Path::new("_server.yml"))
                .unwrap()
                .is_some()
        );
    }
}
