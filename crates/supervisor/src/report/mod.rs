//! What is to be known of a supervisor and its workers while they run, for people, programs and probes: nothing here asks R, so it is
//! answered also while R is busy, and after it has died.

mod data;
mod json;
mod metrics;
mod source;
mod table;

pub(crate) use data::{LastExit, Lifecycle, Process, READY, Reload, SharedReport, SlotReport};
pub use source::{ReadinessPolicy, SupervisorStatus};
