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
use rookery_status::RouteTable;
pub use source::SupervisorStatus;

use crate::backend_registry::BackendRegistry;

/// Returns the metrics by route of the whole server. They include requests through the front end
/// and requests on connections that workers have accepted themselves.
fn routes(report: &Report, registry: &BackendRegistry) -> Box<RouteTable> {
    let all = Box::new(RouteTable::new());
    all.add_all(&report.past_routes);
    all.add_all(&registry.routes);
    for process in &report.processes {
        all.add_all(process.backend.scoreboard.routes());
    }
    all
}
