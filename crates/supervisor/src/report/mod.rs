//! The status of a supervisor and its workers, for people, programs and probes. It never waits for
//! R, so it is available even while R is busy or after R has crashed.

mod data;
mod source;

pub(crate) use data::{Process, SharedReport, SlotReport, SupervisorState};
pub use source::SupervisorStatus;
