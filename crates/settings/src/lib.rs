//! Every setting of rookery, in one table.
//!
//! A [`Setting`] is a static row with its name, [kind](Kind), bounds, default, help, and the
//! [places](Places) where it may be given. The command line, `_server.yml` and the environment are
//! read by these rows; R asks for the value of a setting with [`parse`]. The documentation is
//! written from the same rows by the example `generate`.
//!
//! The crate knows nothing of the server that the settings are for.

mod amount;
mod composite;
mod derived;
pub mod environment;
pub mod file;
mod forms;
mod kind;
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
pub use setting::{Applies, Default, Former, Group, Places, Rule, Section, Setting, Shown, Stability};
pub use settings::{Conflict, Given, Settings, Source};

/// Reads the value of a setting from a text, and returns it in its canonical form.
///
/// # Errors
/// Fails with a message when there is no such setting, or it does not accept the value.
///
/// ```
/// use rookery_settings::{Value, parse};
///
/// assert_eq!(parse("max_body_size", "10 MB"), Ok(Value::Number(1e7)));
/// assert!(parse("max_body_sise", "10 MB").unwrap_err().contains("Did you mean `max_body_size`?"));
/// ```
pub fn parse(name: &str, text: &str) -> Result<Value, String> {
    read(name, &Raw::from(text), &format!("`{name}`"))
}

/// The JSON schema of `_server.yml`, for editors. `examples/generate` writes it.
pub const SCHEMA: &str = include_str!("../server-yml.schema.json");

/// Reads the value of a setting that was given in `place`, such as `--port`.
///
/// # Errors
/// Fails with a message when there is no such setting, or it does not accept the value.
pub fn read(name: &str, raw: &Raw, place: &str) -> Result<Value, String> {
    match table::find(name) {
        Some(setting) => setting.read(raw).map_err(|invalid| invalid.at(place)),
        None => {
            let names = table::all().map(|row| row.name);
            let hint = near::did_you_mean(name, names, |near| format!("`{near}`"));
            Err(format!("`{name}` is not a setting.{hint}"))
        }
    }
}
