//! A row of the schema.

use crate::combined::{GivenValue, Settings};
use crate::kind::{Kind, Value};

/// A setting: everything that the command line, `_server.yml`, R, the environment and the
/// documentation know of it.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The name, in `snake_case`: unique, and the same in all places. The command line writes `-` for
    /// `_`, and the environment `ROOKERY_` and capitals.
    pub name: &'static str,
    /// Where in `_server.yml` the key belongs.
    pub section: Section,
    /// The key in that section, and the argument of its constructor in R.
    pub key: &'static str,
    /// The one-letter option.
    pub short: Option<char>,
    /// Which help of the command line shows the option.
    pub shown: Shown,
    /// What help calls the value.
    pub placeholder: &'static str,
    /// What the value can be.
    pub kind: Kind,
    /// Words that are accepted besides values of the kind, such as `auto`.
    pub words: &'static [&'static str],
    /// The words that yes and no stand for, where the setting is not a flag.
    pub flag_words: Option<[&'static str; 2]>,
    /// The value when nothing is given.
    pub default: Default,
    /// The least number.
    pub min: f64,
    /// The greatest number; infinity allows "no limit".
    pub max: f64,
    /// Where the setting may be given.
    pub places: Places,
    /// Whether workers are started without the environment variable, which is for the program.
    pub is_program_variable: bool,
    /// The argument of a function of R, such as `tls_config(cert)`; empty if there is none.
    pub r_argument: &'static str,
    /// Whether the value is masked where values are shown.
    pub is_secret: bool,
    /// One line of help, of at most 70 characters.
    pub help: &'static str,
    /// What a reader of the manual has to know besides the line of help.
    pub paragraph: &'static str,
    /// The group that help lists the setting in.
    pub group: Group,
    /// The version that introduced it.
    pub since: &'static str,
    /// How firmly it is promised.
    pub stability: Stability,
    /// When a changed value takes effect in a server that runs.
    pub applies: Applies,
    /// Settings of which one has to be given as well.
    pub needs: &'static [&'static str],
    /// Settings that must not be given as well.
    pub excludes: &'static [&'static str],
    /// Checks the value against those of other settings.
    pub rule: Option<Rule>,
    /// Older names, which are accepted for one release.
    pub former: &'static [Former],
}

/// Checks a setting that was given against other settings, and returns the message for a conflict.
pub type Rule = fn(&Settings, &GivenValue) -> Result<(), String>;

impl Setting {
    /// A row for other rows to take the fields from that they do not state.
    pub(crate) const EMPTY: Setting = Setting {
        name: "",
        section: Section::Options,
        key: "",
        short: None,
        shown: Shown::No,
        placeholder: "value",
        kind: Kind::Flag,
        words: &[],
        flag_words: None,
        default: Default::Nothing,
        min: 0.0,
        max: f64::INFINITY,
        places: Places::ALL,
        is_program_variable: false,
        r_argument: "",
        is_secret: false,
        help: "",
        paragraph: "",
        group: Group::Limits,
        since: "0.1.0",
        stability: Stability::Stable,
        applies: Applies::AtRestart,
        needs: &[],
        excludes: &[],
        rule: None,
        former: &[],
    };

    /// Returns the option of the command line, without the leading `--`.
    pub fn option(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Returns the environment variable.
    pub fn variable(&self) -> String {
        format!("ROOKERY_{}", self.name.to_uppercase())
    }

    /// Returns the path of the key in `_server.yml`, such as `tls.acme.dir`.
    pub fn path(&self) -> String {
        match self.section {
            Section::Options => self.key.to_owned(),
            Section::Acme => format!("tls.acme.{}", self.key),
            section => format!("{}.{}", section.key(), self.key),
        }
    }

    /// Returns true if the setting has an option of its own on the command line.
    pub fn has_option(&self) -> bool {
        self.places.has(Places::COMMAND_LINE) && self.shown != Shown::No
    }

    /// Returns the default as help and documents show it; `None` for a setting without a default.
    pub fn default_text(&self) -> Option<&'static str> {
        match self.default {
            Default::Nothing => None,
            Default::Is(text) | Default::Derived { text, .. } => Some(text),
        }
    }

    /// Returns true for a flag that is on by default, whose option is `--no-...`.
    pub fn is_on_by_default(&self) -> bool {
        matches!((self.kind, self.default), (Kind::Flag, Default::Is("on")))
    }
}

/// Which help of the command line shows an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// `-h` and `--help`.
    Always,
    /// `--help`.
    InLongHelp,
    /// None: the setting has no option of its own.
    No,
}

