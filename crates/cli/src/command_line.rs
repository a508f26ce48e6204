//! The words of the command line: what they mean, what is said of wrong ones, and what is printed about them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::builder::{NonEmptyStringValueParser, OsStringValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use rookery_acme::{Challenge, LETS_ENCRYPT_STAGING};
use rookery_server::access_log::Format;
use rookery_server::tls::TlsVersion;

use crate::address::Address;
use crate::failure::Failure;
use crate::limits::Limit;
use crate::log::LogTo;
use crate::settings::{self, AskedAcme, AskedTls, ClientAuth, Settings, TlsFiles};
use crate::worker_options::{self, Workers};

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// To print this, and no more.
    Print(Vec<u8>),
    /// To serve.
    Serve(Box<Serve>),
}

/// `rookery serve`, as it was given: paths may be relative.
#[derive(Debug, Clone)]
pub(crate) struct Serve {
    pub(crate) target: PathBuf,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: Option<AskedTls>,
    pub(crate) settings: Settings,
    /// None: one R, which this process becomes.
    pub(crate) workers: Option<Workers>,
    pub(crate) log: LogTo,
    pub(crate) format: Format,
}

const ABOUT: &str = "\
Serves a Shiny app, a plumber API, a folder with _server.yml, an R Markdown document with Shiny, any R file that
ends with an app, or a site: a folder with index.html. Ctrl-C and SIGTERM end it when what is in hand is
finished, a second one at once.";

/// Where browsers look for HTTPS, and for what is in the clear.
const HTTPS: u16 = 443;
const HTTP: u16 = 80;

const STATUS: &str =
    "Exit status: 0 after Ctrl-C or SIGTERM, 2 when the command line is wrong, otherwise that of the app.";

const ROOT: &str = "\
{usage-heading} {usage}

{about}

Commands:
{subcommands}

Options:
{options}

{after-help}
";

const WITHOUT_COMMANDS: &str = "\
{usage-heading} {usage}

{about}

Options:
{options}{after-help}
";

