//! The renewer: a thread that orders the server's TLS certificate if there is none, and renews it
//! before it expires.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use httpdate::fmt_http_date;
use rookery_server::tls::{CertificatePair, IssuedCertificate, Pem, Tls};
use rookery_system::blocking::BlockingPool;
use rookery_system::random::unpredictable;
use rookery_system::signals::with_signals_blocked;
use tokio::sync::oneshot;

use crate::account::renewal_id;
use crate::acme::{Acme, load_tls};
use crate::failure::Failure;
use crate::order;
use crate::schedule::{
    RenewalTimer, Window, fraction, is_current, min_interval, renewal_time, window_lifetime,
};
use crate::settings::Challenge;
use crate::storage::{self, Lock, RenewalInfo, Responses, State};

/// The maximum duration of one attempt to get a certificate from the authority.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(600);

/// Checks that an issued certificate can be served and is valid for all of these hosts. `pem`
/// contains the certificate and its key.
fn check_issued(pem: &str, domains: &[String]) -> Result<IssuedCertificate, String> {
    let text = || Pem::Text(pem.to_owned());
    load_tls(CertificatePair { certificate: text(), key: text() })
        .map_err(|error| format!("the issued certificate cannot be used: {error}"))?;
    let issued =
        IssuedCertificate::read(pem.as_bytes()).ok_or("the issued data is not a certificate")?;
    match domains.iter().find(|domain| !issued.hosts.contains(domain)) {
        Some(missing) => Err(format!("the issued certificate is not for {missing}")),
        None => Ok(issued),
    }
}

/// The handle of the renewal thread. Dropping the handle stops the thread and abandons an
/// unfinished order.
#[derive(Debug)]
pub struct Renewer {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Renewer {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // The thread returns nothing, and a panic has already been printed.
            let _ = thread.join();
        }
    }
}

impl Acme {
    /// Starts the thread that orders and renews the certificate. The server must already be
    /// listening, so that it can respond to the authority's challenges. The thread calls `notice`
    /// with each line that is to be logged.
    ///
    /// # Errors
    /// Returns an error if the thread or its runtime cannot be started.
    pub fn start_renewer(
        &self,
        tls: Tls,
        challenges: Vec<Challenge>,
        notice: fn(&str),
    ) -> io::Result<Renewer> {
        RenewalTask { acme: self.clone(), tls, challenges, notice }.start()
    }
}

/// The state of the thread that orders and renews the certificate.
struct RenewalTask {
    acme: Acme,
    tls: Tls,
    challenges: Vec<Challenge>,
    notice: fn(&str),
}

