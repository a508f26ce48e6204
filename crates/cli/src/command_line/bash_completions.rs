//! The completion script for bash. Unlike the script that `clap_complete` generates, it completes
//! files and folders, and offers options only for a word that begins with `-`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, ValueEnum as _};
use clap_complete::Shell;
use rookery_settings::{Kind, table};

use crate::commands::new_app::Kind as NewKind;

/// The part of the script after the variables that depend on the command and on the option before
/// the cursor. An empty `COMPREPLY` makes bash complete files and folders.
const REST: &str = r#"    # The first two letters of an option offer only the most common options.
    case $cur in
        -|--) words=$common ;;
        -*) words="$common $others" ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}

complete -o bashdefault -o default -F _rookery rookery
"#;

/// Returns the completion script for the program that `command` describes.
pub(super) fn script(command: &Command) -> String {
    let commands: Vec<&Command> =
        command.get_subcommands().filter(|own| !own.is_hide_set()).collect();
    let names = |separator| -> String {
        commands.iter().map(|own| own.get_name()).collect::<Vec<_>>().join(separator)
    };
    let mut script = format!(
        r#"# Completions of the program rookery: commands, files and folders, and options after `-`.
_rookery() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}
    local word command= is_given= common= others= words=
    COMPREPLY=()
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case $word in
            --) return ;;
            {}) command=${{command:-$word}} ;;
        esac
    done
    # In `--log=none`, `=` is a word of its own.
    if [[ $cur == = ]]; then
        cur= is_given=yes
    elif [[ $prev == = ]]; then
        prev=${{COMP_WORDS[COMP_CWORD-2]}} is_given=yes
    fi
"#,
        names("|")
    );
    values(&mut script, command);
    let _ = writeln!(script, "    case $command in");
    for (options, of) in by_options(command, &commands) {
        let (common, others) = options;
        let _ = writeln!(script, "        {of}) common=\"{common}\" others=\"{others}\" ;;");
    }
    let kinds = NewKind::ALL.map(NewKind::name).join(" ");
    let shells: Vec<String> = Shell::value_variants().iter().map(Shell::to_string).collect();
    let _ = writeln!(
        script,
        "    esac
    case $command,$prev in
        ,*) words=\"{}\" ;;
        new,new) words=\"{kinds}\" ;;
        completions,completions) words=\"{}\" ;;
    esac",
        names(" "),
        shells.join(" ")
    );
    script + REST
}

/// Writes the part of the script that completes the value of an option.
fn values(script: &mut String, command: &Command) {
    let mut of_files: Vec<String> = Vec::new();
    let mut flags: Vec<String> = Vec::new();
    let mut choices: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for arg in command.get_arguments().filter(|arg| takes_value(arg)) {
        let kind = table::all().find(|row| row.name == arg.get_id().as_str()).map(|row| row.kind);
        match kind {
            Some(Kind::Flag) => flags.extend(spellings(arg)),
            Some(Kind::Choice(words)) => {
                choices.entry(words.join(" ")).or_default().extend(spellings(arg));
            }
            _ => of_files.extend(spellings(arg)),
        }
    }
    let _ = writeln!(script, "    case $prev in");
    for (words, options) in choices {
        let _ = writeln!(
            script,
            "        {}) COMPREPLY=($(compgen -W \"{words}\" -- \"$cur\")); return ;;",
            options.join("|")
        );
    }
    let _ = writeln!(script, "        {}) return ;;\n    esac", of_files.join("|"));
    let _ = writeln!(
        script,
        "    if [[ $is_given ]]; then
        case $prev in
            {}) COMPREPLY=($(compgen -W \"on off\" -- \"$cur\")) ;;
        esac
        return
    fi",
        flags.join("|")
    );
}

/// Returns the commands that have the same options, joined by `|`, by these options: the most
/// common ones, and the others. Without a command, the options are those of `rookery serve`.
fn by_options(command: &Command, commands: &[&Command]) -> BTreeMap<(String, String), String> {
    let mut by_options: BTreeMap<(String, String), String> = BTreeMap::new();
    let with_root = commands.iter().map(|own| (own.get_name(), *own));
    for (name, own) in std::iter::once(("\"\"", command)).chain(with_root) {
        let list = |is_common: bool| {
            let args = own.get_arguments().filter(|arg| !arg.is_hide_set());
            let args = args.filter(|arg| arg.is_hide_short_help_set() != is_common);
            args.filter_map(long).collect::<Vec<_>>().join(" ")
        };
        let of = by_options.entry((list(true), list(false))).or_default();
        if !of.is_empty() {
            of.push('|');
        }
        of.push_str(name);
    }
    by_options
}

fn takes_value(arg: &Arg) -> bool {
    !arg.is_hide_set() && matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

/// Returns the long spelling of an option, such as `--port`.
fn long(arg: &Arg) -> Option<String> {
    arg.get_long().map(|long| format!("--{long}"))
}

/// Returns all spellings of an option, such as `--port` and `-p`.
fn spellings(arg: &Arg) -> impl Iterator<Item = String> + use<> {
    long(arg).into_iter().chain(arg.get_short().map(|short| format!("-{short}")))
}
