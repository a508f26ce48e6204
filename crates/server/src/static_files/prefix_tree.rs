//! A prefix tree of URL paths, whose edges are path segments. The search for the longest matching
//! key takes time proportional to the length of the path.

/// A tree that stores values by URL path. Its edges are path segments, and each of its nodes may
/// have a value.
#[derive(Debug)]
pub(crate) struct PrefixTree<T> {
    value: Option<T>,
    /// The child nodes, sorted by their path segments.
    children: Vec<(Box<[u8]>, PrefixTree<T>)>,
}

impl<T> Default for PrefixTree<T> {
    fn default() -> PrefixTree<T> {
        PrefixTree { value: None, children: Vec::new() }
    }
}

impl<T> PrefixTree<T> {
    /// Adds a value to the tree, or replaces the value of an equal key. `key` is `/` or a sequence
    /// of path segments with a `/` before each.
    pub(crate) fn insert(&mut self, key: &[u8], value: T) {
        let mut node = self;
        for segment in segments(key) {
            let index = match node.children.binary_search_by(|(name, _)| (**name).cmp(segment)) {
                Ok(index) => index,
                Err(index) => {
                    node.children.insert(index, (segment.into(), PrefixTree::default()));
                    index
                }
            };
            node = &mut node.children[index].1;
        }
        node.value = Some(value);
    }

    /// Finds the longest key that is a prefix of `path` and ends at a segment boundary. Returns its
    /// value and the rest of `path`, without a leading `/`.
    pub(crate) fn longest_prefix<'a>(&self, path: &'a [u8]) -> Option<(&T, &'a [u8])> {
        let mut node = self;
        let mut rest = path.strip_prefix(b"/").unwrap_or(path);
        let mut found = node.value.as_ref().map(|value| (value, rest));
        while !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            let Ok(index) = node.children.binary_search_by(|(name, _)| (**name).cmp(&rest[..end]))
            else {
                break;
            };
            node = &node.children[index].1;
            rest = rest.get(end + 1..).unwrap_or_default();
            if let Some(value) = &node.value {
                found = Some((value, rest));
            }
        }
        found
    }
}

fn segments(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    key.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_whole_segment_prefix_wins() {
        let mut tree = PrefixTree::default();
        for key in ["/a", "/a/b", "/a/b/c/d", "/x/y", "/\u{e9}"] {
            tree.insert(key.as_bytes(), key);
        }
        let table: &[(&str, Option<(&str, &str)>)] = &[
            ("/", None),
            ("/a", Some(("/a", ""))),
            ("/ab", None),
            ("/a/x/y", Some(("/a", "x/y"))),
            ("/a/b", Some(("/a/b", ""))),
            ("/a/bc", Some(("/a", "bc"))),
            ("/a/b/c", Some(("/a/b", "c"))),
            ("/a/b/c/dd", Some(("/a/b", "c/dd"))),
            ("/a/b/c/d/e", Some(("/a/b/c/d", "e"))),
            ("/x", None),
            ("/x/y/z", Some(("/x/y", "z"))),
            ("/A", None),
            ("/\u{e9}/f", Some(("/\u{e9}", "f"))),
        ];
        for (path, expected) in table {
            let expected = expected.map(|(key, rest)| (key, rest.as_bytes()));
            assert_eq!(
                tree.longest_prefix(path.as_bytes()).map(|(v, rest)| (*v, rest)),
                expected,
                "{path}"
            );
        }
        tree.insert(b"/", "/");
        assert_eq!(tree.longest_prefix(b"/x/q"), Some((&"/", &b"x/q"[..])));
        assert_eq!(tree.longest_prefix(b"/"), Some((&"/", &b""[..])));
    }
}
