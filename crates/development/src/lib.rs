//! What the command `rookery dev` adds to a server: it watches the files of an app, and keeps the
//! pages that are open in browsers up to date.
//!
//! ```text
//!   FileWatcher --changed files--> Change: style sheets, page, app
//!                                    |        |        |
//!                                    |        |        +--> the supervisor starts R again
//!                                    v        v                     |
//!                                  LiveReload <--ready or failed----+
//!                                    |
//!   DevelopmentApplication <---------+
//!     tells the open pages by WebSocket, and responds while the app cannot
//! ```

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test may panic"))]

mod access;
mod application;
mod change;
mod failure_page;
mod file_watcher;
mod ignore_rules;
mod live_reload;
mod outside_files;
mod restart_loop;
mod scan;

pub use application::{DETAILS_HEADER, development_application};
pub use change::Change;
pub use failure_page::StartFailure;
pub use file_watcher::{FileWatcher, WatchedFiles};
pub use ignore_rules::IgnoreRules;
pub use live_reload::LiveReload;
