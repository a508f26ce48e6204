//! An option: how it is declared, and how what was given for it is read.

use std::ffi::OsString;
use std::path::Path;

use clap::builder::{NonEmptyStringValueParser, OsStringValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};

use crate::failure::Failure;
use crate::settings;

fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// One with a text.
pub(super) fn text(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    option(name, value, help).value_parser(NonEmptyStringValueParser::new())
}

/// One with a path, which need not be UTF-8.
pub(super) fn path(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    option(name, value, help).value_parser(OsStringValueParser::new())
}

/// One without a value.
pub(super) fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

pub(super) fn wrong<T>(message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::CommandLine(message.into()))
}

/// What was given behind the command, or before it.
pub(super) struct Given<'a> {
    pub(super) own: &'a ArgMatches,
    pub(super) root: &'a ArgMatches,
}

impl Given<'_> {
    fn of(&self, name: &str) -> &ArgMatches {
        let is_own = self.own.value_source(name) == Some(ValueSource::CommandLine)
            || self.root.value_source(name) != Some(ValueSource::CommandLine);
        if is_own { self.own } else { self.root }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.of(name).get_one::<String>(name).map(String::as_str)
    }

    /// # Errors
    /// When there is nothing between its commas: that would be no list, and so everybody's.
    pub(super) fn list(&self, name: &str) -> Result<Option<Vec<String>>, Failure> {
        match self.text(name).map(settings::list) {
            Some(words) if words.is_empty() => wrong(format!("`--{name}` needs a value.")),
            words => Ok(words),
        }
    }

    pub(super) fn texts(&self, name: &str) -> impl Iterator<Item = &String> {
        self.of(name).get_many::<String>(name).unwrap_or_default()
    }

    /// All of them, those before the command first: where the last of several counts, each for itself.
    pub(super) fn all_texts(&self, name: &str) -> impl Iterator<Item = &String> {
        [self.root, self.own].into_iter().flat_map(move |at| at.get_many::<String>(name).unwrap_or_default())
    }

    /// Whether it was written, and is not the default.
    pub(super) fn is_given(&self, name: &str) -> bool {
        self.of(name).value_source(name) == Some(ValueSource::CommandLine)
    }

    /// Returns whether `name` was given and `other`, which overrides `name`, was not given after
    /// it. Options after the subcommand take precedence over options before it. In each of the two
    /// places clap keeps only the last of the two options.
    pub(super) fn is_last(&self, name: &str, other: &str) -> bool {
        let is_in = |at: &ArgMatches, name| at.value_source(name) == Some(ValueSource::CommandLine);
        let at = if is_in(self.own, name) || is_in(self.own, other) { self.own } else { self.root };
        is_in(at, name)
    }

    /// # Errors
    /// When it was given without one.
    pub(super) fn path(&self, name: &str) -> Result<Option<&Path>, Failure> {
        Ok(self.paths(name)?.pop())
    }

    pub(super) fn paths(&self, name: &str) -> Result<Vec<&Path>, Failure> {
        let paths: Vec<&Path> =
            self.of(name).get_many::<OsString>(name).unwrap_or_default().map(Path::new).collect();
        if paths.iter().any(|path| path.as_os_str().is_empty()) {
            return wrong(format!("`--{name}` needs a value."));
        }
        Ok(paths)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.of(name).get_flag(name)
    }

    /// The value that a word stands for.
    pub(super) fn choice<T: Copy, const COUNT: usize>(
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
