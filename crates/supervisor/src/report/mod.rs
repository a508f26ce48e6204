//! The status of a supervisor and its workers, for people, programs and probes. No report waits for
//! R, so the status is available also while R is busy and after it has crashed.

mod data;
mod json;
mod metrics;
mod source;
mod table;

pub(crate) use data::{
    LastExit, Lifecycle, Process, READY, Reload, Report, SharedReport, SlotReport,
};
pub use source::{ReadinessPolicy, SupervisorStatus};
