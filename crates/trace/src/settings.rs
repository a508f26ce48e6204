//! The settings of tracing, which the environment variables of OpenTelemetry have.

use std::collections::HashSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use rookery_http_client::{Endpoint, percent_decoded};
use rookery_websocket_client::Roots;

use crate::ids::instance_id;
use crate::sampler::Sampler;

/// The default address of a collector on this machine.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";

/// The path of an endpoint for traces, below the address that all signals share.
const TRACES_PATH: &str = "v1/traces";

/// The settings of tracing.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) endpoint: Endpoint,
    pub(crate) roots: Roots,
    pub(crate) headers: HeaderMap,
    /// The maximum time of one attempt to send a batch.
    pub(crate) timeout: Duration,
    /// The maximum time of all attempts to send a batch.
    pub(crate) export_timeout: Duration,
    pub(crate) sampler: Sampler,
    /// The attributes of the process that makes the spans.
    pub(crate) resource: Vec<(String, Value)>,
    pub(crate) queue_size: usize,
    pub(crate) batch_size: usize,
    /// The time after which the spans of a batch that is not full are sent.
    pub(crate) delay: Duration,
}

/// The value of an attribute of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// An integer.
    Number(u64),
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

/// The settings in the environment, with remarks about invalid values, which have no effect.
#[derive(Debug)]
pub struct SettingsFromEnvironment {
    /// The settings, or `None` if tracing is off.
    pub settings: Option<Settings>,
    /// The remarks, each a sentence for the operator.
    pub remarks: Vec<String>,
}

/// Reads environment variables, and takes notes of invalid values.
struct Reader<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
    remarks: Vec<String>,
}

impl Settings {
    /// Reads the settings from environment variables, whose values `get` returns. Tracing is on if
    /// `OTEL_TRACES_EXPORTER` is `otlp`, or if it is not set and there is an OTLP endpoint.
    /// `service` is the name of the service if the environment does not name it. `attributes` are
    /// attributes of the process; attributes in the environment take precedence over them.
    pub fn from_environment(
        get: &dyn Fn(&str) -> Option<String>,
        service: &str,
        attributes: &[(&str, Value)],
    ) -> SettingsFromEnvironment {
        let mut reader = Reader { get, remarks: Vec::new() };
        let settings = reader.settings(service, attributes);
        SettingsFromEnvironment { settings, remarks: reader.remarks }
    }
}

