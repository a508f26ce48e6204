//! The certificates and keys for tests, which the script `tls/make.sh` creates.

use std::path::{Path, PathBuf};

/// Returns the path of a test certificate or test key, such as `localhost.pem` or `localhost.key`.
pub fn tls_file(name: &str) -> PathBuf {
    let is_key = Path::new(name).extension().is_some_and(|extension| extension == "key")
        || name.ends_with("-key.der");
    let folder = if is_key { "tls/keys" } else { "tls/certificates" };
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(name)
}