/// The value of a setting that was not given.
#[derive(Debug, Clone, Copy)]
pub enum Default {
    /// There is none: what the setting describes does not happen.
    Nothing,
    /// The value that this text is read as.
    Is(&'static str),
    /// A value that depends on other settings.
    Derived {
        /// What documents say of it.
        text: &'static str,
        /// Returns the value, or `None` for one that the server finds out when it starts.
        value: fn(&Settings) -> Option<Value>,
    },
}

/// A set of places where a setting may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places(u8);

impl Places {
    /// Options of the program.
    pub const COMMAND_LINE: Places = Places(1);
    /// `_server.yml`.
    pub const FILE: Places = Places(2);
    /// Arguments of functions of R.
    pub const R: Places = Places(4);
    /// Environment variables.
    pub const ENVIRONMENT: Places = Places(8);
    /// Options of R.
    pub const OPTION: Places = Places(16);
    /// Everywhere.
    pub const ALL: Places = Places(31);
    /// Where settings are given that the program needs before R runs.
    pub const PROGRAM: Places = Places::ALL.without(Places::OPTION);

    /// Returns these places and `others`.
    #[must_use]
    pub const fn and(self, others: Places) -> Places {
        Places(self.0 | others.0)
    }

    /// Returns these places without `others`.
    #[must_use]
    pub const fn without(self, others: Places) -> Places {
        Places(self.0 & !others.0)
    }

    /// Returns true when all `others` are among these places.
    pub const fn has(self, others: Places) -> bool {
        self.0 & others.0 == others.0
    }
}

/// A mapping of `_server.yml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Section {
    /// The keys below `options:`.
    Options,
    /// Those below `limits:`.
    Limits,
    /// Those below `tls:`.
    Tls,
    /// Those below `acme:` of `tls:`.
    Acme,
}

impl Section {
    /// All sections.
    pub const ALL: [Section; 4] = [Section::Options, Section::Limits, Section::Tls, Section::Acme];

    /// Returns the key that the section is the value of.
    pub const fn key(self) -> &'static str {
        match self {
            Section::Options => "options",
            Section::Limits => "limits",
            Section::Tls => "tls",
            Section::Acme => "acme",
        }
    }

    /// Returns the section that this one lies in.
    pub const fn parent(self) -> Option<Section> {
        match self {
            Section::Options => None,
            Section::Limits | Section::Tls => Some(Section::Options),
            Section::Acme => Some(Section::Tls),
        }
    }
}

/// A group of settings in help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Group {
    /// Where the server listens, and who is in front of it.
    Address,
    /// Certificates, and what clients are told about HTTPS.
    Https,
    /// R processes.
    Workers,
    /// What clients may do, and how long things may take.
    Limits,
    /// The access log, errors, status and probes.
    Logs,
    /// Writing an app.
    Development,
}

impl Group {
    /// All groups, in the order of help.
    pub const ALL: [Group; 6] = [
        Group::Address,
        Group::Https,
        Group::Workers,
        Group::Limits,
        Group::Logs,
        Group::Development,
    ];

    /// Returns the heading of the group.
    pub const fn title(self) -> &'static str {
        match self {
            Group::Address => "Address",
            Group::Https => "HTTPS",
            Group::Workers => "Workers",
            Group::Limits => "Limits",
            Group::Logs => "Logs and status",
            Group::Development => "Development",
        }
    }
}

/// How firmly a setting is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    /// It changes with a deprecation of one release only.
    Stable,
    /// As stable, and seldom needed: it is given by name, and listed apart.
    Advanced,
    /// It may change in any release.
    Experimental,
    /// It divides resources inside of the server, and is there for measurements.
    Internal,
}

impl Stability {
    /// Returns the word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Stability::Stable => "stable",
            Stability::Advanced => "advanced",
            Stability::Experimental => "experimental",
            Stability::Internal => "internal",
        }
    }
}

/// When a changed value takes effect in a server that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applies {
    /// At a restart: the supervisor uses the value for as long as it runs.
    AtRestart,
    /// At a reload.
    AtReload,
    /// At a reload where the only worker accepts connections itself, and at a restart where the
    /// supervisor's front end accepts.
    WithAcceptingProcess,
}

impl Applies {
    /// Returns what documents say of it.
    pub const fn text(self) -> &'static str {
        match self {
            Applies::AtRestart => "at a restart",
            Applies::AtReload => "at a reload",
            Applies::WithAcceptingProcess => {
                "at a reload with one worker, at a restart with several"
            }
        }
    }
}

/// An older name of a setting.
#[derive(Debug, Clone, Copy)]
pub struct Former {
    /// The name, in `snake_case`.
    pub name: &'static str,
    /// Where it was accepted.
    pub places: Places,
    /// The section of `_server.yml` that its key was in.
    pub section: Section,
    /// The value that the option stood for, if it took none.
    pub value: Option<&'static str>,
    /// Why there is no such option any more, where the setting has none; empty for a mere renaming.
    pub reason: &'static str,
}

impl Former {
    /// A former name in all places.
    pub(crate) const fn everywhere(name: &'static str, section: Section) -> Former {
        Former { name, places: Places::ALL, section, value: None, reason: "" }
    }

    /// A former option of the command line.
    pub(crate) const fn option(name: &'static str, reason: &'static str) -> Former {
        Former {
            name,
            places: Places::COMMAND_LINE,
            section: Section::Options,
            value: None,
            reason,
        }
    }
}