impl RenewalTask {
    /// Starts the thread that runs the task.
    ///
    /// # Errors
    /// Returns an error if the thread or its runtime cannot be started.
    fn start(self) -> io::Result<Renewer> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = with_signals_blocked(|| {
            std::thread::Builder::new().name("rookery-acme".to_owned()).spawn(move || {
                // The thread does not wait for a name lookup when it ends, because the lookup may
                // block for any length of time.
                let lookups = BlockingPool::on_demand("rookery-lookup", 1);
                let _entered = lookups.enter();
                runtime.block_on(async {
                    tokio::select! {
                        biased;
                        _ = stopped => {}
                        never = self.run() => match never {},
                    }
                });
            })
        })?;
        Ok(Renewer { stop: Some(stop), thread: Some(thread) })
    }

    fn log(&self, text: &str) {
        (self.notice)(&format!("ACME: {text}"));
    }

    fn names(&self) -> String {
        self.acme.settings.domains.join(", ")
    }

    /// Returns a sentence for the log that says which certificate TLS clients get until the next
    /// attempt to order one.
    fn served_meanwhile(&self, issued: Option<&IssuedCertificate>, now: SystemTime) -> String {
        match issued {
            None if !self.acme.partial_certificates.is_empty() => {
                ". Until then, stored certificates for some of the names are used".to_owned()
            }
            None => ". Until then, HTTPS connections are refused".to_owned(),
            Some(issued) if issued.ends < now => {
                ". The current certificate has expired, and clients refuse it".to_owned()
            }
            Some(issued) => {
                format!(". The current certificate is valid until {}", fmt_http_date(issued.ends))
            }
        }
    }

    async fn run(&self) -> Infallible {
        let mut is_logged = false;
        let mut responses = Responses::new();
        loop {
            let why = match self.acme.storage.lock() {
                Ok(Some(lock)) => match self.renew_while_locked(lock).await {},
                Ok(None) => {
                    format!(
                        "another server renews the certificate for {}; this server uses it as well",
                        self.names()
                    )
                }
                Err(error) => {
                    format!(
                        "the certificate for {} cannot be renewed, because its lock \
                         file cannot be used: {error}",
                        self.names()
                    )
                }
            };
            if !std::mem::replace(&mut is_logged, true) {
                self.log(&why);
            }
            self.respond_for_others(&mut responses).await;
        }
    }

    /// Gives the challenge responses of the process that orders the certificate, because the
    /// authority may connect to this process instead. Returns after the interval at which the lock
    /// is tried. `known` are the responses that this process gives.
    async fn respond_for_others(&self, known: &mut Responses) {
        let Acme { settings, storage, challenges, .. } = &self.acme;
        let until = Instant::now() + settings.retry.check_interval;
        while Instant::now() < until {
            let stored = storage.responses();
            if stored != *known {
                // Without random numbers, there is no response over TLS.
                let _ = storage::apply(&stored, challenges);
                *known = stored;
            }
            tokio::time::sleep(settings.retry.sharing_interval()).await;
        }
    }

    /// Orders and renews the certificate for as long as this process holds the lock on the storage
    /// folder.
    async fn renew_while_locked(&self, _lock: Lock) -> Infallible {
        let storage = &self.acme.storage;
        let check_interval = self.acme.settings.retry.check_interval;
        // The responses of the process that held the lock before.
        self.acme.challenges.clear();
        let mut is_logged = false;
        let mut is_first = true;
        // Kept in memory in addition to the file, so that a full disk does not cause a request to
        // the authority in each iteration.
        let mut window = storage.state().renewal_info;
        // On a monotonic clock. The times in the file are for the process that takes over later.
        let mut next = Instant::now() + storage.state().remaining_wait(SystemTime::now());
        let mut timer = RenewalTimer::default();
        loop {
            let issued = storage.issued(&self.acme.settings.domains);
            let until_due = match &issued {
                None => SystemTime::UNIX_EPOCH,
                Some(issued) => {
                    renewal_time(issued, self.renewal_window(issued, &mut window).await)
                }
            };
            let now = SystemTime::now();
            let until_due = timer.wait(until_due, now, Instant::now());
            let state = storage.state();
            // After a success, the wait applies only to renewals: an operator who removes a
            // certificate wants a new one.
            let must_wait = issued.is_some() || state.failures > 0;
            let wait_time = if must_wait {
                next.saturating_duration_since(Instant::now())
            } else {
                Duration::ZERO
            };
            if is_first && until_due.is_zero() && !wait_time.is_zero() && state.failures > 0 {
                self.log(&format!(
                    "the last attempt to get a certificate for {} failed or was interrupted; \
                     the next attempt is in {}{}",
                    self.names(),
                    duration_text(wait_time),
                    self.served_meanwhile(issued.as_ref(), now)
                ));
            }
            is_first = false;
            let wait = until_due.max(wait_time);
            if !wait.is_zero() {
                // Only a short sleep, because the clock may be set, the machine may be suspended,
                // or the file may be removed meanwhile.
                tokio::time::sleep(wait.min(check_interval)).await;
                continue;
            }
            match self.attempt(issued.as_ref(), state).await {
                Ok(wait_time) => next = Instant::now() + wait_time,
                Err(error) => {
                    // Without the state on disk, each start of the server would order again.
                    if !std::mem::replace(&mut is_logged, true) {
                        self.log(&format!(
                            "no certificate for {} is ordered, because \
                             {} cannot be written to: {error}",
                            self.names(),
                            self.acme.settings.folder.display()
                        ));
                    }
                    tokio::time::sleep(check_interval).await;
                }
            }
        }
    }

    /// Returns the time window in which the authority wants the certificate to be renewed. Requests
    /// the window from the authority if the known window has expired.
    async fn renewal_window(
        &self,
        issued: &IssuedCertificate,
        known: &mut Option<RenewalInfo>,
    ) -> Option<Window> {
        let id = renewal_id(issued)?;
        let certificate = id.to_string();
        let now = SystemTime::now();
        let before = known.as_ref().filter(|info| info.certificate == certificate);
        if let Some(info) = before.filter(|info| is_current(info.until, now)) {
            return info.window;
        }
        // If the authority does not respond, its previous window remains in effect. The failure is
        // neither a reason to renew nor a reason not to.
        let (window, time) = match self.acme.renewal_info(&id).await {
            Ok(Some((window, time))) => (Some(window), time),
            Ok(None) | Err(_) => (before.and_then(|info| info.window), window_lifetime(None)),
        };
        *known = Some(RenewalInfo { certificate, window, until: now + time });
        let storage = &self.acme.storage;
        // If the state cannot be stored, the window is requested again later.
        let _ = storage.save_state(&State { renewal_info: known.clone(), ..storage.state() });
        window
    }

    /// Makes one attempt to order or renew the certificate. Returns how long to wait before the
    /// next attempt.
    ///
    /// # Errors
    /// Returns an error, and orders no certificate, if the attempt cannot be recorded in the
    /// storage folder.
    async fn attempt(
        &self,
        issued: Option<&IssuedCertificate>,
        mut state: State,
    ) -> io::Result<Duration> {
        let Acme { settings, storage, challenges, .. } = &self.acme;
        let challenge = self.challenges[state.failures as usize % self.challenges.len()];
        let wait = |failures, retry_after| {
            let chance = fraction(&unpredictable().to_be_bytes());
            settings.retry.wait_after(failures, retry_after, chance)
        };
        let now = SystemTime::now();
        state.failures = state.failures.saturating_add(1);
        state.attempted = Some(now);
        // The state is stored as if the attempt had failed, so that a process that is killed
        // repeatedly during orders does not order more often than that.
        state.next = Some(now + wait(state.failures, None));
        storage.save_state(&state)?;
        let what = if issued.is_some() { "renewing the" } else { "ordering a" };
        self.log(&format!(
            "{what} certificate for {} from {} with {}",
            self.names(),
            settings.authority(),
            challenge.name()
        ));
        let ordered =
            tokio::time::timeout(ATTEMPT_TIMEOUT, self.order_certificate(challenge, issued)).await;
        challenges.clear();
        let ordered = ordered.unwrap_or_else(|_| {
            Err(Failure::new(format!(
                "{} did not complete the order within {} s",
                settings.authority(),
                ATTEMPT_TIMEOUT.as_secs()
            )))
        });
        let kept = ordered.and_then(|pem| {
            // The existing certificate is replaced only by one that can be served.
            let issued = check_issued(&pem, &settings.domains).map_err(Failure::new)?;
            storage.save_certificate(&pem).map_err(|error| {
                Failure::new(format!("the certificate cannot be stored: {error}"))
            })?;
            Ok(issued)
        });
        match kept {
            Ok(issued) => {
                if let Err(error) = self.tls.reload() {
                    // The certificate is stored, so it is not ordered again. The server tries to
                    // load it until it can be served.
                    self.log(&format!(
                        "the certificate for {} is stored but cannot be served yet: {error}",
                        self.names()
                    ));
                }
                // The wait is independent of the authority's window and of the certificate's dates.
                let wait_time = min_interval(&issued);
                // If the state cannot be stored, only the wait is lost.
                let _ = storage.save_state(&State {
                    attempted: Some(now),
                    next: Some(now + wait_time),
                    ..State::default()
                });
                let until = fmt_http_date(issued.ends);
                self.log(&format!(
                    "received a certificate for {}, valid until {until}",
                    self.names()
                ));
                Ok(wait_time)
            }
            Err(failure) => {
                self.acme.failures.fetch_add(1, Ordering::Relaxed);
                let now = SystemTime::now();
                let wait_time = wait(state.failures, failure.retry_after);
                state.next = Some(now + wait_time);
                let _ = storage.save_state(&state);
                self.log(&format!(
                    "no certificate for {}: {failure}. The next attempt is in {}{}",
                    self.names(),
                    duration_text(wait_time),
                    self.served_meanwhile(issued, now)
                ));
                Ok(wait_time)
            }
        }
    }

    async fn order_certificate(
        &self,
        challenge: Challenge,
        replaces: Option<&IssuedCertificate>,
    ) -> Result<String, Failure> {
        let Acme { settings, storage, challenges, .. } = &self.acme;
        let order = async || {
            let account = self.acme.account().await?;
            let replaces = replaces.and_then(renewal_id);
            order::order(&account, settings, (challenges, storage), challenge, replaces).await
        };
        match order().await {
            // The account was removed, or the authority has lost its data, which test authorities
            // do.
            Err(failure) if failure.is("accountDoesNotExist") => {
                storage.forget_account().map_err(|error| Failure::new(error.to_string()))?;
                order().await
            }
            ordered => ordered,
        }
    }
}

