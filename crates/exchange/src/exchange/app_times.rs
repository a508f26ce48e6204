//! What the metrics and the access log say about the application's part in a request: the route and
//! the times.

use std::time::Duration;

use super::Exchange;

/// The times that a request spends in front of the application and in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AppTimes {
    /// The time for which the request waited until the application began with it.
    pub queue: Duration,
    /// The time from then until the application's response.
    pub app: Duration,
}

impl Exchange {
    /// Sets the route of the request: the pattern that the application has matched the path with,
    /// such as `/users/<id>`.
    pub fn set_route(&mut self, route: &[u8]) {
        self.route = self.keep(route);
    }

    /// Returns the route of the request; empty if the application has not set it.
    pub fn route(&self) -> &[u8] {
        // SAFETY: the slice belongs to this exchange, which is borrowed.
        unsafe { self.route.bytes() }
    }

    /// Records how long the request has waited for the application and how long the application
    /// took to respond.
    pub fn set_app_times(&mut self, times: AppTimes) {
        self.app_times = Some(times);
    }

    /// Returns how long the request has waited for the application and how long the application
    /// took to respond, or `None` if this was not measured.
    pub fn app_times(&self) -> Option<AppTimes> {
        self.app_times
    }

    /// Returns true if the server measures the times of this request, for the access log or for
    /// metrics.
    pub fn is_measured(&self) -> bool {
        self.is_logged || self.ticket != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_request_has_no_route_and_no_times() {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        assert!(!exchange.is_measured());
        exchange.set_route(b"/users/<id>");
        exchange.set_app_times(AppTimes::default());
        exchange.begin_response(200);
        assert_eq!(exchange.route(), b"/users/<id>");
        assert_eq!(exchange.app_times(), Some(AppTimes::default()));
        exchange.begin(2, 1, 0);
        assert_eq!((exchange.route(), exchange.app_times()), (&b""[..], None));
    }
}
