//! The command line of `rookery`: the parser, the help, and the error messages for a wrong command
//! line.

mod clap_errors;
mod help_text;
mod manual;
mod options;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{
    Arg, ArgAction, Args as _, Command as Clap, FromArgMatches as _, ValueHint, value_parser,
};
use clap_complete::Shell;
use rookery_settings::{SCHEMA, table};

use crate::commands::live::LiveArgs;
use crate::commands::new_app::NewArgs;
use crate::commands::profile::ProfileArgs;
use crate::commands::status::StatusArgs;
use crate::failure::Failure;
use clap_errors::error_message;
use help_text::ABOUT;

pub(crate) use options::ServeArgs;

/// A parsed command line of `rookery`.
#[derive(Debug)]
pub(crate) enum CommandLine {
    /// Print this text and exit, for example for `--help`.
    Print(Vec<u8>),
    /// The command `rookery serve` or `rookery dev`.
    Serve(ServeArgs),
    Config(ServeArgs),
    /// The command `rookery check`. `loads` is true if the code of the app is run.
    Check {
        args: ServeArgs,
        loads: bool,
    },
    New(NewArgs),
    /// The command line `rookery --version --verbose`.
    Version,
    Status(StatusArgs),
    Live(LiveArgs),
    Profile(ProfileArgs),
}

const DEV: &str = "\
Serves <target> for development: opens a browser, and reloads the open
pages when a file of the app changes. Errors are shown in the page, with source code. In a terminal,
a single worker also runs with a prompt in that terminal (`--interactive`), so that browser() and
readline() work. While R waits at a prompt, Ctrl-C interrupts R; otherwise it stops the server at
once. At other times, r + Enter restarts the app, o + Enter opens a browser, and q + Enter quits.";

const CHECK: &str = "\
Reports mistakes that would keep <target> from being served, and exits with status 1 if there are
any: in the settings, the certificates and the address, in the syntax of the R files that the app
reads when it starts, and packages that these files need and that are not installed. The code of the
app is not run. With --load, R also runs the code that a worker would run until it can serve. R then
neither listens nor calls the function `onStart` of a Shiny app.";

const SCHEMA_HELP: &str = "\
Prints the JSON schema of _server.yml, with which editors complete and check the settings:

  rookery schema > _server.schema.json

An editor with yaml-language-server, such as VS Code with the YAML extension, uses the schema for a
_server.yml in the same folder that begins with this line:

  # yaml-language-server: $schema=_server.schema.json

For all your apps, name one copy in the editor's settings: \"yaml.schemas\".";

const HELP: &str = "\
{usage-heading} {usage}

{about}

{all-args}{after-help}
";

/// The part of `--help` that explains how to write sizes and times.
const UNITS: &str = "\
Values:
  <size>   bytes, or a number with a unit: 512KB, 10MB, 1GiB
  <time>   seconds, or a number with a unit: 500ms, 30s, 5m, 12h, 1d";

/// The end of the completion script for bash. It leaves out options for a word that does not begin
/// with `-`, so that bash completes files, and seldom used options for a hyphen alone.
const BASH: &str = r#"
_rookery_offered() {
    local word words
    _rookery "$@"
    words=("${COMPREPLY[@]}") COMPREPLY=()
    for word in "${words[@]}"; do
        case $2,$word in
            -,* | --,*) [[ " RARE " == *" $word "* ]] && continue ;;
            -*) ;;
            *,-*) continue ;;
        esac
        COMPREPLY+=("$word")
    done
}

complete -o bashdefault -o default -F _rookery_offered rookery
"#;

/// Returns the options that `-h` does not show.
fn rare_options() -> String {
    let rare = table::all().filter(|row| row.has_option() && !row.is_common);
    rare.map(|row| format!("--{}", row.long_option())).collect::<Vec<_>>().join(" ")
}

