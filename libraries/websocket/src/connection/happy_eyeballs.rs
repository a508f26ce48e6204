//! Connecting by TCP to a host with several IP addresses, some of which may not be reachable.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// The time that an attempt to connect to one address may take before the next address is tried at
/// the same time (RFC 8305, 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The maximum number of a host's IP addresses that are tried. It is limited because a name server
/// chooses how many addresses a name has.
const ADDRESSES_MAX: usize = 32;

/// Connects to the first of `addresses` that accepts a connection (Happy Eyeballs, RFC 8305).
///
/// The addresses are tried in their order, with IPv4 and IPv6 taking turns. The next attempt starts
/// when an attempt has failed, or 250 ms after the previous one started. The first connection ends
/// all other attempts. At most 32 addresses are tried. The function needs a tokio runtime with its
/// time driver.
///
/// # Cancel safety
/// Dropping the future ends all attempts.
///
/// # Errors
/// The error of the first address if no address accepts a connection; [`io::ErrorKind::NotFound`]
/// if there is no address.
pub async fn connect_any(addresses: impl IntoIterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut addresses = interleave(addresses.into_iter().collect());
    addresses.truncate(ADDRESSES_MAX);
    race(addresses, TcpStream::connect).await
}

/// Reorders `addresses` so that IPv4 and IPv6 take turns, beginning with the family of the first
/// address.
fn interleave(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let starts_with_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == starts_with_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut ordered = Vec::with_capacity(first.len() + second.len());
    while first.len() + second.len() > 0 {
        ordered.extend(first.next());
        ordered.extend(second.next());
    }
    ordered
}

/// Runs `connect` for each address until one attempt succeeds. The next attempt starts when one has
/// failed, or [`ATTEMPT_DELAY`] after the start of the last one.
async fn race<S, F>(
    addresses: Vec<SocketAddr>,
    mut connect: impl FnMut(SocketAddr) -> F,
) -> io::Result<S>
where
    F: Future<Output = io::Result<S>>,
{
    let mut waiting = addresses.into_iter().enumerate();
    let mut attempts: Vec<(usize, Pin<Box<F>>)> = Vec::new();
    let mut failure: Option<(usize, io::Error)> = None;
    let mut delay = pin!(sleep(ATTEMPT_DELAY));
    let mut is_due = true;
    poll_fn(|cx| {
        loop {
            if std::mem::take(&mut is_due) {
                if let Some((rank, address)) = waiting.next() {
                    attempts.push((rank, Box::pin(connect(address))));
                    delay.as_mut().reset(Instant::now() + ATTEMPT_DELAY);
                }
            }
            let mut at = 0;
            while let Some((rank, attempt)) = attempts.get_mut(at) {
                match attempt.as_mut().poll(cx) {
                    Poll::Pending => at += 1,
                    Poll::Ready(Ok(connected)) => return Poll::Ready(Ok(connected)),
                    Poll::Ready(Err(error)) => {
                        if failure.as_ref().is_none_or(|(first, _)| *rank < *first) {
                            failure = Some((*rank, error));
                        }
                        attempts.swap_remove(at);
                        is_due = true;
                    }
                }
            }
            if waiting.len() == 0 {
                if !attempts.is_empty() {
                    return Poll::Pending;
                }
                let nothing = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                return Poll::Ready(Err(failure.take().map_or_else(nothing, |(_, error)| error)));
            }
            if !is_due && delay.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            is_due = true;
        }
    })
    .await
}

