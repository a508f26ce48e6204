//! The fuzz target of the table of routes, which is in memory that another process may write.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::time::Duration;

use rookery_worker_protocol::{
    MAX_ROUTE_LEN, MAX_ROUTES, RouteName, RouteSample, RouteTable, first_segment,
};

/// Counts requests, and compares the counts with those of a map. Then reads the bytes as a table.
pub fn routes(data: &[u8]) {
    count(data);
    read(data);
}

/// Counts a request for each line: a byte of which the bits are the properties of the request, and
/// its path.
fn count(data: &[u8]) {
    let table = Box::new(RouteTable::new());
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    let (mut all, mut errors) = (0, 0);
    for line in data.split(|byte| *byte == b'\n') {
        let [kind, path @ ..] = line else { continue };
        let is_route_set = kind & 1 != 0;
        let status = [200, 404, 500, 0][usize::from(kind >> 1 & 3)];
        let name = if is_route_set { path } else { first_segment(path) };
        let route = RouteName::of_pattern(name);
        let r = (kind & 8 != 0).then(|| Duration::from_micros(u64::from(*kind)));
        table.record(&RouteSample {
            route,
            is_route_set,
            method: if kind & 16 != 0 { b"GET" } else { path },
            is_https: kind & 32 != 0,
            status,
            queue: r,
            r,
            duration: (kind & 64 != 0).then_some(Duration::from_millis(1)),
        });
        all += 1;
        errors += u64::from(status >= 500);
        if is_route_set || r.is_some() && matches!(status, 200 | 500) {
            expected.entry(route.to_text()).or_insert(0);
        }
        if let Some(count) = expected.get_mut(&route.to_text()) {
            *count += 1;
        }
    }
    let routes = table.routes();
    assert_eq!(routes.iter().map(|(_, it)| it.requests.get()).sum::<u64>(), all);
    assert_eq!(routes.iter().map(|(_, it)| it.errors.get()).sum::<u64>(), errors);
    check(&table);
    // Names that differ only in bytes that cannot be shown are the same name here.
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for (name, counters) in &routes {
        *found.entry(name.clone()).or_default() += counters.requests.get();
    }
    if (expected.len() as u64) < MAX_ROUTES && data.is_ascii() {
        for (name, count) in expected {
            assert!(found[&name] >= count, "{name}: {} < {count}", found[&name]);
        }
    }
    // The sum of a table and nothing has the same counts.
    let sum = Box::new(RouteTable::new());
    sum.add_all(&table);
    assert_eq!(sum.routes().iter().map(|(_, it)| it.requests.get()).sum::<u64>(), all);
    check(&sum);
}

/// Reads the bytes, again and again, as a table that another process has written.
fn read(data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let mut memory: Box<MaybeUninit<RouteTable>> = Box::new(MaybeUninit::zeroed());
    let start = memory.as_mut_ptr().cast::<u8>();
    for at in (0..size_of::<RouteTable>()).step_by(data.len()) {
        let len = data.len().min(size_of::<RouteTable>() - at);
        // SAFETY: `at..at + len` is within the memory, which no reference uses yet.
        unsafe { start.add(at).copy_from_nonoverlapping(data.as_ptr(), len) };
    }
    // SAFETY: a table consists of atomic integers without padding, for which all bytes are valid.
    let table: Box<RouteTable> = unsafe { memory.assume_init() };
    check(&table);
    let sum = Box::new(RouteTable::new());
    sum.add_all(&table);
    assert!(sum.routes().len() as u64 <= MAX_ROUTES + 1);
    check(&sum);
}

/// Checks that a table can be shown: bounded numbers of routes and series, and names without
/// queries and control characters.
fn check(table: &RouteTable) {
    let routes = table.routes();
    assert!(routes.len() <= 257);
    for (name, _) in &routes {
        assert!(!name.chars().any(char::is_control) && !name.contains('?'), "{name:?}");
        // A byte that is not UTF-8 is shown by three.
        assert!(name.len() <= 3 * MAX_ROUTE_LEN, "{name:?}");
    }
    assert!(table.series().len() <= 1024);
}
