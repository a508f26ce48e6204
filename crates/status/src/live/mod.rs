//! The live page, which shows in a browser what the server and its R processes do at the moment.
//!
//! The page is one file without external resources. It gets a snapshot of the server's state every
//! second as a server-sent event, and `rookery status --watch` reads the same events. A thread of
//! its own makes the snapshots, only while somebody looks at them and once for all viewers. The
//! same thread takes a small sample every few seconds, so that the charts do not begin empty.

mod application;
mod history;
mod page;
mod viewers;

pub(crate) use application::AdminApplication;
pub(crate) use page::Page;
pub(crate) use viewers::Viewers;
