//! The table of an I/O thread's connections, and the rules that apply to all of them: deadlines,
//! minimum rates, the memory budget, eviction when the table or the budget is full, and the return
//! of free memory to the system.

pub(crate) mod admission;
pub(crate) mod client_task;
pub(crate) mod clock;
pub(crate) mod eviction;
pub(crate) mod memory_budget;
#[cfg(test)]
pub(crate) mod model_testing;
pub(crate) mod peers;
mod pending_release;
pub(crate) mod rate;
pub(crate) mod table;
mod trim;
pub(crate) mod turns;
