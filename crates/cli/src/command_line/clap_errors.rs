//! The error messages for a wrong command line, which replace the messages of the command-line
//! parser clap.

use std::error::Error as _;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use rookery_settings::{escaped, similar_names};

use super::help_text::COMMANDS;

/// Returns this program's own message for an error that clap, the command-line parser, found.
pub(super) fn error_message(error: &clap::Error) -> String {
    let texts = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => std::slice::from_ref(text),
        Some(ContextValue::Strings(texts)) => texts.as_slice(),
        _ => &[],
    };
    let text = |kind| escaped(texts(kind).first().map_or("", String::as_str));
    // clap writes `--port <port>`, and lists several options if one of them is required.
    let option = text(ContextKind::InvalidArg);
    let option = option.split(' ').next().unwrap_or_default();
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand);
            if Path::new(&word).exists() {
                return format!("`{word}` is not a command. Did you mean `rookery serve {word}`?");
            }
            // clap's suggestions have no useful order.
            let near = similar_names(&word, COMMANDS.map(|(name, _)| name));
            format!(
                "`{word}` is not a command.{}",
                did_you_mean(near.first().copied().unwrap_or_default())
            )
        }
        ErrorKind::UnknownArgument if option.starts_with('-') => {
            format!(
                "`{option}` is not an option.{}",
                did_you_mean(&text(ContextKind::SuggestedArg))
            )
        }
        ErrorKind::UnknownArgument => format!("`{option}` is an unexpected argument."),
        ErrorKind::ArgumentConflict => {
            format!("`{option}` cannot be used together with `{}`.", text(ContextKind::PriorArg))
        }
        ErrorKind::TooManyValues => format!("`{option}` takes no value."),
        // Several arguments are one text.
        ErrorKind::MissingRequiredArgument => {
            format!("`{}` is missing.", texts(ContextKind::InvalidArg).join(" "))
        }
        ErrorKind::InvalidValue if text(ContextKind::InvalidValue).is_empty() => {
            format!("`{option}` needs a value.")
        }
        ErrorKind::InvalidValue => {
            let (last, others) = match texts(ContextKind::ValidValue) {
                [others @ .., last] => (last.as_str(), others.join(", ")),
                [] => ("another value", String::new()),
            };
            let value = text(ContextKind::InvalidValue);
            format!("`{value}` is not accepted here: use {others} or {last}.")
        }
        ErrorKind::ValueValidation => {
            let reason = error.source().map(ToString::to_string).unwrap_or_default();
            format!("`{option}`: {reason}.")
        }
        ErrorKind::InvalidUtf8 => {
            "An argument is not valid UTF-8, which only paths may be.".to_owned()
        }
        // The program uses no other checks of clap. If clap has more, the first line of its message
        // is used.
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
