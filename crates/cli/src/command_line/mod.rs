//! The words of the command line: what they mean, what is said of wrong ones, and what is printed about them.

mod given;
mod https;
mod manual;
mod mistake;
mod operations;
mod serve;
mod server;
mod shiny;
mod workers;

use std::ffi::OsString;

use clap::builder::OsStringValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command, value_parser};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::status::StatusOf;
use given::{Given, wrong};
pub(crate) use https::is_of_https;
use mistake::mistake;
pub(crate) use serve::Serve;

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// To print this, and no more.
    Print(Vec<u8>),
    /// To serve.
    Serve(Box<Serve>),
    /// To tell what servers do.
    Status(StatusOf),
}

const ABOUT: &str = "\
Serves a Shiny app, a plumber API, a folder with _server.yml, an R Markdown document with Shiny, any R file that
ends with an app, or a site: a folder with index.html. Ctrl-C and SIGTERM end it when what is in hand is
finished, a second one at once.";

const DEV: &str = "\
Serves <target> as `rookery serve --reload` does. At a terminal the R process shares it (`--interactive`): it can
prompt, as browser() and readline() do, and there Ctrl-C is for R; otherwise Ctrl-C ends the server at once.";

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
        .after_help(manual::statuses())
        .help_template(ROOT)
        .args_override_self(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(serve::options())
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
                .after_help(format!("\n\n{}", manual::statuses()))
                .args_override_self(true)
                // Counted by hand: what is wrong with them is said in our words.
                .arg(Arg::new("target").num_args(0..).value_parser(OsStringValueParser::new()).hide(true))
                .args(serve::options()),
        )
        .subcommand(
            plain("dev", "serves <target> to write it: reloads when a file changes, R at this terminal")
                .override_usage("rookery dev <target> [options]")
                .long_about(DEV)
                .args_override_self(true)
                .arg(Arg::new("target").num_args(0..).value_parser(OsStringValueParser::new()).hide(true))
                .args(serve::options()),
        )
        .subcommand(operations::status(plain("status", "tells what servers do")))
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
        Some((name @ ("serve" | "dev"), own)) => {
            let given = Given { own, root: &matches };
            serve::read(&given, name == "dev").map(|serve| Asked::Serve(Box::new(serve)))
        }
        Some(("status", own)) => operations::status_of(own).map(Asked::Status),
        Some(("completions", own)) => {
            let mut text = Vec::new();
            let shell = *own.get_one::<Shell>("shell").expect("clap asks for it");
            clap_complete::generate(shell, &mut command(), "rookery", &mut text);
            Ok(Asked::Print(text))
        }
        Some(("man", _)) => Ok(Asked::Print(manual::page(command()))),
        Some(_) => Ok(Asked::Print(command().render_version().into_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rookery_server::access_log::Format;

    use super::*;
    use crate::log::LogTo;
    use crate::settings::AskedTls;

    fn parse(words: &[&str]) -> Result<Asked, Failure> {
        read(["rookery"].iter().chain(words).map(OsString::from))
    }

    pub(super) fn served(words: &[&str]) -> Serve {
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

    pub(super) fn assert_is_told(words: &[&str], says: &str) {
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
            (
                &["serve", "a", "--workers", "2", "--shutdown-delay", "soon"],
                "`--shutdown-delay` must be a time, such as 5s, not `soon`.",
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
        for status in ["0", "1", "2", "3", "4", "5", "128 + n"] {
            let lists = |help: &str| help.lines().any(|line| line.starts_with(&format!("  {status}  ")));
            assert!(lists(&help) && lists(&printed(&["serve", "--help"])), "{status}: {help}");
        }
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
        assert!(page.contains("\nrookery \\- serve R apps"), "{page}");
        for text in [".SH COMMANDS", "rookery status", ".SH \"EXIT STATUS\"", "\\-\\-fail\\-fast was given"] {
            assert!(page.contains(text), "{text}: {page}");
        }
        // The page refers to no other page: the commands have no pages of their own.
        assert!(!page.contains("(1)") && !page.contains("rookery\\-serve"), "{page}");
    }
}
