//! The descriptors and settings that a worker process inherits from its supervisor.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rookery_system::descriptor;
use rookery_system::linux::shared_memory;

use crate::control_channel::ControlChannel;
use crate::rings::{RingEnd, RingHandles, RingWakers};
use crate::shared_scoreboard::SharedScoreboard;
use crate::variables;

/// The descriptors and settings that a worker process inherited from its supervisor.
#[derive(Debug)]
pub struct Inherited {
    /// The control channel over which the worker exchanges messages with its supervisor.
    pub control: ControlChannel,
    /// The scoreboard, which is the shared memory in which the worker records what it is doing.
    pub scoreboard: SharedScoreboard,
    /// The worker's end of the rings, and what wakes each side.
    pub rings: (RingEnd, RingWakers),
}

/// The error for a worker whose inherited descriptors or settings are unusable. It names the
/// environment variable at fault and the reason.
#[derive(Debug)]
pub struct InheritedError {
    variable: &'static str,
    reason: String,
}

impl fmt::Display for InheritedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: only `rookery serve --workers` may set this variable",
            self.variable, self.reason
        )
    }
}

impl std::error::Error for InheritedError {}

impl Inherited {
    /// Takes ownership of the descriptors that a worker inherited, and removes the environment
    /// variables that name them. Returns `None` in a process that is not a worker, that is, if none
    /// of the variables in [`DESCRIPTORS`](variables::DESCRIPTORS) is set. Programs that this
    /// process starts later do not inherit the descriptors.
    ///
    /// # Errors
    /// Returns an error if a variable is missing or names a descriptor of the wrong kind. The
    /// variables are removed even then. If one of the variables in
    /// [`DESCRIPTORS`](variables::DESCRIPTORS) is at fault, the descriptors that they name stay
    /// open without an owner.
    ///
    /// # Safety
    /// - No other thread reads or writes the environment during the call.
    /// - The descriptors that the variables name belong to no other code in this process.
    pub unsafe fn take() -> Result<Option<Inherited>, InheritedError> {
        let values = variables::DESCRIPTORS.map(|name| (name, std::env::var_os(name)));
        if values.iter().all(|(_, value)| value.is_none()) {
            return Ok(None);
        }
        for name in variables::DESCRIPTORS {
            // SAFETY: the caller guarantees that no other thread uses the environment.
            unsafe { std::env::remove_var(name) };
        }
        let rings = std::env::var_os(variables::RINGS_FDS);
        // SAFETY: the caller guarantees that no other thread uses the environment.
        unsafe { std::env::remove_var(variables::RINGS_FDS) };
        // SAFETY: the caller guarantees that the descriptors belong to no other code.
        unsafe { Inherited::of(&values, rings.as_ref()) }.map(Some)
    }

