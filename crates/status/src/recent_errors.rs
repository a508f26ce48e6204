//! The last errors in the app's R code, which the live page and `rookery status --watch` show.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rookery_worker_protocol::{ErrorReport, OTHER_ROUTE};
use serde_json::{Value, json};

use crate::format::seconds;
use crate::process_usage::Pid;

/// The number of errors that are kept.
const KEPT: usize = 50;

/// The maximum number of places at which errors are counted. Errors at further ones are counted as
/// [`OTHER_ROUTE`].
const MAX_PLACES: usize = 200;

/// The last errors in the app's R code, of all workers.
#[derive(Debug, Default)]
pub struct RecentErrors(Mutex<Errors>);

#[derive(Debug, Default)]
struct Errors {
    reported: u64,
    last: VecDeque<Entry>,
    /// The number of errors at each place: a stage such as `call`, an output or an observer.
    places: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Entry {
    at: SystemTime,
    slot: u32,
    pid: Pid,
    report: ErrorReport,
}

impl RecentErrors {
    /// Adds an error that the R process `pid` in the slot `slot` has reported.
    pub fn add(&self, slot: u32, pid: Pid, report: ErrorReport) {
        let mut errors = self.lock();
        errors.reported += 1;
        let place = match &*report.label {
            label if errors.places.contains_key(label) || errors.places.len() < MAX_PLACES => label,
            _ => OTHER_ROUTE,
        };
        *errors.places.entry(place.to_owned()).or_default() += 1;
        if errors.last.len() == KEPT {
            errors.last.pop_front();
        }
        errors.last.push_back(Entry { at: SystemTime::now(), slot, pid, report });
    }

    /// Returns the number of errors that have been added so far.
    pub fn reported(&self) -> u64 {
        self.lock().reported
    }

    /// Returns the number of errors at each place.
    pub(crate) fn places(&self) -> BTreeMap<String, u64> {
        self.lock().places.clone()
    }

    /// Returns the last errors as JSON, the latest first.
    pub fn json(&self) -> String {
        let errors: Vec<Value> = self.lock().last.iter().rev().map(Entry::json).collect();
        Value::from(errors).to_string()
    }

    fn lock(&self) -> MutexGuard<'_, Errors> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn json(&self) -> Value {
        let ErrorReport { request_id, route, label, message, trace } = &self.report;
        json!({
            "at": seconds(self.at),
            "slot": self.slot,
            "pid": self.pid,
            "request_id": request_id,
            "route": route,
            "label": label,
            "message": message,
            "trace": trace,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_errors_are_kept_the_latest_first() {
        let errors = RecentErrors::default();
        assert_eq!(errors.json(), "[]");
        for number in 0..=KEPT {
            let message = format!("error {number}");
            errors.add(1, 4711, ErrorReport { message, ..ErrorReport::default() });
        }
        let shown: Value = serde_json::from_str(&errors.json()).unwrap();
        assert_eq!(shown.as_array().unwrap().len(), KEPT);
        assert_eq!(shown[0]["message"], format!("error {KEPT}"));
        assert_eq!((&shown[0]["slot"], &shown[0]["pid"]), (&json!(1), &json!(4711)));
        assert_eq!(errors.reported(), KEPT as u64 + 1);
    }

    #[test]
    fn errors_are_counted_by_place() {
        let errors = RecentErrors::default();
        for number in 0..MAX_PLACES + 3 {
            let label = format!("output${number}");
            errors.add(0, 1, ErrorReport { label, ..ErrorReport::default() });
        }
        let label = "output$0".to_owned();
        errors.add(0, 1, ErrorReport { label, ..ErrorReport::default() });
        let places = errors.places();
        assert_eq!((places["output$0"], places["output$1"], places[OTHER_ROUTE]), (2, 1, 3));
        assert_eq!(places.len(), MAX_PLACES + 1);
    }
}
