//! What a line of the access log says, and how it is written.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rookery_exchange::{StreamEnd, TerminationState, UpstreamLog};

/// A path of a log line is cut here: a client may send 96 KiB, and a line is for reading.
pub(super) const PATH_BYTES: usize = 2048;

/// One answered request.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// When its head had been read.
    pub time: SystemTime,
    /// The client; `None` on a Unix socket.
    pub remote: Option<SocketAddr>,
    /// The method, as sent; empty when the head was refused before it was known.
    pub method: &'a [u8],
    /// The path, as sent but for the tokens of sessions, which are masked.
    pub path: &'a [u8],
    /// The query with its `?`, or empty; masked as the path is.
    pub query: &'a [u8],
    /// What the client speaks.
    pub protocol: Protocol,
    /// The reply's status; 101 for a WebSocket, once it is open.
    pub status: u16,
    /// Bytes of the reply's body that were handed to the system.
    pub bytes: u64,
    /// From the head of the request to the end of the reply.
    pub elapsed: Duration,
    /// Why the reply ended before it was whole, if it did.
    pub aborted: Option<StreamEnd>,
    /// The id of the request; empty when the head was refused before it was known.
    pub request_id: &'a [u8],
    /// What became of it at workers; `None` where there are none, and of what was answered without them.
    pub upstream: Option<UpstreamLog>,
}

/// A version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1; also of a head that could not be read.
    Http11,
    /// HTTP/2.
    Http2,
}

impl Protocol {
    pub(super) fn of(version: http::Version) -> Protocol {
        match version {
            http::Version::HTTP_10 => Protocol::Http10,
            http::Version::HTTP_2 => Protocol::Http2,
            _ => Protocol::Http11,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Protocol::Http10 => "HTTP/1.0",
            Protocol::Http11 => "HTTP/1.1",
            Protocol::Http2 => "HTTP/2.0",
        }
    }
}

/// A [`Record`] that stands on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedRecord {
    /// See [`Record::time`].
    pub time: SystemTime,
    /// See [`Record::remote`].
    pub remote: Option<SocketAddr>,
    /// See [`Record::method`].
    pub method: Vec<u8>,
    /// See [`Record::path`]; at most 2,048 bytes.
    pub path: Vec<u8>,
    /// See [`Record::query`]; at most 2,048 bytes.
    pub query: Vec<u8>,
    /// See [`Record::status`].
    pub status: u16,
    /// See [`Record::bytes`].
    pub bytes: u64,
    /// See [`Record::elapsed`].
    pub elapsed: Duration,
    /// See [`Record::aborted`].
    pub aborted: Option<StreamEnd>,
    /// See [`Record::request_id`].
    pub request_id: Vec<u8>,
    /// See [`Record::upstream`].
    pub upstream: Option<UpstreamLog>,
    /// See [`Record::ended`].
    pub ended: Option<TerminationState>,
}

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The Common Log Format, with the seconds the request took behind it.
    Common,
    /// The same, and behind it what became of the request at workers: its id, slot, process and start of the worker, seconds in the queue
    /// and from there to the head of the reply, how often it went to another worker, [what ended it](Record::ended), and its session.
    /// What is not known is `-`.
    CommonOfWorkers,
    /// One JSON object per line.
    Json,
}

