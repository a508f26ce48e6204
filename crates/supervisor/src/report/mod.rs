//! The status of a supervisor and its workers, for people, programs and probes. It never waits for
//! R, so it is available even while R is busy or after R has crashed.

mod data;
mod json;
mod metrics;
mod source;
mod table;

pub(crate) use data::{
    LastExit, Lifecycle, Process, READY, Reload, Report, SharedReport, SlotReport,
};
pub use source::{ReadinessPolicy, SupervisorStatus};