// The runtime of the tests opens sockets, which Miri does not have.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// Returns an IPv4 or IPv6 address whose port is `port`.
    fn address(family: u8, port: u16) -> SocketAddr {
        let ip = if family == 6 { "::1" } else { "127.0.0.1" };
        SocketAddr::new(ip.parse().unwrap(), port)
    }

    /// The behaviour of a simulated connection attempt, with the milliseconds after which it ends.
    #[derive(Clone, Copy)]
    enum Does {
        Connects(u64),
        Fails(u64),
        Hangs,
    }

    /// Races simulated connection attempts, which behave as `attempts` says. Returns:
    /// - the result: the port of the successful attempt, or an error
    /// - the milliseconds until this result
    /// - the ports in the order in which they were tried
    /// - the number of attempts that are still running afterwards
    async fn raced(attempts: &[Does]) -> (Result<u16, String>, u64, Vec<u16>, usize) {
        let addresses = (0..attempts.len()).map(|n| address(4, n as u16)).collect();
        let (tried, running) = (RefCell::new(Vec::new()), Rc::new(()));
        let start = Instant::now();
        let won = race(addresses, |address: SocketAddr| {
            let port = address.port();
            tried.borrow_mut().push(port);
            let (does, held) = (attempts[usize::from(port)], Rc::clone(&running));
            async move {
                let done = match does {
                    Does::Connects(after) => {
                        sleep(Duration::from_millis(after)).await;
                        Ok(port)
                    }
                    Does::Hangs => std::future::pending().await,
                    Does::Fails(after) => {
                        sleep(Duration::from_millis(after)).await;
                        Err(io::Error::other(format!("attempt {port}")))
                    }
                };
                drop(held);
                done
            }
        });
        let won = won.await.map_err(|error| error.to_string());
        let took = u64::try_from(start.elapsed().as_millis()).unwrap();
        (won, took, tried.into_inner(), Rc::strong_count(&running) - 1)
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_does_not_answer_delays_the_next_by_a_quarter_of_a_second() {
        use Does::{Connects, Hangs};
        assert_eq!(raced(&[Hangs, Connects(10)]).await, (Ok(1), 260, vec![0, 1], 0));
        assert_eq!(raced(&[Hangs, Hangs, Connects(0)]).await, (Ok(2), 500, vec![0, 1, 2], 0));
        // The preferred address is slow and still the first.
        assert_eq!(raced(&[Connects(300), Connects(100)]).await, (Ok(0), 300, vec![0, 1], 0));
        assert_eq!(raced(&[Connects(300), Connects(10)]).await, (Ok(1), 260, vec![0, 1], 0));
        assert_eq!(
            raced(&[Connects(200), Connects(0)]).await,
            (Ok(0), 200, vec![0], 0),
            "no other is asked"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_starts_the_next_attempt_at_once() {
        use Does::{Connects, Fails, Hangs};
        assert_eq!(raced(&[Fails(0), Fails(5), Connects(0)]).await, (Ok(2), 5, vec![0, 1, 2], 0));
        // A later attempt fails while the first one hangs.
        assert_eq!(raced(&[Hangs, Fails(10), Connects(0)]).await, (Ok(2), 260, vec![0, 1, 2], 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_is_that_of_the_preferred_address() {
        use Does::Fails;
        assert_eq!(raced(&[Fails(900), Fails(0)]).await.0, Err("attempt 0".to_owned()));
        assert_eq!(raced(&[Fails(0), Fails(1), Fails(2)]).await.0, Err("attempt 0".to_owned()));
        assert_eq!(raced(&[]).await.0, Err("the name has no address".to_owned()));
    }

    #[test]
    fn families_take_turns() {
        let ports = |addresses: &[(u8, u16)]| -> Vec<u16> {
            let all = addresses.iter().map(|(family, port)| address(*family, *port)).collect();
            interleave(all).iter().map(SocketAddr::port).collect()
        };
        assert_eq!(ports(&[(6, 1), (6, 2), (6, 3), (4, 4), (4, 5)]), [1, 4, 2, 5, 3]);
        assert_eq!(ports(&[(4, 1), (6, 2), (6, 3)]), [1, 2, 3]);
        assert_eq!(ports(&[(4, 1), (4, 2)]), [1, 2]);
        assert!(ports(&[]).is_empty());
    }

    #[tokio::test]
    async fn a_name_with_many_addresses_is_tried_at_some_of_them() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        // No connection to port 0 is possible.
        let closed = || std::iter::repeat(address(4, 0));
        assert!(connect_any(closed().take(ADDRESSES_MAX - 1).chain([open])).await.is_ok());
        assert!(connect_any(closed().take(ADDRESSES_MAX).chain([open])).await.is_err());
    }
}