/// Defines the command line for the parser clap. The help and the shell completions are generated
/// from the same definition.
pub(crate) fn command() -> Clap {
    // Options are accepted before and after the command.
    Clap::new("rookery")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .override_usage("rookery serve <target> [options]")
        .after_help(after_help())
        .help_template(HELP)
        .args_override_self(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(options::options())
        .arg(help())
        .arg(
            Arg::new("version")
                .short('v')
                .short_alias('V')
                .long("version")
                .action(ArgAction::Version)
                .help("Print the version"),
        )
        .arg(verbose().hide_short_help(true))
        .subcommand(
            target_command("serve").long_about(ABOUT).after_help(after_help()).arg(all_calls()),
        )
        .subcommand(target_command("dev").long_about(DEV).arg(all_calls()))
        .subcommand(target_command("config"))
        .subcommand(target_command("check").long_about(CHECK).arg(load()).arg(all_calls()))
        .subcommand(described(NewArgs::augment_args(Clap::new("new"))))
        .subcommand(described(Clap::new("schema")).long_about(SCHEMA_HELP))
        .subcommand(described(StatusArgs::augment_args(Clap::new("status"))))
        .subcommand(described(LiveArgs::augment_args(Clap::new("live"))))
        .subcommand(described(ProfileArgs::augment_args(Clap::new("profile"))))
        .subcommand(
            described(Clap::new("completions")).arg(
                Arg::new("shell").required(true).value_parser(value_parser!(Shell)).hide(true),
            ),
        )
        .subcommand(described(Clap::new("man")))
        .subcommand(
            described(Clap::new("version")).about("Print the version").arg(verbose()).hide(true),
        )
}

/// Returns the end of the `--help` text, which explains how to write sizes and times, and lists the
/// exit statuses.
fn after_help() -> String {
    let lines = help_text::STATUSES.map(|(status, meaning)| format!("\n  {status:<9}{meaning}"));
    format!("{}\n\nExit status:{}", UNITS, lines.concat())
}

/// Defines the command `name`, such as `check`, which takes the path of an app, a document or a
/// folder, and the same options as `rookery serve`.
fn target_command(name: &'static str) -> Clap {
    described(Clap::new(name))
        .override_usage(format!("rookery {name} <target> [options]"))
        .args_override_self(true)
        .arg(
            Arg::new("target")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .value_hint(ValueHint::AnyPath)
                .hide(true),
        )
        .args(options::options())
}

/// Adds to a command its description from the list of commands in `--help`. The description is
/// empty for a hidden command.
fn described(command: Clap) -> Clap {
    let about = help_text::COMMANDS.iter().find(|(name, _)| *name == command.get_name());
    command
        .about(about.map_or("", |(_, about)| about))
        .help_template(HELP)
        .disable_help_flag(true)
        .arg(help())
}

fn help() -> Arg {
    Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::Help)
        .help("Print the most common options; --help prints all options")
        .long_help("Print all options; -h prints only the most common options")
}

fn verbose() -> Arg {
    let flag = Arg::new("verbose").long("verbose").action(ArgAction::SetTrue);
    flag.help("With --version: also print the build, the system and the R that is used")
}

/// Returns the option `--verbose` of the commands that run an app.
fn all_calls() -> Arg {
    verbose().help("If the app cannot be started, show all calls that led to the error")
}

fn load() -> Arg {
    Arg::new("load").long("load").action(ArgAction::SetTrue).help(
        "Also run the code of the app as a worker does, for at most --start-timeout, without \
         serving it",
    )
}

