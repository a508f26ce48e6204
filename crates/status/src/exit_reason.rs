//! The reason for which a worker process ends.

/// Defines the enum of exit reasons together with the list of all its variants.
macro_rules! exit_reasons {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $variant:ident,)* }
    ) => {
        $(#[$attribute])*
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// The list of all exit reasons.
            pub const ALL: &[$name] = &[$($name::$variant),*];
        }
    };
}

exit_reasons! {
    /// The reason for which a worker process ends, as metrics and status reports name it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ExitReason {
        /// The worker process is stopped because the server stops.
        ServerStop,
        /// The app has stopped its server. The worker process then exits, unless the app starts
        /// another server.
        AppStop,
        /// The worker process did not become ready within the start timeout.
        StartTimeout,
        /// A warm-up request failed, so the worker process is not put into service.
        Warmup,
        /// The I/O thread of the worker process did not respond to health checks, or its R process
        /// exceeded the worker timeout.
        Unresponsive,
        /// The R process of the worker has missed a wake-up and does not take its requests.
        LostWakeup,
        /// The worker has written invalid data into the memory that it shares with the front end.
        Violation,
        /// The number of workers was reduced.
        ScaleDown,
        /// A reload has replaced the worker process.
        Reload,
        /// The worker process was replaced because it has answered the maximum number of requests.
        MaxRequests,
        /// The worker process was replaced because it has reached the maximum age.
        MaxAge,
        /// The worker process was replaced because it has exceeded its memory limit.
        MaxMemory,
        /// The worker process ended by itself, although nothing had requested its end.
        Crash,
        /// Another process has killed the worker process with SIGKILL.
        Killed,
        /// The system has killed the worker process because its control group had no memory left.
        OutOfMemory,
    }
}

impl ExitReason {
    /// Returns the name of the exit reason in metrics and status reports.
    pub fn name(self) -> &'static str {
        match self {
            ExitReason::ServerStop => "stopped",
            ExitReason::AppStop => "asked",
            ExitReason::StartTimeout => "start",
            ExitReason::Warmup => "warmup",
            ExitReason::Unresponsive => "stuck",
            ExitReason::LostWakeup => "stalled",
            ExitReason::Violation => "invalid",
            ExitReason::ScaleDown => "fewer",
            ExitReason::Reload => "reload",
            ExitReason::MaxRequests => "requests",
            ExitReason::MaxAge => "age",
            ExitReason::MaxMemory => "memory",
            ExitReason::Crash => "crash",
            ExitReason::Killed => "killed",
            ExitReason::OutOfMemory => "oom",
        }
    }
}