/// The whole of it, for clap: help, completions and the manual page are made of this.
pub(crate) fn command() -> Command {
    // Options may come before the command as well as behind it.
    Command::new("rookery")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .override_usage("rookery serve <target> [options]")
        .after_help(STATUS)
        .help_template(ROOT)
        .args_override_self(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(options())
        .args(worker_options::options())
        .arg(help())
        .arg(
            Arg::new("version")
                .short('v')
                .short_alias('V')
                .long("version")
                .action(ArgAction::Version)
                .help("rookery's version"),
        )
        .subcommand(
            plain("serve", "serves <target>, a folder or a file")
                .override_usage("rookery serve <target> [options]")
                .long_about(ABOUT)
                .after_help(format!("\n\n{STATUS}"))
                .args_override_self(true)
                // Counted by hand: what is wrong with them is said in our words.
                .arg(Arg::new("target").num_args(0..).value_parser(OsStringValueParser::new()).hide(true))
                .args(options())
                .args(worker_options::options()),
        )
        .subcommand(
            plain("completions", "prints what makes a shell complete these words")
                .override_usage("rookery completions <shell>")
                .arg(Arg::new("shell").required(true).value_parser(value_parser!(Shell)).hide(true)),
        )
        .subcommand(
            plain("man", "prints the manual page: rookery man | man -l -").override_usage("rookery man"),
        )
        .subcommand(plain("version", "prints the version").hide(true))
}

fn plain(name: &'static str, about: &'static str) -> Command {
    Command::new(name).about(about).help_template(WITHOUT_COMMANDS).disable_help_flag(true).arg(help())
}

fn help() -> Arg {
    Arg::new("help").short('h').long("help").action(ArgAction::Help).help("this text")
}

fn options() -> Vec<Arg> {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let text = |name, value, help| option(name, value, help).value_parser(NonEmptyStringValueParser::new());
    let path = |name, value, help| option(name, value, help).value_parser(OsStringValueParser::new());
    let flag = |name, help| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    vec![
        text(
            "host",
            "address",
            "127.0.0.1 (this machine, the default), 0.0.0.0 or :: (all), unix:/path/of/a/socket",
        )
        .default_value("127.0.0.1")
        .hide_default_value(true),
        text("port", "port", "8000 is the default; 0 lets the system choose")
            .default_value("8000")
            .hide_default_value(true),
        path(
            "tls-cert",
            "file",
            "speaks HTTPS with this certificate, in PEM with its chain; once for each name",
        )
        .action(ArgAction::Append),
        path("tls-key", "file", "its private key; not needed when it is in the same file")
            .action(ArgAction::Append),
        text("tls", "dev", "dev: speaks HTTPS with a certificate for localhost, made once and kept"),
        text(
            "domain",
            "name",
            "speaks HTTPS with a certificate for this name, of Let's Encrypt; once for each",
        )
        .action(ArgAction::Append),
        flag("agree-tos", "agrees to the authority's terms of service, which --domain asks for"),
        text("email", "address", "where the authority reaches you").action(ArgAction::Append),
        flag("acme-staging", "takes certificates that nobody trusts, to try --domain with"),
        text("acme-directory", "URL", "the directory of another authority than Let's Encrypt"),
        path("acme-ca", "file", "who signs that authority's own certificate; else whom the system trusts"),
        text("acme-profile", "name", "the kind of certificate: shortlived, for one"),
        text("acme-challenge", "which", "http-01 or tls-alpn-01; else whichever works"),
        path("acme-dir", "folder", "where account and certificates are kept, instead of R's folder for data"),
        path("tls-client-ca", "file", "asks clients for certificates, which one of these has signed"),
        text("tls-client-auth", "how", "whether they have to have one: required (the default) or optional"),
        text("tls-min-version", "version", "the oldest TLS that is spoken: 1.2 (the default) or 1.3"),
        flag("no-http2", "offers HTTP/1.1 alone"),
        flag("no-http2-websockets", "does not tell clients that WebSockets may be opened over HTTP/2"),
        text(
            "hsts",
            "seconds",
            "tells browsers to come by HTTPS alone for as long: 31536000,subdomains,preload",
        ),
        text(
            "redirect-from",
            "port",
            "sends requests in the clear on to HTTPS from this port, or none; with --domain 80",
        ),
        text("trusted-proxies", "list", "proxies whose word on clients is taken: 192.0.2.1,10.0.0.0/8,unix"),
        flag("proxy-protocol", "connections begin with the header of the PROXY protocol"),
        text(
            "ws-origins",
            "list",
            "whose pages may open WebSockets: same,example.org,*.example.org; else anybody's",
        ),
        text(
            "ws-compression",
            "how",
            "of WebSockets: on, off (the default), or level=6,threshold=512,takeover=on",
        ),
        text(
            "limit",
            "name=value",
            "a limit of the server: body_bytes=10MB, request_time=30s; once for each",
        )
        .action(ArgAction::Append),
        flag("interrupt-requests", "ends what R does for a request when its request_time is over"),
        text("error-detail", "what", "what clients are told of errors: none (the default), message or full"),
        text(
            "request-id-header",
            "on/off",
            "whether responses have a header X-Request-Id; on is the default",
        ),
        path("spool-dir", "folder", "where large bodies of requests lie, instead of R's folder in TMPDIR"),
        path("log", "file", "where access-log lines go: - is stdout, the default")
            .default_value("-")
            .hide_default_value(true),
        flag("no-log", "no access log"),
        text("log-format", "format", "common (the default) or json")
            .default_value("common")
            .hide_default_value(true),
    ]
}

/// Reads the command line; its first word is the program's own name.
///
/// # Errors
/// [`Failure::CommandLine`] when it is wrong.
pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Asked, Failure> {
    let matches = match command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return Ok(Asked::Print(error.render().to_string().into_bytes()));
        }
        Err(error) => return Err(Failure::CommandLine(mistake(&error))),
    };
    match matches.subcommand() {
        None => wrong("No command given."),
        Some(("serve", own)) => {
            serve(&Given { own, root: &matches }).map(|serve| Asked::Serve(Box::new(serve)))
        }
        Some(("completions", own)) => {
            let mut text = Vec::new();
            let shell = *own.get_one::<Shell>("shell").expect("clap asks for it");
            clap_complete::generate(shell, &mut command(), "rookery", &mut text);
            Ok(Asked::Print(text))
        }
        Some(("man", _)) => {
            let mut text = Vec::new();
            clap_mangen::Man::new(command()).render(&mut text).expect("a vector takes all");
            Ok(Asked::Print(text))
        }
        Some(_) => Ok(Asked::Print(command().render_version().into_bytes())),
    }
}

fn wrong<T>(message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::CommandLine(message.into()))
}

/// What was given behind the command, or before it.
struct Given<'a> {
    own: &'a ArgMatches,
    root: &'a ArgMatches,
}

