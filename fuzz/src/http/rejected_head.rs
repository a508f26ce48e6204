//! The fuzz target of the first bytes of a request head that hyper has rejected, from which the
//! access log takes the method and the target.

/// Finds the method and the target in arbitrary bytes. The function that is called checks what it
/// has found.
pub fn rejected_head(bytes: &[u8]) {
    rookery_server::rejected_head_for_fuzzer(bytes);
}
