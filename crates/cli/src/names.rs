//! Names in messages.

/// Returns "`a`, `b`".
pub(crate) fn quoted(names: impl IntoIterator<Item = String>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
