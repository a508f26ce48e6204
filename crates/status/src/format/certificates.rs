//! The metrics of the certificates with which a server serves HTTPS.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use rookery_server::tls::ServedCertificate;

use super::{Metrics, label_value};

impl Metrics {
    /// Adds the metrics of the certificates of a server. `acme_failures` is the number of failed
    /// attempts to get a certificate, if it comes from an authority.
    pub(crate) fn certificates(
        &mut self,
        certificates: &[ServedCertificate],
        acme_failures: Option<u64>,
    ) {
        // Of several certificates with the same first host, the one that expires first.
        let mut ends = BTreeMap::new();
        for certificate in certificates {
            let host = certificate.hosts.first().map_or("", String::as_str);
            let end = ends.entry(host).or_insert(certificate.ends);
            *end = certificate.ends.min(*end);
        }
        if !ends.is_empty() {
            let help = "Time at which the certificate whose first host this is expires, in \
                        seconds since the Unix epoch.";
            self.family("certificate_expires_seconds", "gauge", help);
        }
        for (host, end) in ends {
            let since = end.duration_since(SystemTime::UNIX_EPOCH);
            let labels = format!("host=\"{}\"", label_value(host));
            let seconds = since.as_ref().map_or(0, Duration::as_secs);
            self.value("certificate_expires_seconds", &labels, seconds);
        }
        if let Some(failures) = acme_failures {
            let help = "Failed attempts to get a certificate from the authority.";
            self.counter("acme_failures_total", help, failures);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_certificate_has_the_time_of_its_end_and_failures_count_from_zero() {
        let served = |hosts: &[&str], seconds| ServedCertificate {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ends: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        };
        let all = vec![served(&["b", "a"], 9), served(&["a"], 7), served(&["b"], 8)];
        let metrics = |certificates: &[ServedCertificate], failures| {
            let mut text = Metrics::default();
            text.certificates(certificates, failures);
            text.into_text()
        };
        let text = metrics(&all, Some(0));
        let values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            values,
            [
                "rookery_certificate_expires_seconds{host=\"a\"} 7",
                "rookery_certificate_expires_seconds{host=\"b\"} 8",
                "rookery_acme_failures_total 0",
            ]
        );
        assert_eq!(metrics(&[], None), "");
    }
}
