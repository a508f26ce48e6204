//! All settings of Rookery, in one table.
//!
//! Each row of the table is a [`Setting`]: its name, [kind](Kind), bounds, default and help text,
//! and the [places](Places) where it may be given, such as the command line and `_server.yml`.
//! A value is parsed in the same way wherever it is given. The example `generate` writes the
//! documentation of the settings from the table.
//!
//! ```
//! use rookery_settings::{Raw, Value, table};
//!
//! let row = table::row("max_body_size");
//! assert_eq!(row.read(&Raw::from("10 MB")).ok(), Some(Value::Number(1e7)));
//! ```
//!
//! The crate does not depend on the server.

mod combined;
mod composite;
mod cross_checks;
pub mod environment;
pub mod key_value_lines;
mod kind;
pub mod server_yml;
mod setting;
mod suggestions;
pub mod table;
mod text_forms;
mod units;
mod value_parser;
pub mod yaml;

pub use combined::{GivenValue, Settings, Source};
pub use cross_checks::Conflict;
pub use kind::{Composite, Form, Kind, Raw, Rejected, Value, escaped};
pub use setting::{Applies, Default, Group, Places, Section, Setting, Stability};
pub use suggestions::{names_within, similar_names};
pub use text_forms::{EDITORS, UNIX};
pub use value_parser::{InvalidValue, expected_form};

/// The JSON schema of `_server.yml`, with which editors complete and check the file. The example
/// `generate` writes it.
pub const SCHEMA: &str = include_str!("../server-yml.schema.json");
