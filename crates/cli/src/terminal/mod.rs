//! The user's terminal and browser: the start-up screen, the R prompt, the shortcuts of
//! `rookery dev`, and the option `--open`.

pub(crate) mod browser;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) mod r_prompt;
pub(crate) mod shortcuts;
pub(crate) mod startup_screen;
pub(crate) mod window_size;
