//! `--cookie-key-file`: the keys by which clients come back to their worker, where they are to outlive the program or be the same on
//! several machines.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rookery_supervisor::CookieKeys;

use crate::failure::Failure;

/// The same without a file.
pub(crate) const VARIABLE: &str = "ROOKERY_COOKIE_KEY";

/// Bytes of the file: sixteen keys need a few thousand, and another file that was named may have any number.
const BYTES_MOST: u64 = 64 << 10;

/// What others may do with the file: its group may read it, as it does where an orchestrator puts secrets into place.
const FORBIDDEN: u32 = 0o027;

/// Those of the file, else of the environment, else one of this program's own.
///
/// # Errors
/// When what was given is none.
pub(crate) fn open(file: Option<&PathBuf>) -> Result<CookieKeys, Failure> {
    if let Some(file) = file {
        return read(file).map_err(Failure::Serving);
    }
    match std::env::var_os(VARIABLE) {
        Some(text) if !text.is_empty() => CookieKeys::parse(text.as_encoded_bytes())
            .map_err(|wrong| Failure::Serving(format!("The environment variable {VARIABLE}: {wrong}."))),
        _ => Ok(CookieKeys::random()),
    }
}

/// Those that a file has now.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read(file: &Path) -> Result<CookieKeys, String> {
    let named = format!("`--cookie-key-file` names `{}`", file.display());
    let cannot = |error| format!("{named}, which cannot be read: {error}.");
    // A pipe with a name, which is no file either, would have the thread that hears signals wait for somebody to write to it.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file);
    let mut opened = opened.map_err(cannot)?;
    let about = opened.metadata().map_err(cannot)?;
    if !about.is_file() {
        return Err(format!("{named}, which is no file."));
    }
    if about.mode() & FORBIDDEN != 0 {
        return Err(format!(
            "{named}, which others than its owner may read or write (mode {:o}): chmod 600 {}",
            about.mode() & 0o777,
            file.display()
        ));
    }
    let mut text = Vec::new();
    opened.by_ref().take(BYTES_MOST + 1).read_to_end(&mut text).map_err(cannot)?;
    if text.len() as u64 > BYTES_MOST {
        return Err(format!("{named}, which has more than {BYTES_MOST} bytes: it is another file."));
    }
    CookieKeys::parse(&text)
        .map_err(|wrong| format!("{named}: {wrong}. `openssl rand -base64 32` makes one."))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_of_keys_is_its_owners() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        let key = "x".repeat(44);
        let with = |text: &str, mode| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            read(&file).map(|keys| keys.count())
        };
        for mode in [0o600, 0o400, 0o440, 0o640] {
            assert_eq!(with(&format!("{key}\n{key}"), mode), Ok(2), "{mode:o}");
            // To be written anew, also by who is not root.
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        }
        for mode in [0o644, 0o620, 0o601, 0o660] {
            let said = with(&key, mode).unwrap_err();
            assert!(said.contains(&format!("may read or write (mode {mode:o}): chmod 600 /")), "{said}");
        }
        for (text, says) in [
            (String::new(), "it has no key. `openssl rand -base64 32` makes one."),
            ("secret".to_owned(), "the key in line 1 has fewer than 32 characters."),
            ("x".repeat(BYTES_MOST as usize + 1), "which has more than 65536 bytes"),
        ] {
            let said = with(&text, 0o600).unwrap_err();
            assert!(said.contains(says) && !said.contains("secret"), "{said}");
        }
        assert!(read(folder.path()).unwrap_err().contains("which is no file"));
        let pipe = folder.path().join("pipe");
        let name = std::ffi::CString::new(pipe.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: a path that ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let (told, hears) = std::sync::mpsc::channel();
        std::thread::spawn(move || told.send(read(&pipe).unwrap_err()));
        let said = hears.recv_timeout(std::time::Duration::from_secs(20)).expect("it waits for a writer");
        assert!(said.contains("which is no file"), "{said}");
        assert!(read(&folder.path().join("none")).unwrap_err().contains("which cannot be read"));
    }
}
