//! The task of one WebSocket client. It connects, and then reads and writes until the connection
//! ends. It sends the application exactly one event about the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rookery_websocket::protocol::CloseCode;
use rookery_websocket::{Error, Outgoing, Reader, SendStatus, Sender};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::address::Address;
use crate::connect::{ConnectError, Transport, connect};
use crate::events::{Content, Event, EventQueue};
use crate::settings::Settings;
use crate::state::{ClientState, Command};
use crate::tls::Tls;

/// The size in bytes at which a batch of WebSocket frames is written to the socket, even if more
/// messages are waiting.
const WRITE_BATCH_SIZE: usize = 64 << 10;

/// The close code for a connection that ended without a close frame (RFC 6455, 7.4.1).
const ABNORMAL_CLOSURE: u16 = 1006;

/// The data that the task of a WebSocket client needs when it starts.
#[derive(Debug)]
pub(crate) struct ClientTask {
    address: Address,
    settings: Settings,
    tls: Option<Tls>,
    commands: UnboundedReceiver<Command>,
    state: Arc<ClientState>,
    end: EndEvent,
}

/// A guard that makes sure that the application receives exactly one event about the end of a
/// client. If the client's task is dropped before it has sent the event, dropping this guard sends
/// the event.
#[derive(Debug)]
struct EndEvent {
    id: u64,
    events: Arc<EventQueue>,
    live_tasks: Arc<AtomicUsize>,
    state: Arc<ClientState>,
    is_sent: bool,
}

impl ClientTask {
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
        state: Arc<ClientState>,
        events: Arc<EventQueue>,
        live_tasks: Arc<AtomicUsize>,
    ) -> ClientTask {
        live_tasks.fetch_add(1, Ordering::AcqRel);
        let end = EndEvent { id, events, live_tasks, state: Arc::clone(&state), is_sent: false };
        ClientTask { address, settings, tls, commands, state, end }
    }
}

impl EndEvent {
    fn send(&mut self, event: Event) {
        if !std::mem::replace(&mut self.is_sent, true) && !self.state.is_abandoned() {
            self.events.push(event);
        }
    }
}

impl Drop for EndEvent {
    fn drop(&mut self) {
        self.live_tasks.fetch_sub(1, Ordering::AcqRel);
        self.send(Event::Closed {
            client: self.id,
            code: ABNORMAL_CLOSURE,
            reason: "the client was stopped".to_owned(),
            is_clean: false,
        });
    }
}

/// Runs a WebSocket client: connects, and then reads and writes until the connection ends.
pub(crate) async fn run(task: ClientTask) {
    let ClientTask { address, settings, tls, mut commands, state, mut end } = task;
    let client = end.id;
    let connected = tokio::select! {
        biased;
        connected = connect(&address, &settings, tls) => connected,
        // The application has closed or abandoned the client. It cannot send other commands before
        // the connection is open. `Clients::next_event` turns the end event into a failure.
        _ = commands.recv() => return,
    };
    let (connection, protocol) = match connected {
        Ok(connected) => connected,
        Err(ConnectError { message, status }) => {
            return end.send(Event::Failed { client, message, status });
        }
    };
    end.events.push(Event::Opened { client, protocol });
    let (mut reader, sender) = connection.split();
    let ended = tokio::select! {
        biased;
        ended = read(&mut reader, &state, &end.events, client) => ended,
        // The application has abandoned the client, and the closing handshake has been started.
        () = write(&sender, commands, &state) => return,
        () = close_deadline(&state, settings.close_timeout) => Ok(()),
    };
    end.send(closed_event(client, &ended, &sender, state.is_closed()));
}

/// Reads messages from the server until the connection ends.
async fn read(
    reader: &mut Reader<Box<dyn Transport>>,
    state: &ClientState,
    events: &EventQueue,
    client: u64,
) -> Result<(), Error> {
    loop {
        state.wait_for_capacity().await;
        let Some(message) = reader.read().await? else { return Ok(()) };
        if state.is_abandoned() {
            continue;
        }
        let content = match message.as_text() {
            Some(text) => Content::Text(text.to_owned()),
            None => Content::Binary(message.as_bytes().to_vec()),
        };
        state.on_message_received(&content);
        events.push(Event::Message { client, content });
    }
}

