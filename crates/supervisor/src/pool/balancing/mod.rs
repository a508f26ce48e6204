//! The balancer, which holds the queue of requests and chooses a worker for each request.

pub(super) mod balancer;
mod in_flight;
mod latency_estimate;
pub(super) mod queue;
pub(super) mod session_affinity;
mod sessions;
mod shares;
pub(super) mod worker_load;
