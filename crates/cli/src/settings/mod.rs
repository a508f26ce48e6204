//! The settings: reading them from all sources, combining them, and converting them for the server
//! and for the R processes.

pub(crate) mod passed_to_r;
pub(crate) mod r_arguments;
pub(crate) mod serve_settings;
pub(crate) mod server;
pub(crate) mod server_yml;
pub(crate) mod sources;

/// Returns settings for a test. Each given setting has a source, a name and a value.
#[cfg(test)]
fn settings_from(given: &[(rookery_settings::Source, &str, &str)]) -> rookery_settings::Settings {
    use rookery_settings::{GivenValue, Raw, table};
    rookery_settings::Settings::combine(given.iter().map(|(source, name, text)| {
        GivenValue::parse(table::row(name), &Raw::from(*text), *source).unwrap()
    }))
}
