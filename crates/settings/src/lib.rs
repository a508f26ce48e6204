//! Every setting of rookery, in one table.
//!
//! A [`Setting`] is a static row with its name, [kind](Kind), bounds, default, help, and the
//! [places](Places) where it may be given. The command line, `_server.yml` and the environment are
//! read by these rows, and so are values that R is given. The documentation is written from the
//! same rows by the example `generate`.
//!
//! ```
//! use rookery_settings::{Raw, Value, table};
//!
//! let row = table::row("max_body_size");
//! assert_eq!(row.read(&Raw::from("10 MB")).ok(), Some(Value::Number(1e7)));
//! ```
//!
//! The crate knows nothing of the server that the settings are for.

mod amount;
mod composite;
mod derived;
pub mod environment;
pub mod file;
mod forms;
mod kind;
pub mod lines;
mod near;
mod read;
mod rules;
mod setting;
mod settings;
pub mod table;
pub mod yaml;

pub use forms::UNIX;
pub use kind::{Composite, Form, Kind, Raw, Refused, Value, escaped};
pub use near::near;
pub use read::{Invalid, wanted};
pub use setting::{
    Applies, Default, Former, Group, Places, Rule, Section, Setting, Shown, Stability,
};
pub use settings::{Conflict, Given, Settings, Source};

/// The JSON schema of `_server.yml`, for editors. `examples/generate` writes it.
pub const SCHEMA: &str = include_str!("../server-yml.schema.json");
