//! The row of a setting in the table.

use crate::kind::Kind;

/// A row of the table: everything that the command line, `_server.yml`, R, the environment and the
/// documentation need to know about a setting.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The name in `snake_case`, which is unique and the same in all places. An option has `-`
    /// instead of `_`. An environment variable has the prefix `ROOKERY_` and upper-case letters.
    pub name: &'static str,
    /// The section of `_server.yml` that contains the key.
    pub section: Section,
    /// The key in that section and the name of the argument in R, if they differ from `name`.
    pub key: Option<&'static str>,
    /// The one-letter option.
    pub short: Option<char>,
    /// Whether `-h` shows the option, only `--help` shows it, or the setting has no option.
    pub shown: Shown,
    /// The name of the value in help; empty for the usual name of the kind.
    pub placeholder: &'static str,
    /// The kind of the value.
    pub kind: Kind,
    /// The words that are accepted besides values of the kind, such as `auto`.
    pub words: &'static [&'static str],
    /// The words that `yes` and `no` stand for, if the setting is not a flag.
    pub flag_words: Option<[&'static str; 2]>,
    /// The value if none is given.
    pub default: Default,
    /// The minimum of a number.
    pub min: f64,
    /// The maximum of a number; infinity allows "no limit".
    pub max: f64,
    /// The places where the setting may be given.
    pub places: Places,
    /// Whether only the program reads the environment variable, so that workers do not inherit it.
    pub is_program_variable: bool,
    /// The R function that has an argument for the setting, or the field of an app with a `$`;
    /// empty if R has neither.
    pub r_function: &'static str,
    /// Whether the value is masked in output.
    pub is_secret: bool,
    /// The line of help, which has at most 70 characters.
    pub help: &'static str,
    /// The details that the long help and the reference add to the line of help.
    pub paragraph: &'static str,
    /// The group of the setting in help.
    pub group: Group,
    /// The version of Rookery that introduced the setting.
    pub since: &'static str,
    /// The stability of the setting.
    pub stability: Stability,
    /// The time at which a changed value takes effect in a running server.
    pub applies: Applies,
    /// Settings of which at least one must be given as well.
    pub needs: &'static [&'static str],
    /// Settings that cannot be given as well.
    pub excludes: &'static [&'static str],
    /// Former names, which are accepted for one release.
    pub former: &'static [Former],
}

impl Setting {
    /// The row from which other rows take the fields that they do not set.
    pub(crate) const EMPTY: Setting = Setting {
        name: "",
        section: Section::Options,
        key: None,
        short: None,
        shown: Shown::No,
        placeholder: "",
        kind: Kind::Flag,
        words: &[],
        flag_words: None,
        default: Default::Nothing,
        min: 0.0,
        max: f64::INFINITY,
        places: Places::ALL,
        is_program_variable: false,
        r_function: "",
        is_secret: false,
        help: "",
        paragraph: "",
        group: Group::Limits,
        since: "0.1.0",
        stability: Stability::Stable,
        applies: Applies::AtRestart,
        needs: &[],
        excludes: &[],
        former: &[],
    };

    /// Returns the key in `_server.yml`, which is also the name of the argument in R.
    pub fn key(&self) -> &'static str {
        self.key.unwrap_or(self.name)
    }

    /// Returns the name of the value in help.
    pub fn placeholder(&self) -> &'static str {
        match self.kind {
            _ if !self.placeholder.is_empty() => self.placeholder,
            Kind::Count => "n",
            Kind::Bytes => "size",
            Kind::Seconds => "time",
            _ => "value",
        }
    }

    /// Returns the argument of the R function, such as `tls_config(cert)`, or the field of an app.
    pub fn r_argument(&self) -> Option<String> {
        match self.r_function {
            "" => None,
            field if field.contains('$') => Some(field.to_owned()),
            function => Some(format!("{function}({})", self.key())),
        }
    }

    /// Returns the name of the option, without the leading `--`.
    pub fn option(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Returns the option for a value that is not the default, without the leading `--`.
    pub fn long_option(&self) -> String {
        let no = if self.is_on_by_default() { "no-" } else { "" };
        format!("{no}{}", self.option())
    }

    /// Returns the name of the environment variable.
    pub fn variable(&self) -> String {
        format!("ROOKERY_{}", self.name.to_uppercase())
    }

    /// Returns the path of the key in `_server.yml`, such as `tls.acme.dir`.
    pub fn path(&self) -> String {
        match self.section {
            Section::Options => self.key().to_owned(),
            Section::Acme => format!("tls.acme.{}", self.key()),
            section => format!("{}.{}", section.key(), self.key()),
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
            Default::Is(text) | Default::Derived(text) => Some(text),
        }
    }

    /// Returns true for a flag that is on by default. Its option is `--no-...`.
    pub fn is_on_by_default(&self) -> bool {
        matches!((self.kind, self.default), (Kind::Flag, Default::Is("on")))
    }
}

