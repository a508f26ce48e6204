//! Tests of section 5.1 of `httpuv-compat.md`: keys, paths, the inheritance of options, and changes
//! of static paths while the server runs.

use super::*;

#[test]
fn keys_are_strict() {
    let files = StaticFiles::new();
    let long = format!("/{}", "k".repeat(4096));
    let table: &[(&str, Result<(), PathError>)] = &[
        ("/", Ok(())),
        ("/a", Ok(())),
        ("/a/b c/\u{e9}", Ok(())),
        ("/..a/b..", Ok(())),
        ("", Err(PathError::Key)),
        ("a", Err(PathError::Key)),
        ("/a/", Err(PathError::Key)),
        ("//", Err(PathError::Key)),
        ("/a//b", Err(PathError::Key)),
        ("/a/./b", Err(PathError::Key)),
        ("/a/..", Err(PathError::Key)),
        ("/a\\b", Err(PathError::Key)),
        ("/a\0b", Err(PathError::Key)),
        (&long, Err(PathError::KeyLength)),
        (&long[..4096], Ok(())),
    ];
    for (key, expected) in table {
        let path = StaticPath { path: absolute("/srv"), ..StaticPath::default() };
        assert_eq!(files.set([((*key).into(), path)]), *expected, "{key:?}");
    }
    assert_eq!(files.paths().len(), table.iter().filter(|(_, expected)| expected.is_ok()).count());
}

#[test]
fn paths_are_absolute_unless_excluded() {
    let files = StaticFiles::new();
    let with = |path: &str, exclude| {
        let overrides = Overrides { exclude, ..Overrides::default() };
        files.set([("/a".into(), StaticPath { path: path.into(), overrides })])
    };
    assert_eq!(with(absolute("/").to_str().unwrap(), None), Ok(()));
    assert_eq!(with("/", None), if cfg!(windows) { Err(PathError::Path) } else { Ok(()) });
    assert_eq!(with("relative", None), Err(PathError::Path));
    assert_eq!(with("", None), Err(PathError::Path));
    assert_eq!(with("", Some(false)), Err(PathError::Path));
    assert_eq!(with(absolute("/a\0b").to_str().unwrap(), None), Err(PathError::Path));
    assert_eq!(with("", Some(true)), Ok(()));
}

#[test]
fn several_paths_are_set_together_or_not_at_all() {
    let files = StaticFiles::new();
    let path = |path: &str| StaticPath { path: absolute(path), ..StaticPath::default() };
    assert_eq!(
        files.set([("/b".into(), path("/1")), ("bad".into(), path("/2"))]),
        Err(PathError::Key)
    );
    assert!(files.is_empty() && files.paths().is_empty());
    files
        .set([("/b".into(), path("/1")), ("/a".into(), path("/2")), ("/b".into(), path("/3"))])
        .unwrap();
    assert_eq!(files.paths(), [("/a".into(), path("/2")), ("/b".into(), path("/3"))]);
}

#[test]
fn changes_are_in_effect_at_once_and_in_every_handle() {
    let site = Site::new(&["d/x", "e/x"], &[]);
    let other = site.files.clone();
    assert!(other.is_empty());
    site.check(&[("/s/x", "app")]);
    site.map("/s", "d", Overrides::default());
    assert_eq!(Ask::get("/s/x").of(&other).brief(), "d/x");
    site.map("/s", "e", Overrides::default());
    assert_eq!(Ask::get("/s/x").of(&other).brief(), "e/x");
    assert!(!site.files.remove("s") && !site.files.remove("/s/") && !site.files.remove("/"));
    assert_eq!(Ask::get("/s/x").of(&other).brief(), "e/x");
    assert!(other.remove("/s") && !other.remove("/s"));
    site.check(&[("/s/x", "app")]);
    assert!(site.files.is_empty());
}

#[test]
fn a_lookup_in_progress_keeps_its_options() {
    let site = Site::new(&["d/x"], &[("/s", "d")]);
    let Route::Open(lookup) = Ask::get("/s/x").decide(&site.files) else {
        panic!("there is such a path")
    };
    site.files.remove("/s");
    assert!(matches!(lookup.open(), Found::File { len: 3, .. }));
}

/// Checks that a request never gets the directory of one static path with the options of another
/// one, even while the application replaces the static path.
#[test]
fn readers_see_whole_states() {
    let site = Site::new(&["one/x", "two/x"], &[]);
    let set = |name: &str| {
        let overrides =
            Overrides { headers: Some(vec![header("X-Dir", name)]), ..Overrides::default() };
        site.map("/s", name, overrides);
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..500 {
                set("one");
                set("two");
                site.files.remove("/s");
            }
        });
        while !writer.is_finished() {
            let answer = site.get("/s/x");
            match answer.header("X-Dir") {
                Some(name) => assert_eq!(answer.brief(), format!("{name}/x")),
                None => assert_eq!(answer, Answer::Application),
            }
        }
    });
    assert!(site.files.is_empty());
}

#[test]
fn unset_options_are_inherited_from_the_server_and_not_from_shorter_paths() {
    let site = Site::new(&["d/index.html", "d/sub/index.html"], &[]);
    let charset = |name: &str| Some(Charset::new(name).unwrap());
    let headers = |value| Some(vec![header("X-From", value)]);
    site.files.set_options(StaticOptions {
        headers: vec![header("X-From", "server")],
        html_charset: Charset::new("latin1").unwrap(),
        ..StaticOptions::default()
    });
    let parent =
        Overrides { headers: headers("parent"), html_charset: charset("utf-16"), ..fallthrough() };
    site.map("/p", "d", parent);
    site.map("/p/child", "d/sub", Overrides::default());
    site.map(
        "/unset",
        "d",
        Overrides { headers: Some(vec![]), html_charset: charset(""), ..Overrides::default() },
    );

    let seen = |target| {
        let answer = site.get(target);
        (answer.header("X-From").map(String::from), answer.header("Content-Type").map(String::from))
    };
    let of = |from: Option<&str>, kind: &str| (from.map(String::from), Some(kind.into()));
    assert_eq!(seen("/p"), of(Some("parent"), "text/html; charset=utf-16"));
    assert_eq!(seen("/p/child"), of(Some("server"), "text/html; charset=latin1"));
    assert_eq!(seen("/unset"), of(None, "text/html"));
    site.check(&[("/p/nope", "app"), ("/p/child/nope", "404")]);

    site.files.set_options(StaticOptions {
        fallthrough: true,
        index: false,
        ..StaticOptions::default()
    });
    site.check(&[("/p/child/nope", "app"), ("/p/child", "app"), ("/unset", "app")]);
    assert!(site.files.options().fallthrough);
    assert_eq!(site.files.paths()[1].1.overrides, Overrides::default(), "listed as they were set");
}

#[test]
fn exclusion_is_inherited_and_undone_like_any_option() {
    let site = Site::new(&["d/x"], &[("/s", "d")]);
    site.map("/t", "d", Overrides { exclude: Some(false), ..Overrides::default() });
    site.files.set_options(StaticOptions { exclude: true, ..StaticOptions::default() });
    site.check(&[("/s/x", "app"), ("/t/x", "d/x")]);
}