/// Formats a duration for log messages, such as a wait until the next attempt.
fn duration_text(time: Duration) -> String {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", (seconds + 30) / 60),
        _ => format!("{} h", (seconds + 1800) / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_issued_certificates_that_cannot_be_served() {
        let read =
            |name: &str| std::fs::read_to_string(rookery_test_support::tls_file(name)).unwrap();
        let domains =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let pem = read("localhost.pem") + &read("localhost.key");
        let issued = check_issued(&pem, &domains(&["localhost"])).unwrap();
        assert!(issued.hosts.contains(&"localhost".to_owned()));
        for (pem, hosts, expected) in [
            (
                read("localhost.pem") + &read("other.key"),
                "localhost",
                "only one of the two been renewed",
            ),
            (read("localhost.pem"), "localhost", "contains no private key"),
            (read("localhost.key"), "localhost", "contains no certificate"),
            (pem, "app.example.org", "is not for app.example.org"),
        ] {
            let error = check_issued(&pem, &domains(&[hosts])).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn durations_are_formatted_briefly() {
        for (seconds, said) in [
            (0, "0 s"),
            (75, "75 s"),
            (121, "2 min"),
            (3601, "60 min"),
            (7200, "2 h"),
            (90_000, "25 h"),
        ] {
            assert_eq!(duration_text(Duration::from_secs(seconds)), said);
        }
        assert_eq!(duration_text(Duration::from_millis(1)), "1 s");
    }
}
