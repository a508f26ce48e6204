//! HTTP/1.1, and behaviour that is the same over HTTP/1.1 and HTTP/2.

#[cfg(target_os = "linux")]
mod blocking_work;
mod client_disconnects;
mod closure_application;
mod conditional_responses;
mod edge_cases;
mod http1;
mod proxy_protocol;
mod queued_requests;
mod rejected_heads;
mod routes;
mod spooled_bodies;
mod static_files;
pub(crate) mod streamed_request_bodies;
mod tracing;
