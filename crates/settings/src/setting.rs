//! The definition of a setting: one row in the table of settings.

use crate::kind::Kind;

/// The description of a setting, as a row of the table of all settings. The command line,
/// `_server.yml`, R and the documentation get all that they need to know about the setting from it.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The setting's name in `snake_case`, which is unique. The command-line option has `-` instead
    /// of `_`. The environment variable has upper-case letters and the prefix `ROOKERY_`.
    pub name: &'static str,
    /// The section of `_server.yml` to which the setting belongs.
    pub section: Section,
    /// The letter of the command-line option's short form, such as `p` for `-p`.
    pub short: Option<char>,
    /// Whether `-h` shows the command-line option. If not, only `--help` does.
    pub is_common: bool,
    /// The placeholder for the option's value in the help text, such as `port`. If it is empty, the
    /// usual placeholder of the setting's kind is used.
    pub placeholder: &'static str,
    /// The kind of the setting's value, such as a number of bytes.
    pub kind: Kind,
    /// The special words that the setting accepts besides values of its kind, such as `auto` for a
    /// number.
    pub words: &'static [&'static str],
    /// The words for which `yes` and `no` stand if the setting is not a flag. For example, `no`
    /// stands for `none` in the setting `log`.
    pub flag_words: Option<[&'static str; 2]>,
    /// The value of the setting if no source gives one. A flag without a default is off.
    pub default: Default,
    /// The text of the value that the setting has in development (`rookery dev`) if no source gives
    /// one. `None` if it is the same as otherwise.
    pub dev_default: Option<&'static str>,
    /// The minimum of the setting's value, if it is a number.
    pub min: f64,
    /// The maximum of the setting's value, if it is a number. Infinity means that "no limit" is
    /// accepted.
    pub max: f64,
    /// The places where the setting may be given.
    pub places: Places,
    /// Whether the setting concerns the R processes of an app. A static site, which has none, then
    /// lacks the setting.
    pub needs_r: bool,
    /// The R function that has an argument for the setting, such as `serve`, or the field of an app
    /// in R that contains the setting, such as `app$wsOrigins`. Empty if R has neither.
    pub r_function: &'static str,
    /// The one-line help of the setting, which has at most 70 characters.
    pub help: &'static str,
    /// The details about the setting, which `--help` and the documentation show after the one-line
    /// help.
    pub paragraph: &'static str,
    /// The group in which the help text lists the setting.
    pub group: Group,
    /// The stability of the setting between releases.
    pub stability: Stability,
    /// The event after which a changed value of the setting takes effect in a running server.
    pub applies: Applies,
    /// The names of settings of which at least one must be given together with this setting.
    pub needs: &'static [&'static str],
    /// The names of settings that cannot be given together with this setting.
    pub excludes: &'static [&'static str],
}

impl Setting {
    /// A setting whose fields are empty or have their usual values. Each setting in the table is
    /// based on it, and sets only the fields that differ.
    pub(crate) const EMPTY: Setting = Setting {
        name: "",
        section: Section::Options,
        short: None,
        is_common: false,
        placeholder: "",
        kind: Kind::Flag,
        words: &[],
        flag_words: None,
        default: Default::Nothing,
        dev_default: None,
        min: 0.0,
        max: f64::INFINITY,
        places: Places::ALL,
        needs_r: false,
        r_function: "",
        help: "",
        paragraph: "",
        group: Group::Limits,
        stability: Stability::Stable,
        applies: Applies::AtRestart,
        needs: &[],
        excludes: &[],
    };

    /// Returns the setting's key in `_server.yml`, which is also the name of the argument in R. The
    /// keys below `tls:` and `acme:` do not repeat the name of their section.
    pub fn key(&self) -> &'static str {
        let own = match self.section {
            Section::Tls => self.name.strip_prefix("tls_"),
            Section::Acme => self.name.strip_prefix("acme_"),
            Section::Options | Section::Limits => None,
        };
        own.unwrap_or(self.name)
    }

    /// Returns the placeholder for the option's value in the help text, such as `file`.
    pub fn placeholder(&self) -> &'static str {
        match self.kind {
            _ if !self.placeholder.is_empty() => self.placeholder,
            Kind::Count => "n",
            Kind::Bytes => "size",
            Kind::Seconds => "time",
            Kind::Choice(_) => "word",
            Kind::List(_) => "list",
            Kind::Path | Kind::Paths => "file",
            _ => "value",
        }
    }

    /// Returns how the setting is given in R: as an argument of a function, such as
    /// `tls_config(cert)`, or as a field of an app.
    pub fn r_argument(&self) -> Option<String> {
        match self.r_function {
            "" => None,
            field if field.contains('$') => Some(field.to_owned()),
            function => Some(format!("{function}({})", self.key())),
        }
    }

    /// Returns the name of the setting's command-line option, without the leading `--`.
    pub fn option(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Returns the name of the command-line option that changes the setting from its default,
    /// without the leading `--`. For a flag that is on by default, the name begins with `no-`.
    pub fn long_option(&self) -> String {
        let no = if self.is_on_by_default() { "no-" } else { "" };
        format!("{no}{}", self.option())
    }

    /// Returns the name of the setting's environment variable, such as `ROOKERY_PORT`.
    pub fn variable(&self) -> String {
        format!("ROOKERY_{}", self.name.to_ascii_uppercase())
    }

    /// Returns the path of the setting's key in `_server.yml`, such as `tls.acme.dir`.
    pub fn path(&self) -> String {
        match self.section {
            Section::Options => self.key().to_owned(),
            Section::Acme => format!("tls.acme.{}", self.key()),
            section => format!("{}.{}", section.key(), self.key()),
        }
    }

    /// Returns true if the setting has an option of its own on the command line.
    pub fn has_option(&self) -> bool {
        self.places.has(Places::COMMAND_LINE)
    }

    /// Returns true if only the program `rookery`, and not R, reads the setting's environment
    /// variable. Workers (R processes) then do not inherit the variable.
    pub fn is_program_variable(&self) -> bool {
        self.places.has(Places::ENVIRONMENT) && !self.places.has(Places::OPTION)
    }

    /// Returns the setting's default as the help text shows it, or `None` if there is no default.
    pub fn default_text(&self) -> Option<&'static str> {
        match self.default {
            Default::Nothing => matches!(self.kind, Kind::Flag).then_some("off"),
            Default::Is(text) | Default::Derived(text) => Some(text),
        }
    }

    /// Returns true if the setting is a flag that is on by default. The name of its command-line
    /// option then begins with `--no-`.
    pub fn is_on_by_default(&self) -> bool {
        matches!((self.kind, self.default), (Kind::Flag, Default::Is("on")))
    }
}