    /// Takes ownership of a worker's control channel, scoreboard and rings, whose descriptors are
    /// the values of the given variables.
    ///
    /// # Safety
    /// The requirements are those of [`take`](Self::take).
    unsafe fn of(
        values: &[(&'static str, Option<OsString>); 2],
        rings: Option<&OsString>,
    ) -> Result<Inherited, InheritedError> {
        let mut numbers = [0; 2];
        for (at, (variable, value)) in values.iter().enumerate() {
            let number =
                number(value.as_ref()).map_err(|reason| InheritedError { variable, reason })?;
            if numbers[..at].contains(&number) {
                return Err(InheritedError {
                    variable,
                    reason: "names the same descriptor as another variable".to_owned(),
                });
            }
            numbers[at] = number;
        }
        // All descriptors are checked before the first is owned, so that an error leaves all of
        // them open.
        let looks = [is_control, is_memory];
        for ((number, look), (variable, _)) in numbers.into_iter().zip(looks).zip(values) {
            // SAFETY: only checks follow, and each call on a descriptor that is not open returns an
            // error.
            let fd = unsafe { BorrowedFd::borrow_raw(number) };
            if let Some(reason) = look(fd) {
                return Err(InheritedError { variable, reason: reason.to_owned() });
            }
        }
        let wrong = |at: usize| {
            let variable: &'static str = variables::DESCRIPTORS[at];
            move |error: io::Error| InheritedError {
                variable,
                reason: format!("cannot be used ({error})"),
            }
        };
        // SAFETY: the descriptors are open, as checked above, and the caller guarantees that they
        // belong to no other code.
        let [control, scoreboard] = numbers.map(|number| unsafe { OwnedFd::from_raw_fd(number) });
        for (at, fd) in [&control, &scoreboard].into_iter().enumerate() {
            descriptor::set_close_on_exec(fd.as_fd(), true).map_err(wrong(at))?;
        }
        let variable = variables::RINGS_FDS;
        let missing = || InheritedError { variable, reason: "is missing".to_owned() };
        let rings = rings.ok_or_else(missing)?;
        // SAFETY: the caller guarantees that the descriptors belong to no other code.
        let rings = unsafe { own_rings(&rings.to_string_lossy()) }.map_err(|error| {
            InheritedError { variable, reason: format!("cannot be used ({error})") }
        })?;
        Ok(Inherited {
            control: ControlChannel::attach(control).map_err(wrong(0))?,
            scoreboard: SharedScoreboard::attach(&scoreboard).map_err(wrong(1))?,
            rings,
        })
    }
}

/// Takes ownership of the descriptors of the rings.
///
/// # Safety
/// - The descriptors belong to no other code.
unsafe fn own_rings(text: &str) -> io::Result<(RingEnd, RingWakers)> {
    let numbers: Vec<RawFd> = text.split(',').filter_map(|number| number.parse().ok()).collect();
    let numbers: [RawFd; 5] =
        numbers.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the caller guarantees that the descriptors belong to no other code.
    unsafe { RingHandles::own(numbers) }?.attach()
}

/// Parses the number of an inherited descriptor, which must be above those of the three standard
/// streams.
fn number(value: Option<&OsString>) -> Result<RawFd, String> {
    let value = value.ok_or("is missing")?;
    let text = value.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    text.and_then(|text| text.parse().ok())
        .filter(|number| *number > 2)
        .ok_or_else(|| format!("is {value:?}, which is not a descriptor above 2"))
}

fn is_control(fd: BorrowedFd<'_>) -> Option<&'static str> {
    (!ControlChannel::is_end(fd)).then_some("does not name an end of a control channel")
}

fn is_memory(fd: BorrowedFd<'_>) -> Option<&'static str> {
    let is_one = shared_memory::check_size(fd, size_of::<crate::Scoreboard>()).is_ok();
    (!is_one).then_some("does not name a scoreboard of this version")
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd as _, IntoRawFd as _};

    use super::*;

    fn of(values: [Option<&str>; 3]) -> Result<Inherited, String> {
        let [control, memory, rings] = values.map(|value| value.map(OsString::from));
        let [c, m] = variables::DESCRIPTORS;
        // SAFETY: the descriptors that the values name belong to the test.
        unsafe { Inherited::of(&[(c, control), (m, memory)], rings.as_ref()) }
            .map_err(|error| error.to_string())
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn errors_name_the_variable_and_leave_descriptors_open() {
        let (_ours, control) = ControlChannel::pair().unwrap();
        let (_scoreboard, memory) = SharedScoreboard::create().unwrap();
        let (_end, _wakers, rings) = RingEnd::create().unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let text = |fd: RawFd| fd.to_string();
        let (c, m, tcp_fd) =
            (text(control.as_raw_fd()), text(memory.as_raw_fd()), text(tcp.as_raw_fd()));
        let r = rings.all().map(|fd| text(fd.as_raw_fd())).join(",");
        let long = c.repeat(11);
        for (values, expected) in [
            ([None, Some(&*m), Some(&*r)], "ROOKERY_INTERNAL_CONTROL_FD is missing"),
            ([Some(&*c), None, Some(&*r)], "ROOKERY_INTERNAL_SCOREBOARD_FD is missing"),
            (
                [Some(""), Some(&*m), Some(&*r)],
                "ROOKERY_INTERNAL_CONTROL_FD is \"\", which is not a descriptor above 2",
            ),
            ([Some("2"), Some(&*m), None], "ROOKERY_INTERNAL_CONTROL_FD is \"2\""),
            ([Some("-3"), Some(&*m), None], "ROOKERY_INTERNAL_CONTROL_FD is \"-3\""),
            ([Some("+5"), Some(&*m), None], "ROOKERY_INTERNAL_CONTROL_FD is \"+5\""),
            ([Some(&*long), Some(&*m), None], "ROOKERY_INTERNAL_CONTROL_FD is "),
            (
                [Some("1000000"), Some(&*m), None],
                "ROOKERY_INTERNAL_CONTROL_FD does not name an end of a control channel",
            ),
            (
                [Some(&*tcp_fd), Some(&*m), None],
                "ROOKERY_INTERNAL_CONTROL_FD does not name an end of a control channel",
            ),
            (
                [Some(&*c), Some(&*c), None],
                "ROOKERY_INTERNAL_SCOREBOARD_FD names the same descriptor as another",
            ),
            (
                [Some(&*c), Some(&*tcp_fd), None],
                "ROOKERY_INTERNAL_SCOREBOARD_FD does not name a scoreboard",
            ),
        ] {
            let said = of(values).unwrap_err();
            assert!(
                said.starts_with(expected) && said.contains("rookery serve --workers"),
                "{said}"
            );
        }
        // After all these errors, the valid descriptors are still open.
        drop(tcp);
        for fd in [control.into_raw_fd(), memory.into_raw_fd()] {
            assert!(fd > 2);
        }
        let inherited = of([Some(&*c), Some(&*m), Some(&*r)]);
        // They have a new owner.
        std::mem::forget(rings);
        assert!(inherited.is_ok());
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn rings_that_are_missing_or_others_are_an_error() {
        for (rings, expected) in [
            (None, "ROOKERY_INTERNAL_RINGS_FDS is missing"),
            (Some(""), "ROOKERY_INTERNAL_RINGS_FDS cannot be used"),
            (Some("9,9,9"), "ROOKERY_INTERNAL_RINGS_FDS cannot be used"),
        ] {
            let (_ours, control) = ControlChannel::pair().unwrap();
            let (_scoreboard, memory) = SharedScoreboard::create().unwrap();
            let [c, m] = [control.into_raw_fd(), memory.into_raw_fd()].map(|fd| fd.to_string());
            let said = of([Some(&*c), Some(&*m), rings]).unwrap_err();
            assert!(said.starts_with(expected), "{said}");
        }
    }
}
