//! What is to be known of a supervisor and its workers while they run, for people, programs and probes: nothing here asks R, so it is
//! answered also while R is busy, and after it has died.

mod json;
mod metrics;
mod report;
mod subject;
mod table;

pub(crate) use report::{Course, LastExit, Process, READY, Reload, SlotReport, Told};
pub use subject::{Readiness, Status};