/// Sends the application's messages to the server. Returns only after the application has abandoned
/// the client and the closing handshake has been started. The end of the connection is not reported
/// by this function but by `read`.
async fn write(
    sender: &Sender<Box<dyn Transport>>,
    mut commands: UnboundedReceiver<Command>,
    state: &ClientState,
) {
    while let Some(first) = commands.recv().await {
        let mut next = Some(first);
        let mut written = 0;
        while let Some(command) = next {
            match command {
                Command::Send(content) => {
                    written += content.cost();
                    if queue(sender, &content).await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
                Command::Close { code, reason } => {
                    let code = CloseCode::new(code).unwrap_or(CloseCode::NORMAL);
                    let _ = sender.close(code, truncate_reason(&reason)).await;
                    std::future::pending::<()>().await;
                }
            }
            next =
                if sender.pending() < WRITE_BATCH_SIZE { commands.try_recv().ok() } else { None };
        }
        if sender.flush().await.is_err() {
            std::future::pending::<()>().await;
        }
        state.queued_bytes.fetch_sub(written, Ordering::AcqRel);
    }
    let _ = sender.close(CloseCode::GOING_AWAY, "").await;
}

async fn queue(sender: &Sender<Box<dyn Transport>>, content: &Content) -> Result<(), Error> {
    let message = match content {
        Content::Text(text) => Outgoing::Text(text),
        Content::Binary(bytes) => Outgoing::Binary(bytes),
    };
    // A message of any size is accepted if the queue is empty.
    while sender.queue(message)? == SendStatus::Dropped {
        sender.flush().await?;
    }
    Ok(())
}

/// Waits until the application has closed or abandoned the client, and then for the close timeout
/// `limit`. The timeout is necessary because the server may not read the close frame, or may not
/// respond to it.
async fn close_deadline(state: &ClientState, limit: Duration) {
    state.wait_for_close().await;
    tokio::time::sleep(limit).await;
}

/// Truncates the reason of a close frame to the maximum of 123 bytes (RFC 6455, 5.5).
fn truncate_reason(reason: &str) -> &str {
    let limit = rookery_websocket::protocol::REASON_MAX.min(reason.len());
    let end = (0..=limit).rev().find(|end| reason.is_char_boundary(*end)).unwrap_or(0);
    &reason[..end]
}

/// Returns the event that reports the end of a connection to the application. `ended` is the result
/// of reading from the connection, and `is_closed` is true if the application has closed the
/// client.
fn closed_event(
    client: u64,
    ended: &Result<(), Error>,
    sender: &Sender<Box<dyn Transport>>,
    is_closed: bool,
) -> Event {
    let ending = sender.ending();
    let (code, reason, is_clean) = match ended {
        Ok(()) if ending.is_clean => (ending.number(), sender.close_reason(), true),
        Ok(()) | Err(Error::Eof) if is_closed => {
            (ABNORMAL_CLOSURE, "the server did not respond to the close frame".to_owned(), false)
        }
        Ok(()) => (ABNORMAL_CLOSURE, Error::Eof.to_string(), false),
        Err(Error::Violation(violation)) => {
            (violation.close_code().get(), violation.to_string(), false)
        }
        Err(Error::PongTimeout) => {
            (ABNORMAL_CLOSURE, "the server did not respond to a ping in time".to_owned(), false)
        }
        Err(error) => (ABNORMAL_CLOSURE, error.to_string(), false),
    };
    Event::Closed { client, code, reason, is_clean }
}

#[cfg(test)]
mod tests {
    use super::truncate_reason;

    #[test]
    fn a_reason_is_truncated_between_characters() {
        assert_eq!(truncate_reason("bye"), "bye");
        assert_eq!(truncate_reason(&"x".repeat(200)).len(), 123);
        assert_eq!(truncate_reason(&"é".repeat(100)), "é".repeat(61));
    }
}
