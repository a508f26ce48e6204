//! Tests the precedence of each pair of sources, with a setting of each kind.

use std::collections::HashSet;
use std::mem::discriminant;

use rookery_settings::{
    GivenValue, Kind, Raw, Settings, Source, Value, environment, server_yml, table,
};

/// The sources, from the highest to the lowest precedence.
const ORDER: [Source; 6] = [
    Source::CommandLine,
    Source::Argument,
    Source::Environment,
    Source::File,
    Source::Option,
    Source::Platform,
];

/// A setting of each kind, with two values that differ from the default.
const ROWS: [(&str, &str, &str); 10] = [
    ("fail_fast", "on", "off"),
    ("max_connections", "11", "12"),
    ("max_body_size", "11MB", "12MB"),
    ("idle_timeout", "11s", "12s"),
    ("log_format", "json", "common"),
    ("host", "127.0.0.2", "127.0.0.3"),
    ("trusted_proxies", "10.0.0.1,10.0.0.2", "unix"),
    ("spool_dir", "/a", "/b"),
    ("tls_cert", "/a.pem", "/b.pem"),
    ("ws_compression", "level=3", "level=4"),
];

fn value(name: &str, text: &str) -> Value {
    table::row(name).read(&Raw::from(text)).unwrap()
}

fn given(source: Source, name: &str, text: &str) -> GivenValue {
    GivenValue { setting: table::row(name), value: value(name, text), source, place: None }
}

#[test]
fn there_is_a_row_of_each_kind() {
    let mut kinds: HashSet<_> = table::all().map(|row| discriminant(&row.kind)).collect();
    for (name, ..) in ROWS {
        kinds.remove(&discriminant(&table::row(name).kind));
    }
    let left = table::all().filter(|row| kinds.contains(&discriminant(&row.kind)));
    assert_eq!(left.map(|row| row.name).collect::<Vec<_>>(), [""; 0]);
    assert!(matches!(table::row("fail_fast").kind, Kind::Flag));
}

#[test]
fn uses_the_source_with_precedence_for_each_pair() {
    for (name, one, other) in ROWS {
        for (at, strong) in ORDER.into_iter().enumerate() {
            for weak in &ORDER[at + 1..] {
                for (first, second) in [(one, other), (other, one)] {
                    let pair = [given(strong, name, first), given(*weak, name, second)];
                    for pair in [pair.clone().to_vec(), pair.into_iter().rev().collect()] {
                        let settings = Settings::combine(pair);
                        let found = settings.given(name).unwrap();
                        assert_eq!(
                            (found.source, &found.value),
                            (strong, &value(name, first)),
                            "{name}: {strong:?} and {weak:?}"
                        );
                    }
                }
            }
            let settings = Settings::combine([given(strong, name, one)]);
            assert_eq!(
                settings.value(name),
                Some(value(name, one)),
                "{name}: {strong:?} and the default"
            );
        }
    }
}

#[test]
fn variables_of_hosting_services_only_override_defaults() {
    let platform = |name: &str| match name {
        "PORT" => Some("5001".into()),
        "WEB_CONCURRENCY" => Some("5".into()),
        _ => None,
    };
    let platform = environment::read(platform).unwrap().given;
    for (name, number, stronger) in [("port", 5001.0, "5002"), ("workers", 5.0, "6")] {
        assert_eq!(Settings::combine(platform.clone()).number(name), Some(number));
        for source in &ORDER[..5] {
            let both = platform.clone().into_iter().chain([given(*source, name, stronger)]);
            assert_eq!(
                Settings::combine(both).number(name),
                Some(number + 1.0),
                "{name}: {source:?}"
            );
        }
    }
}

#[test]
fn values_of_file_and_environment_have_their_precedence() {
    let text = b"engine: rookery\napp: a\noptions: {port: 1, limits: {max_body_size: 1}, \
          trusted_proxies: [unix]}\n";
    let file = server_yml::read(text, "_server.yml".as_ref()).unwrap().unwrap().given;
    let variable = |name: &str| (name == "ROOKERY_PORT").then(|| "2".into());
    let environment = environment::read(variable).unwrap().given;
    let settings = Settings::combine(file.into_iter().chain(environment));
    assert_eq!((settings.number("port"), settings.number("max_body_size")), (Some(2.0), Some(1.0)));
    assert_eq!(settings.given("port").unwrap().source, Source::Environment);
    assert_eq!(settings.given("max_body_size").unwrap().source, Source::File);
}
