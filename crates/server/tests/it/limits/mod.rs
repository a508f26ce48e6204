//! The limits that clients cannot exceed, and the responses to clients that try.

mod deadlines;
pub(crate) mod each_limit;
mod eviction;
#[cfg(target_os = "linux")]
mod fair_turns;
#[cfg(target_os = "linux")]
mod file_descriptors;
#[cfg(target_os = "linux")]
mod largest_network;
mod limit_table;
mod memory_budget;
mod minimum_rates;
mod rejection_reports;