/// Parses the words of the command line, the first of which is the name of the program.
///
/// # Errors
/// Fails with [`Failure::CommandLine`] if the command line is wrong.
pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<CommandLine, Failure> {
    let words: Vec<OsString> = words.into_iter().collect();
    let is_verbose = words.iter().any(|word| word == "--verbose");
    let matches = match command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) if error.kind() == ErrorKind::DisplayVersion && is_verbose => {
            return Ok(CommandLine::Version);
        }
        Err(error)
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            return Ok(CommandLine::Print(error.render().to_string().into_bytes()));
        }
        Err(error) => return Err(Failure::CommandLine(error_message(&error))),
    };
    let usage_error = |message: &str| Err(Failure::CommandLine(message.to_owned()));
    let Some((name, own)) = matches.subcommand() else {
        return usage_error("No command given.");
    };
    if matches.get_flag("verbose") && !["version", "serve", "dev", "check"].contains(&name) {
        return usage_error(
            "`--verbose` can only be used with `--version` and with the commands serve, dev and \
             check.",
        );
    }
    let invalid = |error: clap::Error| Failure::CommandLine(error_message(&error));
    Ok(match name {
        "serve" | "dev" => CommandLine::Serve(ServeArgs::read(name, own, &matches)?),
        "config" => CommandLine::Config(ServeArgs::read(name, own, &matches)?),
        "check" => CommandLine::Check {
            args: ServeArgs::read(name, own, &matches)?,
            loads: own.get_flag("load"),
        },
        "status" => CommandLine::Status(StatusArgs::from_arg_matches(own).map_err(invalid)?),
        "live" => CommandLine::Live(LiveArgs::from_arg_matches(own).map_err(invalid)?),
        "profile" => CommandLine::Profile(ProfileArgs::from_arg_matches(own).map_err(invalid)?),
        "new" => CommandLine::New(NewArgs::from_arg_matches(own).map_err(invalid)?),
        "version" if own.get_flag("verbose") => CommandLine::Version,
        "completions" => {
            let mut text = Vec::new();
            let shell = *own.get_one::<Shell>("shell").expect("clap asks for it");
            clap_complete::generate(shell, &mut command(), "rookery", &mut text);
            if shell == Shell::Bash {
                text.extend_from_slice(BASH.replace("RARE", &rare_options()).as_bytes());
            }
            CommandLine::Print(text)
        }
        "schema" => CommandLine::Print(SCHEMA.into()),
        "man" => CommandLine::Print(manual::page().into()),
        _ => CommandLine::Print(command().render_version().into_bytes()),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::*;
    use crate::settings::serve_settings::ServeSettings;

    fn parse(words: &[&str]) -> Result<CommandLine, Failure> {
        read(["rookery"].iter().chain(words).map(OsString::from))
    }

    /// Parses a command line of `rookery serve` for a test.
    pub(crate) fn options_of(words: &[&str]) -> ServeArgs {
        match parse(words) {
            Ok(CommandLine::Serve(args)) => args,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    fn settings_of(args: ServeArgs) -> rookery_settings::Settings {
        let settings = rookery_settings::Settings::combine(args.given);
        if args.is_dev { settings.with_dev_defaults() } else { settings }
    }

    /// Returns the settings that result from a command line alone, for a test: `_server.yml` and
    /// environment variables are not read.
    pub(crate) fn served(words: &[&str]) -> ServeSettings {
        match ServeSettings::of(settings_of(options_of(words))) {
            Ok(serve) => serve,
            Err(failure) => panic!("{words:?}: {failure:?}"),
        }
    }

    fn printed(words: &[&str]) -> String {
        match parse(words) {
            Ok(CommandLine::Print(text)) => String::from_utf8(text).unwrap(),
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn the_command_definition_passes_claps_checks() {
        command().debug_assert();
    }

    #[test]
    fn the_schema_is_printed_for_editors() {
        let schema: serde_json::Value = serde_json::from_str(&printed(&["schema"])).unwrap();
        assert!(schema["properties"]["options"]["properties"]["port"].is_object());
        let help = printed(&["schema", "--help"]);
        assert!(help.contains("# yaml-language-server: $schema=_server.schema.json"), "{help}");
    }

    #[test]
    fn a_check_loads_the_app_and_commands_show_all_calls_only_on_request() {
        for (words, expected) in [
            (&["check", "a"][..], (false, false)),
            (&["check", "--load", "a", "--verbose"], (true, true)),
            (&["--verbose", "check", "a"], (false, true)),
        ] {
            match parse(words) {
                Ok(CommandLine::Check { args, loads }) => {
                    assert_eq!((loads, args.is_verbose), expected, "{words:?}");
                }
                other => panic!("{words:?}: {other:?}"),
            }
        }
        assert!(options_of(&["dev", "a", "--verbose"]).is_verbose);
        assert!(!options_of(&["serve", "a"]).is_verbose);
        assert_usage_error(
            &["serve", "a", "--load"],
            "`--load` is not an option. Did you mean `--reload`?",
        );
        assert!(printed(&["check", "--help"]).contains("--load"));
    }

    #[test]
    fn the_target_follows_the_command() {
        let target = |words: &[&str]| match parse(words) {
            Ok(CommandLine::Serve(command)) => command.target,
            other => panic!("{other:?}"),
        };
        assert_eq!(target(&["serve", "app/", "--port", "9000"]), Path::new("app/"));
        assert_eq!(target(&["--port=1", "--log=none", "serve", "--", "-odd"]), Path::new("-odd"));
    }

    pub(crate) fn assert_usage_error(words: &[&str], expected: &str) {
        let served = parse(words).and_then(|parsed| match parsed {
            CommandLine::Serve(command) => {
                ServeSettings::of(settings_of(command)).map(|serve| format!("{serve:?}"))
            }
            other => Ok(format!("{other:?}")),
        });
        match served {
            Err(Failure::CommandLine(message)) => assert_eq!(message, expected, "{words:?}"),
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn error_messages_name_the_mistake_and_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().to_str().unwrap();
        let is_no_command =
            format!("`{there}` is not a command. Did you mean `rookery serve {there}`?");
        for (words, expected) in [
            (&[][..], "No command given."),
            (&["--port", "1"], "No command given."),
            (&["server", "app/"], "`server` is not a command. Did you mean `serve`?"),
            (&["serv", "app/"], "`serv` is not a command. Did you mean `serve`?"),
            (&["srve", "app/"], "`srve` is not a command. Did you mean `serve`?"),
            (&["stats"], "`stats` is not a command. Did you mean `status`?"),
            (&["comp"], "`comp` is not a command. Did you mean `completions`?"),
            (&["zzz"], "`zzz` is not a command."),
            (&[there], &is_no_command),
            (&["serve"], "`<target>` is missing."),
            (&["serve", "a", "b"], "`b` is an unexpected argument."),
            (&["serve", "a", "--prot", "1"], "`--prot` is not an option. Did you mean `--port`?"),
            (&["--prot=1", "serve", "a"], "`--prot` is not an option. Did you mean `--port`?"),
            (&["serve", "a", "--nonsense"], "`--nonsense` is not an option."),
            (&["serve", "a", "--port"], "`--port` needs a value."),
            (&["version", "--verbose=1"], "`--verbose` takes no value."),
            (&["status", "--watch", "--json"], "`--watch` cannot be used together with `--json`."),
            (&["completions"], "`<shell>` is missing."),
            (
                &["completions", "cmd"],
                "`cmd` is not accepted here: use bash, elvish, fish, powershell or zsh.",
            ),
            (&["man", "rookery"], "`rookery` is an unexpected argument."),
            (&["live", "a", "b"], "`b` is an unexpected argument."),
            (&["profile", "--seconds", "301"], "`--seconds`: 301 is not in 1..=300."),
            (&["profile", "--worker=one"], "`--worker`: invalid digit found in string."),
            (&["--verbose"], "No command given."),
            (
                &["--verbose", "config", "a"],
                "`--verbose` can only be used with `--version` and with the commands serve, dev \
                 and check.",
            ),
            (&["new", "shiny"], "`<folder>` is missing."),
            (
                &["new", "\x1b[31m", "a"],
                "`\\u{1b}[31m` is not accepted here: use shiny, api, chat or site.",
            ),
            (
                &["new", "shinny", "a"],
                "`shinny` is not accepted here: use shiny, api, chat or site.",
            ),
        ] {
            assert_usage_error(words, expected);
        }
    }

    /// Returns the names of all options that a help text lists.
    fn listed(help: &str) -> Vec<&str> {
        let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
        let words =
            lines.filter_map(|line| line.split_whitespace().find(|word| word.starts_with("--")));
        words.map(|word| word.split(['[', '=']).next().unwrap_or(word)).collect()
    }

    #[test]
    fn short_help_lists_the_most_common_options_in_six_groups() {
        let short = printed(&["-h"]);
        assert!(
            short.starts_with(
                "Usage: rookery serve <target> [options]\n\nServes <target>: a Shiny app"
            ),
            "{short}"
        );
        let options = listed(&short);
        assert!((20..=35).contains(&options.len()), "{}: {options:?}", options.len());
        let headings =
            ["Address:", "HTTPS:", "Workers:", "Limits:", "Logs and status:", "Development:"];
        let found: Vec<&str> = short.lines().filter(|line| headings.contains(line)).collect();
        assert_eq!(found, headings, "{short}");
        let of_serve = printed(&["serve", "-h"]);
        assert!(
            options
                .iter()
                .all(|option| *option == "--version" || listed(&of_serve).contains(option))
        );
        for line in short.lines() {
            assert!(line.chars().count() <= 120, "{line}");
        }
    }

    #[test]
    fn long_help_lists_all_options_in_lines_that_fit() {
        let (short, long) = (printed(&["-h"]), printed(&["--help"]));
        assert!(listed(&short).iter().all(|option| listed(&long).contains(option)));
        for row in rookery_settings::table::all() {
            let option = format!("--{}", row.long_option());
            let has_option = row.has_option();
            assert_eq!(listed(&long).contains(&option.as_str()), has_option, "{}", row.name);
        }
        assert!(!long.contains("  version  "), "{long}");
        assert_eq!(printed(&["help"]), long);
        for status in ["0", "1", "2", "3", "4", "5", "128 + n"] {
            let lists =
                |help: &str| help.lines().any(|line| line.starts_with(&format!("  {status}  ")));
            assert!(lists(&long) && lists(&printed(&["serve", "--help"])), "{status}: {long}");
        }
        for line in long.lines() {
            assert!(line.chars().count() <= 120, "{line}");
        }
        let version = format!("rookery {}\n", env!("CARGO_PKG_VERSION"));
        for words in [&["--version"][..], &["-v"], &["version"]] {
            assert_eq!(printed(words), version, "{words:?}");
        }
        for words in
            [&["--version", "--verbose"][..], &["--verbose", "-v"], &["version", "--verbose"]]
        {
            assert!(matches!(parse(words), Ok(CommandLine::Version)), "{words:?}");
        }
    }

    #[test]
    fn completions_and_the_manual_page_list_the_options() {
        for shell in ["bash", "zsh", "fish"] {
            assert!(printed(&["completions", shell]).contains("tls-cert"), "{shell}");
        }
        let page = printed(&["man"]);
        assert!(page.contains(".TH rookery 1") && page.contains("tls\\-cert"), "{page}");
        assert!(page.contains("\nrookery \\- serve R apps"), "{page}");
        for text in
            [".SH COMMANDS", "rookery status", ".SH \"EXIT STATUS\"", "\\-\\-fail\\-fast was given"]
        {
            assert!(page.contains(text), "{text}: {page}");
        }
        for row in rookery_settings::table::all().filter(|row| row.has_option()) {
            let option = format!("--{}", row.long_option()).replace('-', "\\-");
            assert!(page.contains(&format!("\\fB{option}\\fR")), "{option}");
        }
        // The page must not refer to other pages, because the commands have no pages of their own.
        assert!(!page.contains("(1)") && !page.contains("rookery\\-serve"), "{page}");
    }
}