/// The help that shows an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// `-h` and `--help`.
    Always,
    /// Only `--help`.
    InLongHelp,
    /// Neither, because the setting has no option of its own.
    No,
}

/// The value of a setting that is not given.
#[derive(Debug, Clone, Copy)]
pub enum Default {
    /// No value: the feature is off.
    Nothing,
    /// The value that is parsed from this text.
    Is(&'static str),
    /// A value that depends on other settings or on the system, with its description in documents.
    Derived(&'static str),
}

/// A set of places where a setting may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places(u8);

impl Places {
    /// Options of the program.
    pub const COMMAND_LINE: Places = Places(1);
    /// `_server.yml`.
    pub const FILE: Places = Places(2);
    /// Arguments of R functions.
    pub const R: Places = Places(4);
    /// Environment variables.
    pub const ENVIRONMENT: Places = Places(8);
    /// Options of R.
    pub const OPTION: Places = Places(16);
    /// All places.
    pub const ALL: Places = Places(31);
    /// The places that the program reads before it starts R.
    pub const PROGRAM: Places = Places::ALL.without(Places::OPTION);

    /// Returns the union of these places and `others`.
    #[must_use]
    pub const fn and(self, others: Places) -> Places {
        Places(self.0 | others.0)
    }

    /// Returns these places without `others`.
    #[must_use]
    pub const fn without(self, others: Places) -> Places {
        Places(self.0 & !others.0)
    }

    /// Returns true if these places include all `others`.
    pub const fn has(self, others: Places) -> bool {
        self.0 & others.0 == others.0
    }
}

/// A mapping in `_server.yml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Section {
    /// The keys below `options:`.
    Options,
    /// The keys below `limits:`.
    Limits,
    /// The keys below `tls:`.
    Tls,
    /// The keys below `acme:` within `tls:`.
    Acme,
}

impl Section {
    /// All sections.
    pub const ALL: [Section; 4] = [Section::Options, Section::Limits, Section::Tls, Section::Acme];

    /// Returns the key of the section.
    pub const fn key(self) -> &'static str {
        match self {
            Section::Options => "options",
            Section::Limits => "limits",
            Section::Tls => "tls",
            Section::Acme => "acme",
        }
    }

    /// Returns the section that contains this one.
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
    /// The address, and the proxies in front of it.
    Address,
    /// Certificates and other settings of HTTPS.
    Https,
    /// R processes.
    Workers,
    /// Limits for clients, and timeouts.
    Limits,
    /// The access log, status and health checks.
    Logs,
    /// Development of an app.
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

/// The stability of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    /// Changes are announced by a deprecation for one release.
    Stable,
    /// As stable, but seldom needed. The limit has no option of its own and is listed separately.
    Advanced,
    /// The setting may change in any release.
    Experimental,
    /// The setting divides resources within the server. It is meant for measurements.
    Internal,
}

impl Stability {
    /// Returns the name of the stability in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Stability::Stable => "stable",
            Stability::Advanced => "advanced",
            Stability::Experimental => "experimental",
            Stability::Internal => "internal",
        }
    }
}

/// The time at which a changed value takes effect in a running server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applies {
    /// After a restart of the server, because the supervisor uses the value.
    AtRestart,
    /// After a reload.
    AtReload,
    /// After a reload if a single worker accepts connections itself, and after a restart if the
    /// supervisor's front end accepts them.
    WithAcceptingProcess,
}

impl Applies {
    /// Returns the continuation of "A change applies" in documents.
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

/// A former name of a setting.
#[derive(Debug, Clone, Copy)]
pub struct Former {
    /// The name, in `snake_case`.
    pub name: &'static str,
    /// The places where the name was accepted.
    pub places: Places,
    /// The section of `_server.yml` that contained the key.
    pub section: Section,
    /// The value that the option stood for, if it took no value.
    pub value: Option<&'static str>,
    /// The reason why the setting has no option any more; empty if it was only renamed.
    pub reason: &'static str,
}

impl Former {
    /// Returns a former name that was accepted in all places.
    pub(crate) const fn everywhere(name: &'static str, section: Section) -> Former {
        Former { name, places: Places::ALL, section, value: None, reason: "" }
    }

    /// Returns a former option of the command line.
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
