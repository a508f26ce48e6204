//! The records that the supervisor keeps for status reports, metrics and service managers.

mod recent_failures;
mod report_history;

pub(super) use recent_failures::RecentFailures;
pub(super) use report_history::ReportHistory;
