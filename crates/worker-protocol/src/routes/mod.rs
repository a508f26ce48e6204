//! Metrics by route: how many requests each route of the application gets, how many fail, and how
//! long they take. The table has a fixed size and consists of atomics, so it can be in memory that
//! a supervisor and a worker share.

mod name;
mod request_report;
mod series;
mod table;

pub use name::{MAX_ROUTE_LEN, RouteName, first_segment};
pub use request_report::RequestReport;
pub(crate) use request_report::StoredReport;
pub use series::SeriesReading;
pub use table::{MAX_ROUTES, OTHER_ROUTE, RouteCounters, RouteSample, RouteTable};