impl Given<'_> {
    fn of(&self, name: &str) -> &ArgMatches {
        let is_own = self.own.value_source(name) == Some(ValueSource::CommandLine)
            || self.root.value_source(name) != Some(ValueSource::CommandLine);
        if is_own { self.own } else { self.root }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.of(name).get_one::<String>(name).map(String::as_str)
    }

    /// # Errors
    /// When there is nothing between its commas: that would be no list, and so everybody's.
    fn list(&self, name: &str) -> Result<Option<Vec<String>>, Failure> {
        match self.text(name).map(settings::list) {
            Some(words) if words.is_empty() => wrong(format!("`--{name}` needs a value.")),
            words => Ok(words),
        }
    }

    fn texts(&self, name: &str) -> impl Iterator<Item = &String> {
        self.of(name).get_many::<String>(name).unwrap_or_default()
    }

    /// Whether it was written, and is not the default.
    fn is_given(&self, name: &str) -> bool {
        self.of(name).value_source(name) == Some(ValueSource::CommandLine)
    }

    /// # Errors
    /// When it was given without one.
    fn path(&self, name: &str) -> Result<Option<&Path>, Failure> {
        Ok(self.paths(name)?.pop())
    }

    fn paths(&self, name: &str) -> Result<Vec<&Path>, Failure> {
        let paths: Vec<&Path> =
            self.of(name).get_many::<OsString>(name).unwrap_or_default().map(Path::new).collect();
        if paths.iter().any(|path| path.as_os_str().is_empty()) {
            return wrong(format!("`--{name}` needs a value."));
        }
        Ok(paths)
    }

    fn flag(&self, name: &str) -> bool {
        self.of(name).get_flag(name)
    }

    /// The value that a word stands for.
    fn choice<T: Copy, const COUNT: usize>(
        &self,
        name: &str,
        choices: [(&str, T); COUNT],
    ) -> Result<Option<T>, Failure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        if let Some((_, value)) = choices.iter().find(|(word, _)| *word == text) {
            return Ok(Some(*value));
        }
        let [others @ .., last] = &choices.map(|(word, _)| word)[..] else {
            unreachable!("there are choices")
        };
        wrong(format!("`--{name}` must be {} or {last}, not `{text}`.", others.join(", ")))
    }
}

fn serve(given: &Given<'_>) -> Result<Serve, Failure> {
    let targets: Vec<&OsString> = given.own.get_many("target").unwrap_or_default().collect();
    let [target] = targets[..] else {
        let what = if targets.is_empty() {
            "nothing was given".to_owned()
        } else {
            format!("not {} of them", targets.len())
        };
        return wrong(format!("`rookery serve` takes one folder or file; {what}."));
    };
    let tls = tls(given)?;
    // A name that everybody knows is served where everybody looks.
    let is_public = tls.as_ref().is_some_and(|tls| tls.domain().is_some());
    let host = match given.text("host") {
        Some(host) if !is_public || given.is_given("host") => host,
        _ => Address::everywhere(),
    };
    let port = match given.text("port").unwrap_or_default() {
        _ if is_public && !given.is_given("port") => HTTPS,
        port => match settings::number(port).and_then(|port| port.try_into().ok()) {
            Some(port) => port,
            None => return wrong(format!("`--port` must be a number from 0 to 65535, not `{port}`.")),
        },
    };
    let format = given.choice("log-format", [("common", Format::Common), ("json", Format::Json)])?;
    let log = match given.path("log")? {
        _ if given.flag("no-log") => LogTo::Nothing,
        Some(path) if path.as_os_str() != "-" => LogTo::File(path.into()),
        _ => LogTo::Stdout,
    };
    Ok(Serve {
        target: target.into(),
        host: host.to_owned(),
        port,
        tls,
        workers: Workers::of(|name| given.text(name))?,
        settings: Settings {
            trusted_proxies: given.list("trusted-proxies")?.unwrap_or_default(),
            proxy_protocol: given.flag("proxy-protocol"),
            ws_origins: given.list("ws-origins")?,
            ws_compression: given.text("ws-compression").map(settings::compression).transpose()?,
            limits: given.texts("limit").map(|text| Limit::of(text)).collect::<Result<_, _>>()?,
            interrupt_requests: given.flag("interrupt-requests"),
            error_detail: given
                .choice("error-detail", ["none", "message", "full"].map(|word| (word, word)))?,
            request_id_header: given.choice("request-id-header", [("on", true), ("off", false)])?,
            spool_dir: given.path("spool-dir")?.map(Path::to_path_buf),
        },
        log,
        format: format.unwrap_or(Format::Common),
    })
}

