//! The records that the supervisor keeps for status reports, metrics and service managers.

mod recent_failures;
mod reload_report;
mod report_history;

pub(super) use recent_failures::RecentFailures;
pub(super) use reload_report::ReloadReport;
pub(super) use report_history::ReportHistory;
