//! The settings of all sources, and the values that the program and R processes use.

pub(crate) mod admin_address;
pub(crate) mod combined;
pub(crate) mod passed_to_r;
pub(crate) mod r_arguments;
pub(crate) mod serve_settings;
pub(crate) mod server_yml;
pub(crate) mod sources;
pub(crate) mod workers;
