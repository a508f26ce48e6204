//! The numbers of workers and spares that a pool should have.

use super::MOST_WORKERS;

/// The number of workers that should serve, and the number of spares, which are ready workers held
/// in reserve.
#[derive(Debug)]
pub(super) struct Scaling {
    /// The number of serving workers in the configuration.
    configured: u32,
    /// The number of workers that should serve. Differs from the configuration if commands have
    /// changed it.
    wanted: u32,
    spares: u32,
    /// The numbers of workers and spares in the configuration of a reload that has not succeeded
    /// yet.
    requested: Option<(u32, u32)>,
}

impl Scaling {
    /// Creates the record with the numbers of workers and spares in the configuration.
    pub(super) fn new(workers: u32, spares: u32) -> Scaling {
        Scaling { configured: workers, wanted: workers, spares, requested: None }
    }

    /// Returns the number of workers that should serve.
    pub(super) fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Returns the number of spares.
    pub(super) fn spares(&self) -> u32 {
        self.spares
    }

    /// Records the numbers of workers and spares that a reload requests. They take effect only when
    /// the reload has succeeded. If the reloaded app does not start, the numbers stay as they are.
    pub(super) fn request(&mut self, workers: u32, spares: u32) {
        let numbers = (workers, spares);
        self.requested = (numbers != (self.configured, self.spares)).then_some(numbers);
    }

    /// Returns true if a reload has requested other numbers, which have not been applied yet.
    pub(super) fn has_request(&self) -> bool {
        self.requested.is_some()
    }

    /// Drops the numbers that a failed reload has requested.
    pub(super) fn cancel_request(&mut self) {
        self.requested = None;
    }

    /// Returns the numbers of serving workers and of spares that apply once a reload in progress
    /// has succeeded. A number of workers that was set by commands stays in force, unless the
    /// reload changes the configured number.
    pub(super) fn after_reload(&self) -> (u32, u32) {
        match self.requested {
            Some((workers, spares)) if workers != self.configured => (workers, spares),
            Some((_, spares)) => (self.wanted, spares),
            None => (self.wanted, self.spares),
        }
    }

    /// Applies the numbers that a successful reload has requested. Returns the number of workers
    /// that should have served before.
    pub(super) fn apply_request(&mut self) -> u32 {
        let before = self.wanted;
        (self.wanted, self.spares) = self.after_reload();
        self.configured = self.requested.take().map_or(self.configured, |(workers, _)| workers);
        before
    }

    /// Increases the number of workers by one. Returns false if it is [`MOST_WORKERS`] already.
    pub(super) fn add_worker(&mut self) -> bool {
        let may_add = self.wanted < MOST_WORKERS;
        self.wanted += u32::from(may_add);
        may_add
    }

    /// Reduces the number of workers by one. Returns false if only one is left.
    pub(super) fn remove_worker(&mut self) -> bool {
        let may_remove = self.wanted > 1;
        self.wanted -= u32::from(may_remove);
        may_remove
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_workers_stays_between_one_and_the_maximum() {
        let mut scaling = Scaling::new(1, 0);
        assert!(!scaling.remove_worker());
        assert!(scaling.add_worker() && scaling.wanted() == 2);
        assert!(scaling.remove_worker() && scaling.wanted() == 1);
        let mut scaling = Scaling::new(MOST_WORKERS, 0);
        assert!(!scaling.add_worker());
        assert_eq!(scaling.wanted(), MOST_WORKERS);
    }

    #[test]
    fn requested_numbers_apply_after_the_reload() {
        let mut scaling = Scaling::new(2, 1);
        scaling.request(4, 0);
        assert_eq!((scaling.wanted(), scaling.spares()), (2, 1));
        assert_eq!(scaling.after_reload(), (4, 0));
        assert_eq!(scaling.apply_request(), 2);
        assert_eq!((scaling.wanted(), scaling.spares()), (4, 0));
        assert!(!scaling.has_request());
        scaling.request(4, 3);
        scaling.cancel_request();
        assert_eq!(scaling.apply_request(), 4);
        assert_eq!(scaling.spares(), 0);
    }

    #[test]
    fn a_number_of_workers_set_by_commands_outlives_a_reload_with_the_same_configuration() {
        let mut scaling = Scaling::new(2, 0);
        scaling.add_worker();
        scaling.request(2, 1);
        assert_eq!(scaling.after_reload(), (3, 1));
        assert_eq!(scaling.apply_request(), 3);
        assert_eq!((scaling.wanted(), scaling.spares()), (3, 1));
        scaling.request(1, 1);
        assert_eq!((scaling.apply_request(), scaling.wanted()), (3, 1));
    }
}
