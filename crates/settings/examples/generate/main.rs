//! Writes the files that are made from the table of settings, or checks that they are up to date.
//!
//!     cargo run -p rookery-settings --example generate [-- --check]

mod markdown;
mod schema;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let is_check = std::env::args().any(|word| word == "--check");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut is_current = true;
    for (file, text) in [
        ("docs/settings.md", markdown::page()),
        ("crates/settings/server-yml.schema.json", schema::document()),
    ] {
        let path = root.join(file);
        if std::fs::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        if is_check {
            eprintln!("{file} is not what the table of settings gives: run `make settings`.");
            is_current = false;
        } else if let Err(error) = std::fs::write(&path, text) {
            eprintln!("{file} cannot be written: {error}.");
            is_current = false;
        } else {
            println!("wrote {file}");
        }
    }
    if is_current { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
