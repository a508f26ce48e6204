//! The names that routes have during a profile of this R process.

use std::path::PathBuf;

use rookery_worker_protocol::{MAX_ROUTES, OTHER_ROUTE, first_segment};

/// The state of profiling in this process.
#[derive(Debug, Default)]
pub(crate) struct Profiling {
    /// The folder for the file of a profile, if this process is a worker.
    pub(crate) folder: Option<PathBuf>,
    pub(super) is_running: bool,
    pub(super) routes: KnownRoutes,
}

impl Profiling {
    /// Learns the route of a request, such as `/users/<id>`, while a profile is running.
    pub(crate) fn learn_route(&mut self, route: &[u8]) {
        if self.is_running {
            self.routes.add(route);
        }
    }
}

/// The routes that a profile distinguishes. R never frees the name of a function, so their number
/// is limited.
#[derive(Debug, Default)]
pub(super) struct KnownRoutes(Vec<Box<[u8]>>);

impl KnownRoutes {
    /// Adds a route unless it is known. Returns false if there are too many.
    fn add(&mut self, route: &[u8]) -> bool {
        if self.0.iter().any(|known| **known == *route) {
            return true;
        }
        let has_space = (self.0.len() as u64) < MAX_ROUTES;
        if has_space {
            self.0.push(route.into());
        }
        has_space
    }

    /// Returns the route of a request for `path`. The app names the route of a request only while
    /// the handler runs, which is too late for a profile. The result is therefore the known pattern
    /// that matches the path, or the path's first segment.
    pub(super) fn of_path<'a>(&'a mut self, path: &'a [u8]) -> &'a [u8] {
        let segment = first_segment(path);
        let is_known = self.add(segment);
        let patterns = self.0.iter().filter(|pattern| matches_pattern(pattern, path));
        // Of several patterns, the one with the fewest variables.
        let best = patterns.min_by_key(|pattern| {
            (pattern.split(|byte| *byte == b'/').filter(|segment| is_variable(segment)).count(), 0)
        });
        match best {
            Some(pattern) => pattern,
            None if is_known => segment,
            None => OTHER_ROUTE.as_bytes(),
        }
    }
}

/// Returns true if a path matches the pattern of a route, such as `/users/<id>`.
fn matches_pattern(pattern: &[u8], path: &[u8]) -> bool {
    let mut path = path.split(|byte| *byte == b'/');
    for own in pattern.split(|byte| *byte == b'/') {
        if own == b"*" {
            return true;
        }
        match path.next() {
            Some(segment) if segment == own => {}
            Some(segment) if is_variable(own) && !segment.is_empty() => {}
            _ => return false,
        }
    }
    path.next().is_none()
}

/// Returns true if a segment of a route stands for any text, as in plumber (`<id>`), plumber2
/// (`:id`) or `OpenAPI` (`{id}`).
fn is_variable(segment: &[u8]) -> bool {
    matches!(segment.first(), Some(b'<' | b':' | b'{')) || segment == b"*"
}

/// Returns the name by which the handler for a route is called during a profile, such as
/// `GET:/users/<id>`. The format of Rprof separates names by spaces and quotes them, and marks
/// lines by `#`, so the name contains none of these.
pub(super) fn frame_name(method: &[u8], route: &[u8]) -> Vec<u8> {
    const METHODS: [&[u8]; 7] = [b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"];
    let method = if METHODS.contains(&method) { method } else { b"OTHER" };
    let slash: &[u8] = if route.starts_with(b"/") { b"" } else { b"/" };
    let mut name = [method, b":", slash, route].concat();
    for byte in &mut name {
        if !byte.is_ascii_graphic() && !(0x80..).contains(byte) || matches!(byte, b'"' | b'#') {
            *byte = b'_';
        }
    }
    String::from_utf8_lossy(&name).into_owned().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_belongs_to_the_pattern_with_the_fewest_variables() {
        let mut routes = KnownRoutes::default();
        assert_eq!(routes.of_path(b"/users/7"), b"/users");
        for pattern in [&b"/users/<id>"[..], b"/users/me", b"/users/:id/posts", b"/files/*"] {
            assert!(routes.add(pattern));
        }
        for (path, route) in [
            (&b"/users/7"[..], &b"/users/<id>"[..]),
            (b"/users/me", b"/users/me"),
            (b"/users/7/posts", b"/users/:id/posts"),
            (b"/users/7/likes", b"/users"),
            (b"/users/", b"/users"),
            (b"/files/a/b", b"/files/*"),
            (b"/", b"/"),
        ] {
            assert_eq!(routes.of_path(path), route, "{}", String::from_utf8_lossy(path));
        }
    }

    #[test]
    fn clients_cannot_make_endless_names() {
        let mut routes = KnownRoutes::default();
        for at in 0..MAX_ROUTES {
            assert!(routes.add(format!("/{at}").as_bytes()));
        }
        assert_eq!(routes.of_path(b"/new"), OTHER_ROUTE.as_bytes());
        assert_eq!(routes.of_path(b"/7/8"), b"/7");
        assert_eq!(frame_name(b"BREW", b"/pot"), b"OTHER:/pot");
    }

    #[test]
    fn names_have_nothing_that_the_format_of_rprof_uses() {
        assert_eq!(frame_name(b"GET", b"/a b\"c#d\x01"), b"GET:/a_b_c_d_");
        assert_eq!(frame_name(b"POST", "/ü".as_bytes()), "POST:/ü".as_bytes());
        assert_eq!(frame_name(b"GET", b"other"), b"GET:/other");
    }
}