impl Reader<'_> {
    /// Returns the value of a variable. An empty value counts as none.
    fn value(&self, name: &str) -> Option<String> {
        (self.get)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// Returns the value of the variable for traces, or else of the one for all signals.
    fn otlp(&self, name: &str) -> Option<String> {
        self.value(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
            .or_else(|| self.value(&format!("OTEL_EXPORTER_OTLP_{name}")))
    }

    fn remark(&mut self, remark: String) {
        self.remarks.push(remark);
    }

    fn settings(&mut self, service: &str, attributes: &[(&str, Value)]) -> Option<Settings> {
        if !self.check_exporter() {
            return None;
        }
        if let Some(protocol) = self.otlp("PROTOCOL").filter(|it| it != "http/protobuf") {
            self.remark(format!(
                "OTEL_EXPORTER_OTLP_PROTOCOL={protocol} is not supported and traces are off: set \
                 http/protobuf, and the collector's endpoint for HTTP, which usually has port 4318"
            ));
            return None;
        }
        if let Some(kind) = self.otlp("COMPRESSION").filter(|it| it != "none") {
            self.remark(format!(
                "OTEL_EXPORTER_OTLP_COMPRESSION={kind} has no effect: traces are \
                                 sent uncompressed"
            ));
        }
        let mut endpoint = self.endpoint()?;
        if let Err(error) = endpoint.set_proxy(self.get) {
            self.remark(format!("{error}: traces are off"));
            return None;
        }
        let timeout = self
            .milliseconds("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")
            .or_else(|| self.milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT"))
            .unwrap_or(Duration::from_secs(10));
        let queue_size = self.count("OTEL_BSP_MAX_QUEUE_SIZE").unwrap_or(2048);
        let batch_size = self.count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE").unwrap_or(512);
        let headers = self.headers(&endpoint);
        Some(Settings {
            endpoint,
            roots: self.otlp("CERTIFICATE").map_or(Roots::System, Roots::Custom),
            headers,
            timeout,
            export_timeout: self
                .milliseconds("OTEL_BSP_EXPORT_TIMEOUT")
                .unwrap_or(Duration::from_secs(30)),
            sampler: self.sampler(),
            resource: self.resource(service, attributes),
            queue_size,
            batch_size: batch_size.min(queue_size),
            delay: self.milliseconds("OTEL_BSP_SCHEDULE_DELAY").unwrap_or(Duration::from_secs(5)),
        })
    }

    /// Returns true if the environment turns tracing on.
    fn check_exporter(&mut self) -> bool {
        let is_disabled = self.value("OTEL_SDK_DISABLED");
        if is_disabled.is_some_and(|it| it.eq_ignore_ascii_case("true")) {
            return false;
        }
        match self.value("OTEL_TRACES_EXPORTER") {
            None => self.otlp("ENDPOINT").is_some(),
            Some(names) => {
                // R's package otel also accepts `http`.
                let is_otlp = names.split(',').any(|name| matches!(name.trim(), "otlp" | "http"));
                if !is_otlp && names != "none" {
                    self.remark(format!(
                        "OTEL_TRACES_EXPORTER={names} is not supported and the server exports no \
                         traces: set otlp"
                    ));
                }
                is_otlp
            }
        }
    }

    fn endpoint(&mut self) -> Option<Endpoint> {
        let mut name = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        let url = self.value(name).unwrap_or_else(|| {
            name = "OTEL_EXPORTER_OTLP_ENDPOINT";
            let base = self.value(name);
            let base = base.as_deref().unwrap_or(DEFAULT_ENDPOINT);
            format!("{}/{TRACES_PATH}", base.trim_end_matches('/'))
        });
        let endpoint = Endpoint::parse(&url);
        if endpoint.is_none() {
            // The URL may contain a password, so the remark does not show it.
            self.remark(format!(
                "{name} is not a URL of a collector and traces are off: set a URL such as \
                 {DEFAULT_ENDPOINT}"
            ));
        }
        endpoint
    }

    /// Returns the headers of each export. A user name and password in the endpoint's URL are sent
    /// as the SDK for C++ does, on which R's package otelsdk is based: as `Authorization: Basic`,
    /// unless there is such a header.
    fn headers(&mut self, endpoint: &Endpoint) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs(&self.otlp("HEADERS").unwrap_or_default()) {
            let header = HeaderName::from_bytes(name.as_bytes()).ok();
            match header.zip(HeaderValue::from_str(&value).ok()) {
                Some((name, mut value)) => {
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
                // The value may be a secret, so the remark does not show it.
                None => self.remark(format!(
                    "OTEL_EXPORTER_OTLP_HEADERS has an invalid header `{}`",
                    name.escape_default()
                )),
            }
        }
        if let Some(user_info) = endpoint.user_info() {
            let encoded = STANDARD.encode(percent_decoded(user_info));
            // Base64 has only characters that are valid in a header.
            if let Ok(mut value) = HeaderValue::from_str(&format!("Basic {encoded}")) {
                value.set_sensitive(true);
                headers.entry(AUTHORIZATION).or_insert(value);
            }
        }
        headers
    }

    fn sampler(&mut self) -> Sampler {
        let Some(name) = self.value("OTEL_TRACES_SAMPLER") else { return Sampler::default() };
        let argument = self.value("OTEL_TRACES_SAMPLER_ARG");
        Sampler::named(&name, argument.as_deref()).unwrap_or_else(|| {
            self.remark(format!(
                "OTEL_TRACES_SAMPLER={name} with the argument `{}` is not supported: \
                 parentbased_always_on is used",
                argument.unwrap_or_default()
            ));
            Sampler::default()
        })
    }

    fn resource(&self, service: &str, attributes: &[(&str, Value)]) -> Vec<(String, Value)> {
        let own = [
            ("service.name", service.into()),
            ("service.instance.id", instance_id().into()),
            ("telemetry.sdk.name", "rookery".into()),
            ("telemetry.sdk.language", "rust".into()),
            ("telemetry.sdk.version", env!("CARGO_PKG_VERSION").into()),
        ];
        let own =
            attributes.iter().chain(&own).map(|(name, value)| ((*name).to_owned(), value.clone()));
        let named = self.value("OTEL_SERVICE_NAME").map(|name| ("service.name".to_owned(), name));
        let given = pairs(&self.value("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
        let mut known = HashSet::new();
        let texts = named.into_iter().chain(given).map(|(name, value)| (name, value.into()));
        let all = texts.chain(own);
        all.filter(|(name, _)| known.insert(name.clone())).collect()
    }

    fn milliseconds(&mut self, name: &str) -> Option<Duration> {
        self.count(name).map(|count| Duration::from_millis(count as u64))
    }

    /// Returns the number in a variable, which must be at least 1.
    fn count(&mut self, name: &str) -> Option<usize> {
        let text = self.value(name)?;
        // The limit keeps sums of times in range, and the memory of a queue below some GiB.
        let number = text.parse().ok().filter(|number| (1..=10_000_000).contains(number));
        if number.is_none() {
            self.remark(format!("{name}={text} is not a positive number: the default is used"));
        }
        number
    }
}

/// Returns the pairs of a list `name=value,name=value`, whose values may have percent-encoded
/// characters (W3C Baggage). Items without `=` are left out.
pub fn pairs(list: &str) -> Vec<(String, String)> {
    let items = list.split(',').filter_map(|item| item.split_once('='));
    let items = items.map(|(name, value)| (decode(name.trim()), decode(value.trim())));
    items.filter(|(name, _)| !name.is_empty()).collect()
}

fn decode(text: &str) -> String {
    String::from_utf8_lossy(&percent_decoded(text)).into_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> SettingsFromEnvironment {
        let map: HashMap<_, _> = variables.iter().copied().collect();
        let get = |name: &str| map.get(name).map(|value| (*value).to_owned());
        Settings::from_environment(&get, "app", &[("service.instance.id", "0-1".into())])
    }

    #[test]
    fn is_off_unless_an_exporter_or_an_endpoint_is_set() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1");
        for (variables, is_on) in [
            (&[][..], false),
            (&[("OTEL_TRACES_EXPORTER", "otlp")], true),
            (&[("OTEL_TRACES_EXPORTER", " http ")], true),
            (&[("OTEL_TRACES_EXPORTER", "console,otlp")], true),
            (&[("OTEL_TRACES_EXPORTER", "none"), endpoint], false),
            (&[("OTEL_TRACES_EXPORTER", ""), endpoint], true),
            (&[endpoint], true),
            (&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:1/x")], true),
            (&[endpoint, ("OTEL_SDK_DISABLED", "TRUE")], false),
            (&[endpoint, ("OTEL_SDK_DISABLED", "1")], true),
            (&[("OTEL_SERVICE_NAME", "a")], false),
        ] {
            let SettingsFromEnvironment { settings, remarks } = read(variables);
            assert_eq!((settings.is_some(), remarks.len()), (is_on, 0), "{variables:?}");
        }
        for (variables, word) in [
            (&[("OTEL_TRACES_EXPORTER", "zipkin")][..], "set otlp"),
            (&[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], "http/protobuf"),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")], "OTEL_EXPORTER_OTLP_ENDPOINT"),
            (
                &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "me:secret@c:1")],
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            ),
        ] {
            let SettingsFromEnvironment { settings, remarks } = read(variables);
            assert!(settings.is_none() && remarks.len() == 1, "{variables:?}");
            assert!(remarks[0].contains(word) && !remarks[0].contains("secret"), "{remarks:?}");
        }
    }

    #[test]
    fn credentials_in_the_endpoint_are_sent_unless_there_is_a_header_and_never_shown() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:s%3Acret@c:1");
        let found = read(&[endpoint]);
        let shown = format!("{found:?}");
        assert!(!shown.contains("cret") && !shown.contains("Basic"), "{shown}");
        assert_eq!(found.remarks.len(), 0);
        let headers = found.settings.unwrap().headers;
        assert_eq!(headers["authorization"], format!("Basic {}", STANDARD.encode("me:s:cret")));
        let header = ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20a");
        let headers = read(&[endpoint, header]).settings.unwrap().headers;
        assert_eq!(headers.get_all("authorization").iter().collect::<Vec<_>>(), ["Bearer a"]);
        let without = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1")]).settings.unwrap();
        assert!(!without.headers.contains_key("authorization"));
    }

    #[test]
    fn variables_for_traces_take_precedence() {
        let settings = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1/base/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x=y=z"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "10"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=b,service.instance.id=mine,a=b%2Cc"),
        ])
        .settings
        .unwrap();
        let shown = format!("{:?}", settings.endpoint);
        assert!(shown.contains("http://c:1/base/v1/traces"), "{shown}");
        assert_eq!(settings.headers["api-key"], "a b");
        assert_eq!(settings.headers["x"], "y=z");
        assert!(!format!("{settings:?}").contains("a b"), "headers may be secrets");
        assert_eq!(settings.timeout, Duration::from_millis(1500));
        assert_eq!((settings.queue_size, settings.batch_size), (10, 10));
        let has = |name: &str, value: &str| {
            settings.resource.iter().filter(|(it, _)| it == name).collect::<Vec<_>>()
                == [&(name.to_owned(), Value::from(value))]
        };
        assert!(has("service.name", "b") && has("service.instance.id", "mine") && has("a", "b,c"));
        let settings = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://d/only"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=b"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "c=d"),
            ("OTEL_SERVICE_NAME", "named"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=b"),
        ])
        .settings
        .unwrap();
        assert!(format!("{:?}", settings.endpoint).contains("https://d/only"));
        assert_eq!(settings.headers.len(), 1);
        let names: Vec<_> = settings.resource.iter().filter(|it| it.0 == "service.name").collect();
        assert_eq!(names[0].1, Value::from("named"));
        assert_eq!(names.len(), 1);
    }

    #[test]
    fn invalid_values_are_remarked_upon_and_have_no_effect() {
        for (name, value) in [
            ("OTEL_BSP_SCHEDULE_DELAY", "soon"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-1"),
            ("OTEL_BSP_EXPORT_TIMEOUT", "99999999999"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1.5"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a b=c"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b%0A"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_TRACES_SAMPLER", "often"),
        ] {
            let SettingsFromEnvironment { settings, remarks } =
                read(&[("OTEL_TRACES_EXPORTER", "otlp"), (name, value)]);
            let (settings, default) =
                (settings.unwrap(), read(&[("OTEL_TRACES_EXPORTER", "otlp")]).settings.unwrap());
            assert_eq!(format!("{settings:?}"), format!("{default:?}"), "{name}");
            assert!(remarks.len() == 1 && remarks[0].starts_with(&name[..16]), "{remarks:?}");
        }
    }

    #[test]
    fn broken_percent_codes_stay_as_they_are() {
        assert_eq!(
            pairs("a=%,b=%4,c=%zz,d=%41,=e,f,"),
            [
                ("a".to_owned(), "%".to_owned()),
                ("b".to_owned(), "%4".to_owned()),
                ("c".to_owned(), "%zz".to_owned()),
                ("d".to_owned(), "A".to_owned()),
            ]
        );
    }
}
