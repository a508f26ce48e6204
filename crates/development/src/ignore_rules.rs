//! The patterns of the setting `ignore`, which name files and folders that are not watched.

use std::path::Path;

/// The files and folders of an app that are not watched because the developer says so.
#[derive(Debug, Default, Clone)]
pub struct IgnoreRules(Vec<Rule>);

#[derive(Debug, Clone)]
struct Rule {
    pattern: String,
    /// Whether the pattern is for a path from the app's folder, and not for a name in any folder.
    is_path: bool,
}

impl IgnoreRules {
    /// Reads the patterns. A pattern with a `/` is compared with the path of a file or folder from
    /// the app's folder, and other ones with the name of each file and folder. In a pattern, `*`
    /// stands for any characters except `/`. A `/` at the end has no meaning.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> IgnoreRules {
        let rule = |pattern: &str| {
            let pattern = pattern.trim_end_matches('/');
            let is_path = pattern.contains('/');
            let pattern = pattern.trim_start_matches("./").trim_start_matches('/').to_owned();
            Rule { pattern, is_path }
        };
        IgnoreRules(patterns.into_iter().map(rule).collect())
    }

    /// Returns true if the file or folder with this path from the app's folder is not watched.
    pub(crate) fn contain(&self, path: &Path) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let path = path.to_string_lossy();
        self.0.iter().any(|rule| {
            let text = if rule.is_path { &path } else { &name };
            matches(rule.pattern.as_bytes(), text.as_bytes())
        })
    }
}

/// Returns true if a text has the form of a pattern. Takes at most the product of both lengths in
/// steps.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut next) = (0, 0);
    // Where the last `*` is, and up to where it stands for text.
    let mut star = None;
    while next < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, next));
                at += 1;
            }
            Some(byte) if *byte == text[next] => (at, next) = (at + 1, next + 1),
            _ => match star {
                Some((start, end)) if text[end] != b'/' => {
                    star = Some((start, end + 1));
                    (at, next) = (start + 1, end + 1);
                }
                _ => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_files_and_folders() {
        for (pattern, path, is_ignored) in [
            ("plot.png", "plot.png", true),
            ("plot.png", "a/b/plot.png", true),
            ("plot.png", "plots.png", false),
            ("*.png", "a/plot.png", true),
            ("*.png", "a/plot.pngx", false),
            ("a*c*", "abcbd", true),
            ("*a*a*b", "aaaaaaaaaaaa", false),
            ("out", "out", true),
            ("out/", "a/out", true),
            ("a/out", "a/out", true),
            ("./a/out/", "a/out", true),
            ("/out", "out", true),
            ("a/out", "b/a/out", false),
            ("a/*.md", "a/x.md", true),
            ("a/*.md", "a/b/x.md", false),
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
        ] {
            let rules = IgnoreRules::new([pattern]);
            assert_eq!(rules.contain(Path::new(path)), is_ignored, "{pattern} {path}");
        }
        assert!(!IgnoreRules::default().contain(Path::new("a")));
    }
}
