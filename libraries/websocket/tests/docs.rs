//! Checks that the claims of `DESIGN.md` are tested.
#![cfg(not(miri))] // reads files

use std::fs;
use std::path::{Path, PathBuf};

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page() -> String {
    fs::read_to_string(crate_folder().join("DESIGN.md")).unwrap()
}

/// Returns the Rust files below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Returns the texts in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_test_that_the_page_names_exists() {
    let folders = ["src", "tests"].map(|folder| sources(&crate_folder().join(folder)));
    let code: String =
        folders.iter().flatten().map(|path| fs::read_to_string(path).unwrap()).collect();
    let page = page();
    let claims =
        page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| claim "));
    let mut count = 0;
    for row in claims.take_while(|row| !row.starts_with("| what |")) {
        let proof = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let tests = quoted(proof);
        assert!(!tests.is_empty(), "no test: {row}");
        for test in tests {
            let is_test = ["\n#[test]\nfn ", "\n    #[test]\n    fn "]
                .iter()
                .any(|start| code.contains(&format!("{start}{test}()")));
            let is_async = code.match_indices(&format!("async fn {test}()")).any(|(at, _)| {
                code[..at]
                    .trim_end()
                    .rsplit('\n')
                    .next()
                    .is_some_and(|line| line.contains("#[tokio::test"))
            });
            assert!(is_test || is_async, "{test} is no test: {row}");
            count += 1;
        }
    }
    assert!(count > 50, "{count} tests are named");
}

#[test]
fn every_file_that_the_page_names_exists() {
    let page = page();
    let is_file = |text: &&str| {
        text.contains('/') && [".rs", ".py", ".json"].iter().any(|end| text.ends_with(end))
    };
    let files: Vec<&str> = quoted(&page).into_iter().filter(is_file).collect();
    assert!(files.len() > 8, "{files:?}");
    for file in files {
        assert!(crate_folder().join("../..").join(file).is_file(), "{file}");
    }
}

#[test]
fn unsafe_code_is_in_three_places() {
    let source = crate_folder().join("src");
    let mut places = Vec::new();
    for path in sources(&source) {
        let blocks = fs::read_to_string(&path).unwrap().matches("unsafe {").count();
        places.extend(std::iter::repeat_n(path.strip_prefix(&source).unwrap().to_owned(), blocks));
    }
    places.sort();
    let expected = ["connection/mask_keys.rs", "connection/message.rs", "protocol/mask.rs"];
    assert_eq!(places, expected.map(PathBuf::from));
}
