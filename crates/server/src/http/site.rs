//! What a listener serves.

use std::sync::Arc;

use super::spool_folder::SpoolFolder;
use crate::static_files::StaticFiles;

/// What a listener serves.
#[derive(Debug, Clone, Default)]
pub struct Site {
    /// Files served without the application. May be changed while the listener runs.
    pub files: StaticFiles,
    /// Whether the application sees the head of a request before its body is read
    /// ([`Event::Head`](rookery_exchange::Event::Head)).
    pub sees_heads: bool,
    /// Where bodies lie that do not stay in memory.
    pub spool: Arc<SpoolFolder>,
}
