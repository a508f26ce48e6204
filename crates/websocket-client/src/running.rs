//! A client's task: it connects, then reads and writes until the end, of which the application hears exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rookery_websocket::protocol::CloseCode;
use rookery_websocket::{Error, Outgoing, Reader, SendStatus, Sender};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::address::Address;
use crate::clients::Command;
use crate::connecting::{Failure, Transport, connect};
use crate::events::{Content, Event, Inbox, Shared};
use crate::settings::Settings;
use crate::tls::Tls;

/// Bytes of frames that are gathered for one write, while more messages wait.
const GATHERED: usize = 64 << 10;

/// The code for a connection that ended without a close frame (RFC 6455, 7.4.1).
const ABNORMAL: u16 = 1006;

/// A client that is to be.
#[derive(Debug)]
pub(crate) struct Opening {
    address: Address,
    settings: Settings,
    tls: Option<Tls>,
    commands: UnboundedReceiver<Command>,
    shared: Arc<Shared>,
    end: End,
}

/// Tells the application of the end: at the latest when it is dropped, should the task have been.
#[derive(Debug)]
struct End {
    id: u64,
    inbox: Arc<Inbox>,
    live: Arc<AtomicUsize>,
    shared: Arc<Shared>,
    is_told: bool,
}

impl Opening {
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a thing of its own, and they are put together here"
    )]
    pub(crate) fn new(
        id: u64,
        address: Address,
        settings: Settings,
        tls: Option<Tls>,
        commands: UnboundedReceiver<Command>,
        shared: Arc<Shared>,
        inbox: Arc<Inbox>,
        live: Arc<AtomicUsize>,
    ) -> Opening {
        live.fetch_add(1, Ordering::AcqRel);
        let end = End { id, inbox, live, shared: Arc::clone(&shared), is_told: false };
        Opening { address, settings, tls, commands, shared, end }
    }
}

impl End {
    fn tell(&mut self, event: Event) {
        if !std::mem::replace(&mut self.is_told, true) && !self.shared.is_abandoned() {
            self.inbox.push(event);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::AcqRel);
        self.tell(Event::Closed {
            client: self.id,
            code: ABNORMAL,
            reason: "the client was stopped".to_owned(),
            is_clean: false,
        });
    }
}

/// Runs a client from the beginning to the end.
pub(crate) async fn run(opening: Opening) {
    let Opening { address, settings, tls, mut commands, shared, mut end } = opening;
    let client = end.id;
    let connected = tokio::select! {
        biased;
        connected = connect(&address, &settings, tls) => connected,
        // Closed, or abandoned: nothing else is said to one that is not open.
        _ = commands.recv() => Err(Failure::new("it was closed before it was open")),
    };
    let (connection, protocol) = match connected {
        Ok(connected) => connected,
        Err(Failure { message, status }) => {
            return end.tell(Event::Failed { client, message, status });
        }
    };
    end.inbox.push(Event::Opened { client, protocol });
    let (mut reader, sender) = connection.split();
    let ended = tokio::select! {
        biased;
        ended = read(&mut reader, &shared, &end.inbox, client) => ended,
        // It has been abandoned, and closed.
        () = write(&sender, commands, &shared) => return,
        () = overdue(&shared, settings.close_time) => Ok(()),
    };
    end.tell(describe(client, &ended, &sender, shared.is_closed()));
}

/// Reads until the end.
async fn read(
    reader: &mut Reader<Box<dyn Transport>>,
    shared: &Shared,
    inbox: &Inbox,
    client: u64,
) -> Result<(), Error> {
    loop {
        shared.room().await;
        let Some(message) = reader.read().await? else { return Ok(()) };
        if shared.is_abandoned() {
            continue;
        }
        let content = match message.as_text() {
            Some(text) => Content::Text(text.to_owned()),
            None => Content::Binary(message.as_bytes().to_vec()),
        };
        shared.came(&content);
        inbox.push(Event::Message { client, content });
    }
}

/// Writes what it is given; returns when the client has been abandoned and closed. An end of any other kind is the reader's to
/// find.
async fn write(
    sender: &Sender<Box<dyn Transport>>,
    mut commands: UnboundedReceiver<Command>,
    shared: &Shared,
) {
    while let Some(first) = commands.recv().await {
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(command) = next {
            match command {
                Command::Send(content) => {
                    taken += content.cost();
                    if queue(sender, &content).await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
                Command::Close { code, reason } => {
                    let code = CloseCode::new(code).unwrap_or(CloseCode::NORMAL);
                    let _ = sender.close(code, cut(&reason)).await;
                    std::future::pending::<()>().await;
                }
            }
            next = if sender.pending() < GATHERED { commands.try_recv().ok() } else { None };
        }
        if sender.flush().await.is_err() {
            std::future::pending::<()>().await;
        }
        shared.waiting.fetch_sub(taken, Ordering::AcqRel);
    }
    let _ = sender.close(CloseCode::GOING_AWAY, "").await;
}

async fn queue(sender: &Sender<Box<dyn Transport>>, content: &Content) -> Result<(), Error> {
    let message = match content {
        Content::Text(text) => Outgoing::Text(text),
        Content::Binary(bytes) => Outgoing::Binary(bytes),
    };
    // An empty queue takes any message.
    while sender.queue(message)? == SendStatus::Dropped {
        sender.flush().await?;
    }
    Ok(())
}

/// Returns when the application has closed the client, or let go of it, and the time for that is over: the server may not read, so
/// that the close frame waits behind what was sent, or not answer.
async fn overdue(shared: &Shared, limit: Duration) {
    shared.ends().await;
    tokio::time::sleep(limit).await;
}

/// A close frame has room for 123 bytes of a reason (RFC 6455, 5.5).
fn cut(reason: &str) -> &str {
    let limit = rookery_websocket::protocol::REASON_MAX.min(reason.len());
    let end = (0..=limit).rev().find(|end| reason.is_char_boundary(*end)).unwrap_or(0);
    &reason[..end]
}

/// How it ended; `is_closed`: the application has closed it.
fn describe(
    client: u64,
    ended: &Result<(), Error>,
    sender: &Sender<Box<dyn Transport>>,
    is_closed: bool,
) -> Event {
    let ending = sender.ending();
    let (code, reason, is_clean) = match ended {
        Ok(()) if ending.is_clean => (ending.number(), sender.close_reason(), true),
        Ok(()) | Err(Error::Eof) if is_closed => {
            (ABNORMAL, "the server did not answer the close frame".to_owned(), false)
        }
        Ok(()) => (ABNORMAL, Error::Eof.to_string(), false),
        Err(Error::Violation(violation)) => {
            (violation.close_code().get(), violation.to_string(), false)
        }
        Err(Error::PongTimeout) => {
            (ABNORMAL, "the server did not answer a ping in time".to_owned(), false)
        }
        Err(error) => (ABNORMAL, error.to_string(), false),
    };
    Event::Closed { client, code, reason, is_clean }
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_reason_is_cut_between_characters() {
        assert_eq!(cut("bye"), "bye");
        assert_eq!(cut(&"x".repeat(200)).len(), 123);
        assert_eq!(cut(&"é".repeat(100)), "é".repeat(61));
    }
}