/// The value that a setting has if no source gives one.
#[derive(Debug, Clone, Copy)]
pub enum Default {
    /// The setting has no value by default, which means that its feature is off.
    Nothing,
    /// The default is the value that results from parsing this text.
    Is(&'static str),
    /// The default depends on other settings or on the system. The text describes it for the
    /// documentation.
    Derived(&'static str),
}

/// A set of places where a setting may be given, such as the command line and `_server.yml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places(u8);

impl Places {
    /// The command-line options of the program.
    pub const COMMAND_LINE: Places = Places(1);
    /// The configuration file `_server.yml`.
    pub const FILE: Places = Places(2);
    /// The arguments of R functions.
    pub const R: Places = Places(4);
    /// The environment variables with the prefix `ROOKERY_`.
    pub const ENVIRONMENT: Places = Places(8);
    /// The options of R, set with `options()`.
    pub const OPTION: Places = Places(16);
    /// All places where a setting may be given.
    pub const ALL: Places = Places(31);
    /// The places that the program reads before it starts R. These are all places except the
    /// options of R.
    pub const PROGRAM: Places = Places::ALL.without(Places::OPTION);

    /// Returns the places that are in this set or in `others`.
    #[must_use]
    pub const fn and(self, others: Places) -> Places {
        Places(self.0 | others.0)
    }

    /// Returns the places that are in this set but not in `others`.
    #[must_use]
    pub const fn without(self, others: Places) -> Places {
        Places(self.0 & !others.0)
    }

    /// Returns true if this set contains all places of `others`.
    pub const fn has(self, others: Places) -> bool {
        self.0 & others.0 == others.0
    }
}

/// A section of `_server.yml`: a mapping that contains settings.
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
    /// All sections of `_server.yml`.
    pub const ALL: [Section; 4] = [Section::Options, Section::Limits, Section::Tls, Section::Acme];

    /// Returns the key of the section in `_server.yml`.
    pub const fn key(self) -> &'static str {
        match self {
            Section::Options => "options",
            Section::Limits => "limits",
            Section::Tls => "tls",
            Section::Acme => "acme",
        }
    }

    /// Returns the section of `_server.yml` that contains this section, if there is one.
    pub const fn parent(self) -> Option<Section> {
        match self {
            Section::Options => None,
            Section::Limits | Section::Tls => Some(Section::Options),
            Section::Acme => Some(Section::Tls),
        }
    }
}

/// A group of related settings, which the help text and the documentation list together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Group {
    /// Settings of the address to listen on, and of proxies in front of it.
    Address,
    /// Settings of certificates and HTTPS.
    Https,
    /// Settings of the workers (R processes).
    Workers,
    /// Limits for clients, including timeouts.
    Limits,
    /// Settings of the access log, status and health checks.
    Logs,
    /// Settings for the development of an app.
    Development,
}

impl Group {
    /// All groups of settings, in the order in which the help text lists them.
    pub const ALL: [Group; 6] = [
        Group::Address,
        Group::Https,
        Group::Workers,
        Group::Limits,
        Group::Logs,
        Group::Development,
    ];

    /// Returns the heading of the group in the help text.
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

/// The stability of a setting between releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    /// The setting is stable between releases.
    Stable,
    /// The setting is experimental: it may change in any release.
    Experimental,
}

/// The event after which a changed value of a setting takes effect in a running server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applies {
    /// A changed value takes effect after a restart of the server, because the supervisor uses it.
    AtRestart,
    /// A changed value takes effect after a reload.
    AtReload,
}

impl Applies {
    /// Returns the words that complete the sentence "A change applies ..." in the documentation.
    pub const fn text(self) -> &'static str {
        match self {
            Applies::AtRestart => "at a restart",
            Applies::AtReload => "at a reload",
        }
    }
}
