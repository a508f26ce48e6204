//! Tests of the metrics by route: the worker reports the route and its times, and the front end
//! counts the requests.

use rookery_test_support::wait_until;

use crate::support::admin::Admin;
use crate::support::frontend::Frontend;

/// Returns the number of requests and errors of each route, once this many requests are counted.
fn routes(admin: &Admin, requests: u64) -> Vec<(String, u64, u64)> {
    let read = || {
        let json = admin.json();
        let number = |value: &serde_json::Value| value.as_u64().unwrap();
        let routes = json["routes"].as_array().unwrap().iter();
        let routes = routes.map(|it| {
            let name = it["route"].as_str().unwrap().to_owned();
            (name, number(&it["requests"]), number(&it["errors"]))
        });
        routes.collect::<Vec<_>>()
    };
    wait_until("all requests are counted", || {
        read().iter().map(|(_, requests, _)| requests).sum::<u64>() == requests
    });
    read()
}

fn route(name: &str, requests: u64, errors: u64) -> (String, u64, u64) {
    (name.to_owned(), requests, errors)
}

#[test]
fn the_front_end_counts_requests_by_the_routes_that_workers_report() {
    let front = Frontend::new(2);
    let admin = Admin::of_registry(&front.registry);
    let mut client = front.connect();
    for path in ["/users/1", "/users/2?token=1", "/slot", "/status/503", "/bytes/100000"] {
        client.get(path);
    }
    assert_eq!(
        routes(&admin, 5),
        [
            route("/bytes", 1, 0),
            route("/slot", 1, 0),
            route("/status", 1, 1),
            route("/users/<id>", 2, 0)
        ]
    );
    let metric = |name: &str| admin.metric(&format!("rookery_route_{name}"));
    assert_eq!(metric("r_seconds_sum{route=\"/users/<id>\"}"), Some(6.0));
    let queue = metric("queue_seconds_sum{route=\"/users/<id>\"}").unwrap();
    assert!((0.04..5.0).contains(&queue), "the worker's queue counts: {queue}");
    assert!(metric("seconds_sum{route=\"/users/<id>\"}").unwrap() > 0.0);
    let labels = "http_request_method=\"GET\",url_scheme=\"http\",\
                  http_response_status_code=\"200\",http_route=\"/users/<id>\"";
    let name = format!("http_server_request_duration_seconds_count{{{labels}}}");
    assert_eq!(admin.metric(&name), Some(2.0));
}

/// A request that its worker has not answered adds no route.
#[test]
fn a_request_whose_worker_dies_is_an_error() {
    let mut front = Frontend::new(1);
    let admin = Admin::of_registry(&front.registry);
    let held = front.ask("/hold");
    wait_until("it is begun", || {
        front.workers[0].gate.begun.load(std::sync::atomic::Ordering::Relaxed) == 1
    });
    front.kill(0);
    assert_eq!(held.join().unwrap().status, 502);
    assert_eq!(routes(&admin, 1), [route("other", 1, 1)]);
}