impl Record<'_> {
    /// A copy that stands on its own.
    pub fn to_owned(&self) -> OwnedRecord {
        OwnedRecord {
            time: self.time,
            remote: self.remote,
            method: self.method.to_vec(),
            path: cut(self.path).to_vec(),
            query: cut(self.query).to_vec(),
            status: self.status,
            bytes: self.bytes,
            elapsed: self.elapsed,
            aborted: self.aborted,
            request_id: self.request_id.to_vec(),
            upstream: self.upstream,
            ended: self.ended(),
        }
    }

    /// Appends the line, with its end.
    pub fn write_line(&self, format: Format, out: &mut Vec<u8>) {
        // Writing to a Vec does not fail.
        let _ = match format {
            Format::Common => self.write_common(out, false),
            Format::CommonOfWorkers => self.write_common(out, true),
            Format::Json => self.write_json(out),
        };
    }

    /// What ended a request that was not simply answered: as the application says, or as it was seen here.
    pub fn ended(&self) -> Option<TerminationState> {
        let told = self.upstream.and_then(|upstream| upstream.termination_state);
        let has_worker = self.upstream.is_some_and(|upstream| upstream.worker.is_some());
        told.or(match self.aborted {
            Some(StreamEnd::Client | StreamEnd::Slow) => Some(TerminationState::ClientDisconnected),
            Some(StreamEnd::Timeout) => Some(TerminationState::Timeout),
            // Its reply broke off.
            Some(StreamEnd::Error) if has_worker => Some(TerminationState::WorkerDied),
            // Its head or its body took too long to come.
            None if self.status == 408 => Some(TerminationState::Timeout),
            _ => None,
        })
    }

    fn write_common(&self, out: &mut Vec<u8>, tells_of_workers: bool) -> io::Result<()> {
        let civil = Civil::of(self.time);
        match self.remote {
            Some(remote) => write!(out, "{}", plain(remote.ip()))?,
            None => out.push(b'-'),
        }
        write!(
            out,
            " - - [{:02}/{}/{:04}:{:02}:{:02}:{:02} +0000] \"",
            civil.day,
            MONTHS[usize::from(civil.month) - 1],
            civil.year,
            civil.hour,
            civil.minute,
            civil.second
        )?;
        escape_common(if self.method.is_empty() { b"-" } else { self.method }, out);
        out.push(b' ');
        escape_common(cut(self.path), out);
        escape_common(cut(self.query), out);
        let protocol = self.protocol.name();
        write!(
            out,
            " {protocol}\" {} {} {:.6}",
            self.status,
            self.bytes,
            self.elapsed.as_secs_f64()
        )?;
        if tells_of_workers {
            self.write_upstream(out)?;
        }
        out.push(b'\n');
        Ok(())
    }

    fn write_upstream(&self, out: &mut Vec<u8>) -> io::Result<()> {
        out.push(b' ');
        // It has no characters but those of names.
        out.extend_from_slice(if self.request_id.is_empty() { b"-" } else { self.request_id });
        let upstream = self.upstream.unwrap_or_default();
        match upstream.worker {
            Some(worker) => write!(out, " {} {} {}", worker.slot, worker.pid, worker.epoch)?,
            None => out.extend_from_slice(b" - - -"),
        }
        for time in [self.upstream.map(|upstream| upstream.queued), upstream.response_time] {
            match time {
                Some(time) => write!(out, " {:.6}", time.as_secs_f64())?,
                None => out.extend_from_slice(b" -"),
            }
        }
        let letter = self.ended().map_or('-', TerminationState::letter);
        match self.upstream {
            Some(upstream) => write!(out, " {} {letter}", upstream.retries())?,
            None => write!(out, " - {letter}")?,
        }
        match upstream.session {
            Some(session) => write!(out, " {session:016x}"),
            None => write!(out, " -"),
        }
    }

    fn write_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let civil = Civil::of(self.time);
        write!(
            out,
            "{{\"time\":\"{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z\",\"remote\":",
            civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second, civil.milli
        )?;
        match self.remote {
            Some(remote) => write!(out, "\"{}\"", plain(remote.ip()))?,
            None => out.extend_from_slice(b"null"),
        }
        for (name, value) in
            [("method", self.method), ("path", cut(self.path)), ("query", cut(self.query))]
        {
            write!(out, ",\"{name}\":\"")?;
            escape_json(value, out);
            out.push(b'"');
        }
        write!(
            out,
            ",\"status\":{},\"bytes\":{},\"seconds\":{:.6}",
            self.status,
            self.bytes,
            self.elapsed.as_secs_f64()
        )?;
        if !self.request_id.is_empty() {
            out.extend_from_slice(b",\"request_id\":\"");
            escape_json(self.request_id, out);
            out.push(b'"');
        }
        if let Some(reason) = self.aborted {
            write!(out, ",\"aborted\":true,\"reason\":\"{}\"", reason.name())?;
        }
        if let Some(upstream) = &self.upstream {
            self.write_upstream_json(upstream, out)?;
        }
        out.extend_from_slice(b"}\n");
        Ok(())
    }

    /// Only what is known.
    fn write_upstream_json(&self, upstream: &UpstreamLog, out: &mut Vec<u8>) -> io::Result<()> {
        if let Some(worker) = upstream.worker {
            write!(
                out,
                ",\"slot\":{},\"pid\":{},\"epoch\":{}",
                worker.slot, worker.pid, worker.epoch
            )?;
        }
        write!(out, ",\"queue_seconds\":{:.6}", upstream.queued.as_secs_f64())?;
        if let Some(took) = upstream.response_time {
            write!(out, ",\"upstream_seconds\":{:.6}", took.as_secs_f64())?;
        }
        write!(out, ",\"retries\":{}", upstream.retries())?;
        if let Some(ended) = self.ended() {
            write!(out, ",\"ended\":\"{}\"", ended.letter())?;
        }
        if let Some(session) = upstream.session {
            write!(out, ",\"session\":\"{session:016x}\"")?;
        }
        Ok(())
    }
}

/// A point in time in the calendar, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Civil {
    pub(super) year: u64,
    pub(super) month: u8,
    pub(super) day: u8,
    pub(super) hour: u8,
    pub(super) minute: u8,
    pub(super) second: u8,
    pub(super) milli: u16,
}

impl Civil {
    /// From days since 1970 by the method of H. Hinnant, "chrono-compatible low-level date algorithms"; times before
    /// 1970 are taken for 1970.
    pub(super) fn of(time: SystemTime) -> Civil {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
        let days = days + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // Months from March on, so that the leap day is the last of its year.
        let shifted = (5 * day_of_year + 2) / 153;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        Civil {
            year: year_of_era + era * 400 + u64::from(month <= 2),
            month: month as u8,
            day: (day_of_year - (153 * shifted + 2) / 5 + 1) as u8,
            hour: (second / 3600) as u8,
            minute: (second / 60 % 60) as u8,
            second: (second % 60) as u8,
            milli: since.subsec_millis() as u16,
        }
    }
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// An IPv4 address that came in on an IPv6 socket is shown as what it is.
fn plain(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

pub(super) fn cut(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(PATH_BYTES)]
}

/// A client must not be able to write lines, or terminal escapes, into the log.
fn escape_common(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0x20..=0x7e => out.push(byte),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
}

/// Bytes that are no UTF-8 become U+FFFD: JSON has no others.
fn escape_json(bytes: &[u8], out: &mut Vec<u8>) {
    for char in String::from_utf8_lossy(bytes).chars() {
        match char {
            '"' | '\\' => out.extend_from_slice(&[b'\\', char as u8]),
            ' '..='\u{7e}' => out.push(char as u8),
            _ if char.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(char));
            }
            _ => {
                let _ = write!(out, "{char}");
            }
        }
    }
}
