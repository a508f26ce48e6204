//! The bodies of the fuzz targets, with one module per crate under test. The tests in `tests/` run
//! them with the inputs in `corpus/`.

#![allow(clippy::disallowed_methods, reason = "a fuzz target may panic")]

pub mod acme;
pub mod forwarding_headers;
pub mod http;
pub mod masking;
pub mod page_script;
pub mod proxy_header;
pub mod rprof;
pub mod settings;
pub mod static_files;
pub mod trace;
pub mod worker;
