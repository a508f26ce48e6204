use super::*;

fn sample(route: &str) -> RouteSample<'_> {
    RouteSample {
        route: RouteName::of_pattern(route.as_bytes()),
        is_route_set: true,
        method: b"GET",
        is_https: false,
        status: 200,
        queue: Some(Duration::from_millis(1)),
        r: Some(Duration::from_millis(7)),
        duration: Some(Duration::from_millis(9)),
    }
}

fn names(table: &RouteTable) -> Vec<(String, u64)> {
    table.routes().into_iter().map(|(name, route)| (name, route.requests.get())).collect()
}

#[test]
fn a_request_is_counted_in_its_route_and_in_its_series() {
    let table = Box::new(RouteTable::new());
    table.record(&sample("/users/<id>"));
    table.record(&RouteSample { status: 503, r: None, ..sample("/users/<id>") });
    table.record(&RouteSample { duration: None, status: 404, ..sample("/events") });
    let routes = table.routes();
    let [(events, of_events), (users, of_users)] = &routes[..] else { panic!("{routes:?}") };
    assert_eq!((events.as_str(), users.as_str()), ("/events", "/users/<id>"));
    assert_eq!((of_users.requests.get(), of_users.errors.get()), (2, 1));
    assert_eq!([&of_users.queue, &of_users.r, &of_users.duration].map(|it| it.read().1), [2, 1, 2]);
    assert_eq!((of_events.requests.get(), of_events.errors.get()), (1, 0));
    assert_eq!(of_events.duration.read().1, 0);
    let series = table.series();
    let read: Vec<_> =
        series.iter().map(|(it, route)| (it.method, it.status, route.as_deref())).collect();
    assert_eq!(
        read,
        [("GET", Some(200), Some("/users/<id>")), ("GET", Some(503), Some("/users/<id>"))]
    );
}

#[test]
fn a_route_that_the_application_has_not_set_is_no_attribute() {
    let table = Box::new(RouteTable::new());
    table.record(&RouteSample { is_route_set: false, ..sample("/users") });
    assert_eq!(names(&table), [("/users".to_owned(), 1)]);
    assert_eq!(table.series()[0].1, None);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes, and the table has no unsafe code")]
fn routes_beyond_the_maximum_are_counted_together() {
    let table = Box::new(RouteTable::new());
    for route in 0..MAX_ROUTES + 50 {
        for _ in 0..2 {
            table.record(&sample(&format!("/{route:03}")));
        }
    }
    let all = names(&table);
    assert_eq!(all.len() as u64, MAX_ROUTES + 1);
    assert!(all[..all.len() - 1].iter().all(|(_, requests)| *requests == 2), "{all:?}");
    assert_eq!(all[all.len() - 1], (OTHER_ROUTE.to_owned(), 100));
    // An application's own route of this name is not another one.
    table.record(&sample(OTHER_ROUTE));
    assert_eq!(names(&table).len() as u64, MAX_ROUTES + 1);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes, and the table has no unsafe code")]
fn paths_that_the_application_does_not_accept_add_no_routes() {
    let table = Box::new(RouteTable::new());
    for (path, status) in [("/wp-admin", 404), ("/.env", 403), ("/gone", 0)] {
        table.record(&RouteSample { is_route_set: false, status, ..sample(path) });
    }
    // R has not begun with a request that has no time in R.
    for (path, status) in [("/refused", 503), ("/lost", 502), ("/late", 504), ("/stream", 200)] {
        table.record(&RouteSample { is_route_set: false, status, r: None, ..sample(path) });
    }
    assert_eq!(names(&table), [(OTHER_ROUTE.to_owned(), 7)]);
    for (path, status) in [("/a", 200), ("/b", 302), ("/c", 500)] {
        table.record(&RouteSample { is_route_set: false, status, ..sample(path) });
    }
    // A known route counts them.
    table.record(&RouteSample { is_route_set: false, status: 404, ..sample("/a") });
    let expected = [("/a", 2), ("/b", 1), ("/c", 1), (OTHER_ROUTE, 7)];
    assert_eq!(names(&table), expected.map(|(name, requests)| (name.to_owned(), requests)));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes, and the table has no unsafe code")]
fn add_all_sums_the_tables_of_several_processes() {
    let tables = [Box::new(RouteTable::new()), Box::new(RouteTable::new())];
    for (table, routes) in tables.iter().zip([["/a", "/b"], ["/b", "/c"]]) {
        for route in routes {
            table.record(&sample(route));
        }
        table.record(&RouteSample { is_route_set: false, ..sample("/b") });
    }
    let sum = Box::new(RouteTable::new());
    for table in &tables {
        sum.add_all(table);
    }
    let expected = [("/a", 1), ("/b", 4), ("/c", 1)];
    assert_eq!(names(&sum), expected.map(|(name, requests)| (name.to_owned(), requests)));
    let series: Vec<_> =
        sum.series().iter().map(|(it, route)| (route.clone(), it.duration.read().1)).collect();
    assert_eq!(
        series,
        [
            (None, 2),
            (Some("/a".to_owned()), 1),
            (Some("/b".to_owned()), 2),
            (Some("/c".to_owned()), 1)
        ]
    );
}

/// The table of the worker has any bytes in it, as a worker whose memory was overwritten leaves
/// them. The report stays within its bounds, and each route and series occurs once.
#[test]
#[cfg_attr(miri, ignore = "takes minutes, and the table has no unsafe code")]
fn any_content_of_another_process_can_be_read() {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    for round in 0..60 {
        let table = Box::new(RouteTable::new());
        // Valid entries lie between garbage, and some names differ only in what cannot be shown.
        table.record(&sample("/a"));
        table.record(&sample("/\u{1}"));
        table.record(&sample("/\u{2}"));
        let start = std::ptr::from_ref::<RouteTable>(&table).cast::<AtomicU64>();
        for at in 0..size_of::<RouteTable>() / 8 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let word = match round % 4 {
                0 => u64::MAX,
                1 => state,
                2 if state % 7 == 0 => state,
                3 if state % 50 == 0 => IN_USE | state,
                _ => continue,
            };
            // SAFETY: a table consists of words that are atomics, and `at` is within its size.
            unsafe { (*start.add(at)).store(word, Release) };
        }
        let sum = Box::new(RouteTable::new());
        sum.add_all(&table);
        sum.add_all(&table);
        let routes = sum.routes();
        assert!(routes.len() as u64 <= MAX_ROUTES + 1);
        for pair in routes.windows(2) {
            assert_ne!(pair[0].0, pair[1].0);
        }
        for (name, counters) in &routes {
            assert!(name.len() <= 3 * MAX_ROUTE_LEN && !name.chars().any(char::is_control));
            let _ = counters.duration.read();
        }
        let mut seen = std::collections::HashSet::new();
        for (series, route) in sum.series() {
            let attributes = (series.method, series.status, series.is_https, route);
            assert!(seen.insert(format!("{attributes:?}")), "{attributes:?}");
        }
        // The writer of a damaged table does not hang or panic either.
        table.record(&sample("/users/<id>"));
    }
}