fn tls(given: &Given<'_>) -> Result<Option<AskedTls>, Failure> {
    let certificates = given.paths("tls-cert")?;
    match given.text("tls") {
        Some(other) if other != "dev" => {
            return wrong(format!(
                "`--tls` must be dev, not `{other}`: for a certificate of your own there is `--tls-cert`."
            ));
        }
        Some(_) if !certificates.is_empty() => {
            return wrong("`--tls dev` and `--tls-cert` exclude one another.");
        }
        _ => {}
    }
    let keys = given.paths("tls-key")?;
    let client_ca = given.path("tls-client-ca")?;
    let client_auth = given.choice(
        "tls-client-auth",
        [("required", ClientAuth::Required), ("optional", ClientAuth::Optional)],
    )?;
    let minimum =
        given.choice("tls-min-version", [("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)])?;
    let acme = acme(given)?;
    if acme.is_some() && (!certificates.is_empty() || given.text("tls").is_some()) {
        let other = if certificates.is_empty() { "--tls dev" } else { "--tls-cert" };
        return wrong(format!("`--domain` and `{other}` exclude one another."));
    }
    if certificates.is_empty() && !keys.is_empty() {
        return wrong("`--tls-key` needs `--tls-cert`.");
    }
    if certificates.is_empty() && acme.is_none() {
        for (is_given, name) in [
            (client_ca.is_some(), "tls-client-ca"),
            (client_auth.is_some(), "tls-client-auth"),
            (minimum.is_some(), "tls-min-version"),
            (given.flag("no-http2"), "no-http2"),
            (given.flag("no-http2-websockets"), "no-http2-websockets"),
            (given.text("hsts").is_some(), "hsts"),
            (given.text("redirect-from").is_some(), "redirect-from"),
        ] {
            if is_given {
                return wrong(format!("`--{name}` needs `--tls-cert` or `--domain`."));
            }
        }
        return Ok(given.text("tls").map(|_| AskedTls::Development));
    }
    if client_auth.is_some() && client_ca.is_none() {
        return wrong("`--tls-client-auth` needs `--tls-client-ca`.");
    }
    // Where everybody looks, and unless the server is somewhere else.
    let is_usual = acme.is_some() && !given.is_given("port") && !is_socket(given);
    let redirect_from = match given.text("redirect-from") {
        None => is_usual.then_some(HTTP),
        Some("none") => None,
        Some(text) => Some(port_of(text)?),
    };
    Ok(Some(AskedTls::Files(Box::new(TlsFiles {
        pairs: settings::pairs(&certificates, &keys)?,
        client_ca: client_ca.map(Path::to_path_buf),
        client_auth: client_auth.unwrap_or_default(),
        minimum: minimum.unwrap_or_default(),
        only_http1: given.flag("no-http2"),
        only_http1_websockets: given.flag("no-http2-websockets"),
        hsts: given.text("hsts").map(settings::hsts).transpose()?,
        redirect_from,
        acme,
    }))))
}

fn is_socket(given: &Given<'_>) -> bool {
    given.text("host").is_some_and(|host| host.starts_with("unix:"))
}

/// What an authority is asked for.
fn acme(given: &Given<'_>) -> Result<Option<AskedAcme>, Failure> {
    let domains: Vec<String> = given.texts("domain").cloned().collect();
    let emails: Vec<String> = given.texts("email").cloned().collect();
    let directory = given.text("acme-directory").map(str::to_owned);
    let ca = given.path("acme-ca")?.map(Path::to_path_buf);
    let profile = given.text("acme-profile").map(str::to_owned);
    let challenge =
        given.choice("acme-challenge", [Challenge::Http, Challenge::Tls].map(|it| (it.name(), it)))?;
    let folder = given.path("acme-dir")?.map(Path::to_path_buf);
    let is_staging = given.flag("acme-staging");
    if domains.is_empty() {
        for (is_given, name) in [
            (!emails.is_empty(), "email"),
            (given.flag("agree-tos"), "agree-tos"),
            (is_staging, "acme-staging"),
            (directory.is_some(), "acme-directory"),
            (ca.is_some(), "acme-ca"),
            (profile.is_some(), "acme-profile"),
            (challenge.is_some(), "acme-challenge"),
            (folder.is_some(), "acme-dir"),
        ] {
            if is_given {
                return wrong(format!("`--{name}` needs `--domain`."));
            }
        }
        return Ok(None);
    }
    if is_staging && directory.is_some() {
        return wrong("`--acme-staging` and `--acme-directory` exclude one another.");
    }
    let directory = directory.or_else(|| is_staging.then(|| LETS_ENCRYPT_STAGING.to_owned()));
    let agrees = given.flag("agree-tos");
    Ok(Some(AskedAcme { domains, emails, agrees, directory, ca, profile, challenge, folder }))
}

fn port_of(text: &str) -> Result<u16, Failure> {
    match settings::number(text).and_then(|port| u16::try_from(port).ok()) {
        Some(port @ 1..) => Ok(port),
        _ => wrong(format!("`--redirect-from` must be a port from 1 to 65535, or none, not `{text}`.")),
    }
}

/// What clap found wrong, in our words.
fn mistake(error: &clap::Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        Some(ContextValue::Strings(texts)) => texts.first().map_or("", String::as_str),
        _ => "",
    };
    // clap writes `--port <port>`, and lists where several are meant.
    let option = text(ContextKind::InvalidArg).split(' ').next().unwrap_or_default();
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand);
            if Path::new(word).exists() {
                return format!("`{word}` is no command. Did you mean `rookery serve {word}`?");
            }
            format!("`{word}` is no command.{}", did_you_mean(text(ContextKind::SuggestedSubcommand)))
        }
        ErrorKind::UnknownArgument if option.starts_with('-') => {
            format!("`{option}` is no option.{}", did_you_mean(text(ContextKind::SuggestedArg)))
        }
        ErrorKind::UnknownArgument => format!("`{option}` is one word too many."),
        ErrorKind::TooManyValues => format!("`{option}` takes no value."),
        ErrorKind::MissingRequiredArgument => {
            "A shell has to be named: bash, elvish, fish, powershell or zsh.".to_owned()
        }
        ErrorKind::InvalidValue if text(ContextKind::InvalidValue).is_empty() => {
            format!("`{option}` needs a value.")
        }
        ErrorKind::InvalidValue => {
            let value = text(ContextKind::InvalidValue);
            format!("`{value}` is no shell that is known: bash, elvish, fish, powershell and zsh are.")
        }
        ErrorKind::InvalidUtf8 => "A word is not valid UTF-8, and only paths may be so.".to_owned(),
        // Nothing else is asked of clap; if it finds more, its own first line says what.
        _ => error
            .render()
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("error: ")
            .to_owned(),
    }
}

