//! Building responses from what the application or a file provides, and sending them through hyper
//! or h2.

pub(crate) mod body_source;
pub(crate) mod builder;
pub mod compress;
pub(crate) mod error_page;
pub(crate) mod header_name_cache;
pub(crate) mod https_redirect;
pub(crate) mod page_script;
pub(crate) mod response_body;
pub(crate) mod sendfile;
pub(crate) mod static_file;
pub(crate) mod stream;
