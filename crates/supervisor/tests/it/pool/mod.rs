//! Tests of the pool: requests and responses through the front end. The workers are fake ones in
//! this process.

mod access_log;
mod assignment;
mod deferred_bodies;
mod forwarding;
mod half_closed;
mod hop;
mod hostile_clients;

mod retries;
mod routes;
mod session_affinity;
mod session_urls;
mod starvation;
mod static_paths;
mod websockets;
