//! HTTPS: certificates, handshakes, challenges, and what listeners with TLS add to responses.

mod acme_challenges;
mod certificates;
mod client_programs;
mod hsts;
mod https;
mod misbehaving_clients;
mod redirect;
mod timing;