fn did_you_mean(near: &str) -> String {
    if near.is_empty() { String::new() } else { format!(" Did you mean `{near}`?") }
}

impl Serve {
    /// How the format of the log is named.
    pub(crate) fn format_name(&self) -> &'static OsStr {
        OsStr::new(match self.format {
            Format::Common => "common",
            Format::Json => "json",
        })
    }
}

#[cfg(test)]
mod tests {
    use rookery_server::tls::Hsts;

    use super::*;

    fn parse(words: &[&str]) -> Result<Asked, Failure> {
        read(["rookery"].iter().chain(words).map(OsString::from))
    }

    fn served(words: &[&str]) -> Serve {
        match parse(words) {
            Ok(Asked::Serve(serve)) => *serve,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    fn printed(words: &[&str]) -> String {
        match parse(words) {
            Ok(Asked::Print(text)) => String::from_utf8(text).unwrap(),
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn clap_finds_no_fault_with_it() {
        command().debug_assert();
    }

    #[test]
    fn the_command_line_is_understood() {
        let asked = served(&["serve", "app/", "--port", "9000", "--host=0.0.0.0", "--log-format", "json"]);
        assert_eq!(
            (asked.target.as_path(), asked.host.as_str(), asked.port),
            (Path::new("app/"), "0.0.0.0", 9000)
        );
        assert!(matches!((asked.log, asked.format, asked.tls), (LogTo::Stdout, Format::Json, None)));
        let asked = served(&["--port=1", "--no-log", "serve", "--", "-odd"]);
        assert_eq!((asked.target.as_path(), asked.port), (Path::new("-odd"), 1));
        assert!(matches!(asked.log, LogTo::Nothing));
        // The last of several counts, and what is behind the command more than what is before it.
        assert_eq!(served(&["--port=1", "serve", "a", "--port=2", "--port", "3"]).port, 3);
        assert!(matches!(served(&["serve", "a", "--log", "-"]).log, LogTo::Stdout));
        assert!(
            matches!(served(&["serve", "a", "--log", "x"]).log, LogTo::File(path) if path == Path::new("x"))
        );
        assert!(matches!(served(&["serve", "a", "--tls", "dev"]).tls, Some(AskedTls::Development)));
    }

    #[test]
    fn settings_are_understood() {
        let files = |words: &[&str]| match served(words).tls {
            Some(AskedTls::Files(files)) => *files,
            other => panic!("{other:?}"),
        };
        let one = files(&["serve", "a", "--tls-cert", "c"]);
        assert_eq!(one.pairs, [("c".into(), "c".into())]);
        assert_eq!((one.client_auth, one.minimum), (ClientAuth::Required, TlsVersion::Tls12));
        let two = files(&[
            "serve",
            "a",
            "--tls-cert",
            "c",
            "--tls-key",
            "k",
            "--tls-cert=d",
            "--tls-key=l",
            "--tls-client-ca",
            "r",
            "--tls-client-auth",
            "optional",
            "--tls-min-version",
            "1.3",
        ]);
        assert_eq!(two.pairs, [("c".into(), "k".into()), ("d".into(), "l".into())]);
        assert_eq!((two.client_auth, two.minimum), (ClientAuth::Optional, TlsVersion::Tls13));
        assert_eq!(two.client_ca.as_deref(), Some(Path::new("r")));
        assert!(!two.only_http1 && files(&["serve", "a", "--tls-cert", "c", "--no-http2"]).only_http1);
        assert_eq!((one.only_http1_websockets, one.hsts, one.redirect_from), (false, None, None));
        let own = files(&[
            "serve",
            "a",
            "--tls-cert=c",
            "--no-http2-websockets",
            "--hsts=60,subdomains",
            "--redirect-from",
            "80",
        ]);
        assert_eq!((own.only_http1_websockets, own.redirect_from), (true, Some(80)));
        assert_eq!(own.hsts, Some(Hsts { max_age: 60, include_subdomains: true, preload: false }));
        let none = served(&["serve", "a"]).settings;
        assert!(none.trusted_proxies.is_empty() && !none.proxy_protocol && none.ws_origins.is_none());
        assert!(none.ws_compression.is_none() && none.spool_dir.is_none());
        let all = served(&[
            "--trusted-proxies",
            "::1, unix",
            "serve",
            "a",
            "--proxy-protocol",
            "--ws-origins=same",
            "--ws-compression",
            "on",
            "--spool-dir",
            "s",
        ])
        .settings;
        assert_eq!((all.trusted_proxies, all.proxy_protocol), (settings::list("::1,unix"), true));
        assert_eq!((all.ws_origins, all.spool_dir), (Some(vec!["same".to_owned()]), Some("s".into())));
        assert_eq!(all.ws_compression.map(|it| it.level), Some(2));
        let all = served(&[
            "serve",
            "a",
            "--limit",
            "body_bytes=1MB",
            "--limit=idle_time=5",
            "--error-detail",
            "full",
            "--request-id-header",
            "off",
            "--interrupt-requests",
        ])
        .settings;
        assert_eq!(
            all.limits.iter().map(|it| it.text.as_str()).collect::<Vec<_>>(),
            ["body_bytes=1MB", "idle_time=5"]
        );
        assert_eq!((all.error_detail, all.request_id_header), (Some("full"), Some(false)));
        assert!(all.interrupt_requests);
    }

    #[test]
    fn a_name_is_served_where_everybody_looks() {
        let asked = |words: &[&str]| {
            let it = served(&[&["serve", "a", "--domain", "b.org"], words].concat());
            let Some(AskedTls::Files(files)) = it.tls else { panic!("{:?}", it.tls) };
            (it.host, it.port, files.redirect_from, files.acme.unwrap())
        };
        let (host, port, redirect_from, acme) = asked(&[]);
        assert!(host == "::" || host == "0.0.0.0", "{host}");
        assert_eq!((port, redirect_from, acme.domains), (443, Some(80), vec!["b.org".to_owned()]));
        assert!(!acme.agrees && acme.directory.is_none() && acme.emails.is_empty());
        let elsewhere = |words: &[&str]| {
            let (host, port, redirect_from, _) = asked(words);
            (host, port, redirect_from)
        };
        let here = "127.0.0.1".to_owned();
        assert_eq!(elsewhere(&["--host", "127.0.0.1"]), (here.clone(), 443, Some(80)));
        assert_eq!(elsewhere(&["--host=127.0.0.1", "--port=8443"]), (here.clone(), 8443, None));
        assert_eq!(
            elsewhere(&["--host=127.0.0.1", "--port=0", "--redirect-from=81"]),
            (here.clone(), 0, Some(81))
        );
        assert_eq!(elsewhere(&["--host=127.0.0.1", "--redirect-from=none"]), (here, 443, None));
        assert_eq!(elsewhere(&["--host=unix:/s"]).2, None);
        let all = [
            "--domain=c.org",
            "--agree-tos",
            "--email=me@b.org",
            "--acme-staging",
            "--acme-profile=shortlived",
            "--acme-challenge=tls-alpn-01",
            "--acme-dir=d",
            "--acme-ca=f",
        ];
        let (_, _, _, acme) = asked(&all);
        assert_eq!((acme.domains.len(), acme.emails.len(), acme.agrees), (2, 1, true));
        assert_eq!(
            (acme.directory.as_deref(), acme.profile.as_deref()),
            (Some(LETS_ENCRYPT_STAGING), Some("shortlived"))
        );
        assert_eq!(
            (acme.challenge, acme.folder, acme.ca),
            (Some(Challenge::Tls), Some("d".into()), Some("f".into()))
        );
        let (_, _, _, acme) = asked(&["--acme-directory", "https://ca/"]);
        assert_eq!(acme.directory.as_deref(), Some("https://ca/"));
    }

    #[test]
    fn what_is_wrong_with_https_is_told() {
        for (words, says) in [
            (
                &["serve", "a", "--tls", "yes"][..],
                "`--tls` must be dev, not `yes`: for a certificate of your own there is `--tls-cert`.",
            ),
            (
                &["serve", "a", "--tls", "dev", "--tls-cert", "b"],
                "`--tls dev` and `--tls-cert` exclude one another.",
            ),
            (&["serve", "a", "--tls-key", "b"], "`--tls-key` needs `--tls-cert`."),
            (
                &["serve", "a", "--tls", "dev", "--tls-client-ca", "b"],
                "`--tls-client-ca` needs `--tls-cert` or `--domain`.",
            ),
            (
                &["serve", "a", "--tls-cert", "b", "--tls-client-auth", "optional"],
                "`--tls-client-auth` needs `--tls-client-ca`.",
            ),
            (
                &["serve", "a", "--tls-cert", "b", "--tls-min-version", "1.1"],
                "`--tls-min-version` must be 1.2 or 1.3, not `1.1`.",
            ),
            (&["serve", "a", "--tls-cert", ""], "`--tls-cert` needs a value."),
            (&["serve", "a", "--no-http2"], "`--no-http2` needs `--tls-cert` or `--domain`."),
            (&["serve", "a", "--agree-tos"], "`--agree-tos` needs `--domain`."),
            (&["serve", "a", "--acme-ca=b"], "`--acme-ca` needs `--domain`."),
            (
                &["serve", "a", "--domain=b.org", "--tls-cert=b"],
                "`--domain` and `--tls-cert` exclude one another.",
            ),
            (
                &["serve", "a", "--domain=b.org", "--tls=dev"],
                "`--domain` and `--tls dev` exclude one another.",
            ),
            (&["serve", "a", "--domain=b.org", "--tls-key=k"], "`--tls-key` needs `--tls-cert`."),
            (
                &["serve", "a", "--domain=b.org", "--acme-staging", "--acme-directory=https://ca/"],
                "`--acme-staging` and `--acme-directory` exclude one another.",
            ),
            (
                &["serve", "a", "--domain=b.org", "--acme-challenge=dns-01"],
                "`--acme-challenge` must be http-01 or tls-alpn-01, not `dns-01`.",
            ),
            (
                &["serve", "a", "--domain=b.org", "--port=x"],
                "`--port` must be a number from 0 to 65535, not `x`.",
            ),
            (&["serve", "a", "--hsts", "60"], "`--hsts` needs `--tls-cert` or `--domain`."),
            (
                &["serve", "a", "--tls=dev", "--redirect-from=80"],
                "`--redirect-from` needs `--tls-cert` or `--domain`.",
            ),
            (
                &["serve", "a", "--no-http2-websockets"],
                "`--no-http2-websockets` needs `--tls-cert` or `--domain`.",
            ),
            (
                &["serve", "a", "--tls-cert=b", "--redirect-from", "0"],
                "`--redirect-from` must be a port from 1 to 65535, or none, not `0`.",
            ),
            (
                &["serve", "a", "--tls-cert=b", "--hsts=year"],
                "`--hsts` must be seconds, and perhaps subdomains and preload, with commas between them, not `year`.",
            ),
        ] {
            assert_is_told(words, says);
        }
    }

    fn assert_is_told(words: &[&str], says: &str) {
        match parse(words) {
            Err(Failure::CommandLine(message)) => assert_eq!(message, says, "{words:?}"),
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn a_wrong_command_line_is_told_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().to_str().unwrap();
        let is_no_command = format!("`{there}` is no command. Did you mean `rookery serve {there}`?");
        for (words, says) in [
            (&[][..], "No command given."),
            (&["--port", "1"], "No command given."),
            (&["server", "app/"], "`server` is no command. Did you mean `serve`?"),
            (&["zzz"], "`zzz` is no command."),
            (&[there], &is_no_command),
            (&["serve"], "`rookery serve` takes one folder or file; nothing was given."),
            (&["serve", "a", "b"], "`rookery serve` takes one folder or file; not 2 of them."),
            (&["serve", "a", "--prot", "1"], "`--prot` is no option. Did you mean `--port`?"),
            (&["--prot=1", "serve", "a"], "`--prot` is no option. Did you mean `--port`?"),
            (&["serve", "a", "--nonsense"], "`--nonsense` is no option."),
            (&["serve", "a", "--port"], "`--port` needs a value."),
            (&["serve", "a", "--port="], "`--port` needs a value."),
            (&["serve", "a", "--log="], "`--log` needs a value."),
            (&["serve", "a", "--port", "http"], "`--port` must be a number from 0 to 65535, not `http`."),
            (&["serve", "a", "--port", "+1"], "`--port` must be a number from 0 to 65535, not `+1`."),
            (&["serve", "a", "--port", "65536"], "`--port` must be a number from 0 to 65535, not `65536`."),
            (&["serve", "a", "--log-format", "xml"], "`--log-format` must be common or json, not `xml`."),
            (&["serve", "a", "--no-log=1"], "`--no-log` takes no value."),
            (&["serve", "a", "--proxy-protocol=1"], "`--proxy-protocol` takes no value."),
            (&["serve", "a", "--ws-origins", " , "], "`--ws-origins` needs a value."),
            (
                &["serve", "a", "--limit", "body_byte=1"],
                "`body_byte` is no limit. Did you mean `body_bytes`?",
            ),
            (
                &["serve", "a", "--error-detail", "all"],
                "`--error-detail` must be none, message or full, not `all`.",
            ),
            (&["completions"], "A shell has to be named: bash, elvish, fish, powershell or zsh."),
            (
                &["completions", "cmd"],
                "`cmd` is no shell that is known: bash, elvish, fish, powershell and zsh are.",
            ),
            (&["man", "rookery"], "`rookery` is one word too many."),
        ] {
            assert_is_told(words, says);
        }
    }

    #[test]
    fn help_names_every_option_in_lines_that_fit() {
        let help = printed(&["--help"]);
        assert!(help.starts_with("Usage: rookery serve <target> [options]\n\nServes a Shiny app"), "{help}");
        for words in [&["-h"][..], &["help"]] {
            assert_eq!(printed(words), help, "{words:?}");
        }
        for option in [
            "--host <address>",
            "--tls <dev>",
            "--no-log",
            "--proxy-protocol",
            "--ws-origins <list>",
            "-v, --version",
            "  serve  ",
            "  completions  ",
        ] {
            assert!(help.contains(option), "{option}: {help}");
        }
        assert!(!help.contains("  version  "), "{help}");
        assert!(help.trim_end().ends_with(STATUS), "{help}");
        for line in help.lines().chain(printed(&["serve", "--help"]).lines()) {
            assert!(line.chars().count() <= 120, "{line}");
        }
        assert!(printed(&["serve", "-h"]).contains("--tls-key <file>"));
        let version = format!("rookery {}\n", env!("CARGO_PKG_VERSION"));
        for words in [&["--version"][..], &["-v"], &["version"]] {
            assert_eq!(printed(words), version, "{words:?}");
        }
    }

    #[test]
    fn completions_and_the_manual_page_know_the_options() {
        for shell in ["bash", "zsh", "fish"] {
            assert!(printed(&["completions", shell]).contains("tls-cert"), "{shell}");
        }
        let page = printed(&["man"]);
        assert!(page.contains(".TH rookery 1") && page.contains("tls\\-cert"), "{page}");
    }
}
