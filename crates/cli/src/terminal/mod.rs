//! The terminal and the desktop of the user who started the server.

pub(crate) mod browser;
#[cfg(target_os = "linux")]
pub(crate) mod r_prompt;
pub(crate) mod startup_screen;
