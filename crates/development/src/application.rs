//! An application in front of another one. It sends messages about changes of the app and errors in
//! its sessions to the open pages, responds while the app cannot be started, and protects the
//! details of errors.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rookery_exchange::{
    Budget, Command, Event, Exchange, IoWaker, MessageKind, Payload, Peer, PushError, WakeUp,
    WebSocketId,
};
use rookery_server::static_files::StaticFiles;
use rookery_server::{Application, MakeApplication, OriginPolicy};
use rookery_status::{Access, AccessToken, RouteTable, ShinySessions};

use crate::failure_page::WITHOUT_ACCESS;
use crate::live_reload::{LiveReload, PageMessage, SCRIPT};

/// The beginning of the paths that this application responds to itself.
const PREFIX: &[u8] = b"/__rookery__/";

/// The path of the WebSocket of open pages.
const SOCKET: &[u8] = b"/__rookery__/live";

/// The script in the open pages.
const SCRIPT_SOURCE: &[u8] = include_bytes!("reload.js");

/// The maximum number of open pages that get messages about changes.
const MAX_PAGES: usize = 64;

/// The header by which a worker marks a response with the details of an error, such as source code.
/// Only a browser with the access token gets such a response.
pub const DETAILS_HEADER: &str = "x-rookery-error-details";

/// Returns the function that makes the application of a server under development. `inner` makes the
/// application behind it, and `token` is the token that a browser needs to see details of errors.
pub fn development_application(
    inner: MakeApplication,
    live: Arc<LiveReload>,
    token: AccessToken,
) -> MakeApplication {
    Arc::new(move |waker: Arc<dyn IoWaker>| {
        live.add_waker(Arc::clone(&waker));
        Box::new(DevelopmentApplication {
            inner: inner(Arc::clone(&waker)),
            live: Arc::clone(&live),
            token: token.clone(),
            waker,
            pages: RefCell::default(),
            commands: RefCell::default(),
        })
    })
}

struct DevelopmentApplication {
    inner: Box<dyn Application>,
    live: Arc<LiveReload>,
    token: AccessToken,
    waker: Arc<dyn IoWaker>,
    /// The WebSockets of the open pages, and whether the page has the token.
    pages: RefCell<HashMap<WebSocketId, bool>>,
    commands: RefCell<VecDeque<Command>>,
}

impl DevelopmentApplication {
    fn send_command(&self, command: Command) {
        self.commands.borrow_mut().push_back(command);
        self.waker.wake();
    }

    /// Responds to a request that is not meant for the app. Returns the request if it is.
    fn respond(&self, mut exchange: Box<Exchange>) -> Result<(), Box<Exchange>> {
        if exchange.path().starts_with(PREFIX) {
            self.respond_to_page_script(&mut exchange);
        } else if let Some(failure) = self.live.failure() {
            if let Access::Exchanged { page, cookie } = self.access(&exchange) {
                exchange_token(&mut exchange, &page, &cookie);
            } else {
                let has_access = self.access(&exchange) == Access::Granted;
                failure.write(&mut exchange, has_access);
            }
        } else {
            match self.access(&exchange) {
                Access::Exchanged { page, cookie } => {
                    exchange_token(&mut exchange, &page, &cookie);
                }
                Access::Granted | Access::Refused { .. } => return Err(exchange),
            }
        }
        self.send_command(Command::Respond(exchange));
        Ok(())
    }

    fn respond_to_page_script(&self, exchange: &mut Exchange) {
        let path = exchange.path();
        if path == SOCKET && exchange.is_upgrade() {
            let mut pages = self.pages.borrow_mut();
            if !is_from_own_page(exchange) {
                return write_text(exchange, 403, "403 Forbidden\n");
            }
            if pages.len() >= MAX_PAGES {
                return write_text(exchange, 503, "503 Service Unavailable: too many pages\n");
            }
            exchange.begin_response(101);
            pages.insert(exchange.id(), self.access(exchange) == Access::Granted);
        } else if &path[1..] == SCRIPT.as_bytes() && matches!(exchange.method(), b"GET" | b"HEAD") {
            write(exchange, 200, b"text/javascript; charset=utf-8", SCRIPT_SOURCE);
        } else {
            write_text(exchange, 404, "404 Not Found\n");
        }
    }

    /// Returns whether a client has the token. A Unix socket is usually that of a proxy, whose
    /// clients are not trusted for having reached it.
    fn access(&self, exchange: &Exchange) -> Access {
        if exchange.local().is_none() {
            return Access::Refused { status: 403, why: "A Unix socket has no token." };
        }
        self.token.check(exchange)
    }

    /// Removes the details of an error from a response unless the client has the token.
    fn protect_details(&self, exchange: &mut Exchange) {
        let is_mark = |name: &[u8]| name.eq_ignore_ascii_case(DETAILS_HEADER.as_bytes());
        if !exchange.response_headers().any(|(name, _)| is_mark(name)) {
            return;
        }
        if self.access(exchange) != Access::Granted {
            let text = format!(
                "500 Internal Server Error\nrequest id: {}\n{WITHOUT_ACCESS}\n",
                String::from_utf8_lossy(exchange.request_id().as_bytes())
            );
            return write_text(exchange, 500, &text);
        }
        let status = exchange.response().status();
        let headers: Vec<(Vec<u8>, Vec<u8>)> = exchange
            .response_headers()
            .filter(|(name, _)| !is_mark(name))
            .map(|(name, value)| (name.to_vec(), value.to_vec()))
            .collect();
        let copied = exchange.response_copy().map(<[u8]>::to_vec);
        let body = exchange.response_mut().take_body();
        exchange.begin_response(status);
        for (name, value) in headers {
            // The exchange has already accepted these names and values.
            let _ = exchange.push_response_header(&name, &value);
        }
        match copied {
            Some(copied) => exchange.set_response_body(&copied),
            None => exchange.response_mut().set_body(body),
        }
    }

    /// Sends a message to all open pages that may receive it.
    fn send_to_pages(&self, message: &PageMessage, commands: &mut VecDeque<Command>) {
        for (page, has_access) in self.pages.borrow().iter() {
            if *has_access || !message.has_details {
                commands.push_back(send(*page, &message.text));
            }
        }
    }
}

#[deny(clippy::missing_trait_methods, reason = "each function is passed on")]
impl Application for DevelopmentApplication {
    fn handle_event(&self, peer: Peer, event: Event) -> Result<WakeUp, PushError> {
        match event {
            Event::Request(exchange) => match self.respond(exchange) {
                Ok(()) => Ok(WakeUp::NotNeeded),
                Err(exchange) => self.inner.handle_event(peer, Event::Request(exchange)),
            },
            Event::Head(exchange) => match self.respond(exchange) {
                Ok(()) => Ok(WakeUp::NotNeeded),
                Err(exchange) => self.inner.handle_event(peer, Event::Head(exchange)),
            },
            Event::Message { socket, payload, .. } if self.pages.borrow().contains_key(&socket) => {
                // A page sends a message once it listens.
                if let Some(buffer) = payload.into_buffer() {
                    self.inner.recycle_buffer(buffer);
                }
                self.send_command(send(socket, &self.live.version_message()));
                Ok(WakeUp::NotNeeded)
            }
            Event::Drained { socket, .. } if self.pages.borrow().contains_key(&socket) => {
                Ok(WakeUp::NotNeeded)
            }
            Event::Closed { socket, .. } if self.pages.borrow_mut().remove(&socket).is_some() => {
                Ok(WakeUp::NotNeeded)
            }
            event => self.inner.handle_event(peer, event),
        }
    }

    fn take_commands(&self, commands: &mut VecDeque<Command>) {
        self.inner.take_commands(commands);
        for command in commands.iter_mut() {
            if let Command::Respond(exchange) = command {
                self.protect_details(exchange);
            }
        }
        commands.append(&mut self.commands.borrow_mut());
        for message in self.live.take_messages() {
            self.send_to_pages(&message, commands);
        }
    }

    fn prepare_sleep(&self, is_slow: bool) -> bool {
        self.inner.prepare_sleep(is_slow)
            && self.commands.borrow().is_empty()
            && !self.live.has_messages()
    }

    fn wants_head(&self, exchange: &Exchange) -> bool {
        self.inner.wants_head(exchange)
    }

    fn static_files(
        &self,
        query: &[u8],
        cookies: &mut dyn Iterator<Item = &[u8]>,
    ) -> Option<StaticFiles> {
        self.inner.static_files(query, cookies)
    }

    fn drops_half_closed(&self) -> bool {
        self.inner.drops_half_closed()
    }

    fn on_client_disconnect(&self) {
        self.inner.on_client_disconnect();
    }

    fn set_budget(&self, budget: &Arc<Budget>) {
        self.inner.set_budget(budget);
    }

    fn poll_capacity(&self, peer: Peer, socket: WebSocketId) -> bool {
        self.inner.poll_capacity(peer, socket)
    }

    fn routes(&self) -> Option<Arc<RouteTable>> {
        self.inner.routes()
    }

    fn sessions(&self) -> Option<Arc<ShinySessions>> {
        self.inner.sessions()
    }

    fn take_buffer(&self) -> Vec<u8> {
        self.inner.take_buffer()
    }

    fn recycle_buffer(&self, buffer: Vec<u8>) {
        self.inner.recycle_buffer(buffer);
    }

    fn wake_deferred(&self) {
        self.inner.wake_deferred();
    }

    fn has_thread(&self) -> bool {
        self.inner.has_thread()
    }

    fn take_has_forwarded(&self) -> bool {
        self.inner.take_has_forwarded()
    }

    fn events_taken(&self) -> u64 {
        self.inner.events_taken()
    }

    fn has_unread_events(&self) -> bool {
        self.inner.has_unread_events()
    }

    fn wake_if_stalled(&self, seen: u64) -> Option<u64> {
        self.inner.wake_if_stalled(seen)
    }

    fn on_wake(&self) {
        self.inner.on_wake();
    }
}

fn send(socket: WebSocketId, message: &str) -> Command {
    let payload = Payload::Pooled(message.as_bytes().to_vec());
    Command::Send { socket, kind: MessageKind::Text, payload }
}

/// Returns true if the page that opens a WebSocket belongs to this server. A proxy may have
/// replaced the `Host` header, and no page can send `X-Forwarded-Host` with a WebSocket.
fn is_from_own_page(exchange: &Exchange) -> bool {
    let Some(origin) = exchange.header(b"origin") else { return true };
    let hosts = [exchange.header(b"host"), exchange.header(b"x-forwarded-host")];
    hosts.into_iter().flatten().any(|host| OriginPolicy::SameHost.allows(origin, host))
}

fn exchange_token(exchange: &mut Exchange, page: &str, cookie: &str) {
    write(exchange, 200, b"text/html; charset=utf-8", page.as_bytes());
    // The value is the server's own.
    let _ = exchange.push_response_header(b"Set-Cookie", cookie.as_bytes());
}

fn write_text(exchange: &mut Exchange, status: u16, text: &str) {
    write(exchange, status, b"text/plain; charset=utf-8", text.as_bytes());
}

fn write(exchange: &mut Exchange, status: u16, kind: &[u8], body: &[u8]) {
    exchange.begin_response(status);
    // The exchange accepts these names and values, so no error can occur.
    let _ = exchange.push_response_header(b"Content-Type", kind);
    let _ = exchange.push_response_header(b"Cache-Control", b"no-store");
    let _ = exchange.push_response_header(b"X-Content-Type-Options", b"nosniff");
    exchange.set_response_body(body);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rookery_exchange::Version;
    use rookery_server::Server;

    use super::*;
    use crate::failure_page::StartFailure;

    struct NoWaker;

    impl IoWaker for NoWaker {
        fn wake(&self) {}

        fn wake_within(&self, _delay: Duration) -> bool {
            true
        }
    }

    fn application(live: &Arc<LiveReload>, token: &AccessToken) -> Box<dyn Application> {
        let inner = Server::static_files_application();
        development_application(inner, Arc::clone(live), token.clone())(Arc::new(NoWaker))
    }

    fn request(id: u64, target: &str, headers: &[(&str, &str)], is_upgrade: bool) -> Box<Exchange> {
        let mut exchange = Exchange::new();
        exchange.begin(id, 1, 0);
        exchange.set_request_line(b"GET", target.as_bytes(), Version::Http11);
        exchange.push_header(b"host", b"localhost:80");
        for (name, value) in headers {
            exchange.push_header(name.as_bytes(), value.as_bytes());
        }
        exchange.end_head(None, Some("127.0.0.1:80".parse().unwrap()), is_upgrade);
        exchange
    }

    fn commands(application: &dyn Application) -> Vec<Command> {
        let mut commands = VecDeque::new();
        application.take_commands(&mut commands);
        commands.into()
    }

    fn response(application: &dyn Application, exchange: Box<Exchange>) -> Box<Exchange> {
        assert_eq!(
            application.handle_event(Peer::default(), Event::Request(exchange)).unwrap(),
            WakeUp::NotNeeded
        );
        match commands(application).pop() {
            Some(Command::Respond(exchange)) => exchange,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the texts and receivers of the messages that are sent.
    fn messages(application: &dyn Application) -> Vec<(WebSocketId, String)> {
        let text = |command| match command {
            Command::Send { socket, kind: MessageKind::Text, payload } => {
                (socket, String::from_utf8(payload.as_bytes().to_vec()).unwrap())
            }
            other => panic!("{other:?}"),
        };
        commands(application).into_iter().map(text).collect()
    }

    fn cookie(application: &dyn Application, token: &AccessToken) -> String {
        let answer = response(application, request(1, &token.url(""), &[], false));
        assert_eq!(answer.response().status(), 200);
        let cookie = answer.response_headers().find(|(name, _)| *name == b"Set-Cookie").unwrap().1;
        String::from_utf8(cookie.split(|byte| *byte == b';').next().unwrap().to_vec()).unwrap()
    }

    /// An application that counts its requests by route.
    struct Counting(Arc<RouteTable>);

    impl Application for Counting {
        fn handle_event(&self, _: Peer, _: Event) -> Result<WakeUp, PushError> {
            Ok(WakeUp::NotNeeded)
        }

        fn take_commands(&self, _: &mut VecDeque<Command>) {}

        fn routes(&self) -> Option<Arc<RouteTable>> {
            Some(Arc::clone(&self.0))
        }

        fn events_taken(&self) -> u64 {
            0
        }

        fn prepare_sleep(&self, _: bool) -> bool {
            true
        }
    }

    #[test]
    fn requests_are_counted_in_the_route_table_of_the_inner_application() {
        let table = Arc::new(RouteTable::new());
        let inner = Arc::clone(&table);
        let make: MakeApplication = Arc::new(move |_| Box::new(Counting(Arc::clone(&inner))));
        let token = AccessToken::generate("/").unwrap();
        let application =
            development_application(make, LiveReload::new(), token)(Arc::new(NoWaker));
        assert!(Arc::ptr_eq(&application.routes().unwrap(), &table));
    }

    #[test]
    fn messages_are_sent_to_the_open_pages_only() {
        let (live, token) = (LiveReload::new(), AccessToken::generate("/").unwrap());
        let application = application(&live, &token);
        for page in [7, 8] {
            let answer = response(&*application, request(page, "/__rookery__/live", &[], true));
            assert_eq!(answer.response().status(), 101);
        }
        assert!(application.prepare_sleep(false));
        live.on_page_changed();
        assert!(!application.prepare_sleep(false));
        let mut sent = messages(&*application);
        sent.sort();
        let version = live.version_message();
        assert_eq!(sent, [(7, version.clone()), (8, version.clone())]);
        let closed =
            Event::Closed { socket: 7, listener: 1, code: 1001, reason: "".into(), is_clean: true };
        assert_eq!(application.handle_event(Peer::default(), closed).unwrap(), WakeUp::NotNeeded);
        let payload = Payload::Pooled(Vec::new());
        let message = Event::Message { socket: 8, listener: 1, kind: MessageKind::Text, payload };
        assert_eq!(application.handle_event(Peer::default(), message).unwrap(), WakeUp::NotNeeded);
        assert_eq!(messages(&*application), [(8, version)]);
    }

    #[test]
    fn errors_of_sessions_are_sent_to_the_pages_with_the_token_only() {
        let (live, token) = (LiveReload::new(), AccessToken::generate("/").unwrap());
        let application = application(&live, &token);
        let cookie = cookie(&*application, &token);
        for (page, headers) in
            [(7, &[("cookie", &*cookie)][..]), (8, &[]), (9, &[("cookie", "rookery-token-80=a")])]
        {
            response(&*application, request(page, "/__rookery__/live", headers, true));
        }
        live.on_session_error(b"4f2a\n<p>secret source");
        let expected = r#"{"error":{"page":"<p>secret source","session":"4f2a"}}"#;
        assert_eq!(messages(&*application), [(7, expected.to_owned())]);
        live.on_restarting();
        assert_eq!(messages(&*application).len(), 3);
    }

    #[test]
    fn only_own_pages_may_open_the_socket() {
        let (live, token) = (LiveReload::new(), AccessToken::generate("/").unwrap());
        let application = application(&live, &token);
        for (headers, status) in [
            (&[("origin", "http://localhost:80")][..], 101),
            (&[("origin", "https://app.example"), ("x-forwarded-host", "app.example")], 101),
            (&[("origin", "http://evil.example")], 403),
            (&[("origin", "null")], 403),
        ] {
            let answer = request(9, "/__rookery__/live", headers, true);
            let answer = response(&*application, answer);
            assert_eq!(answer.response().status(), status, "{headers:?}");
        }
    }

    #[test]
    fn other_requests_reach_the_app_unless_it_cannot_be_started() {
        let (live, token) = (LiveReload::new(), AccessToken::generate("/").unwrap());
        let application = application(&live, &token);
        let status = |target: &str| {
            response(&*application, request(1, target, &[], false)).response().status()
        };
        // The application behind it responds with 404.
        assert_eq!((status("/a"), status("/a?token=mine")), (404, 404));
        live.on_start_failed(StartFailure { page: None, text: "no".to_owned() });
        let _ = application.prepare_sleep(false);
        assert_eq!((status("/a"), status("/__rookery__/reload.js")), (500, 200));
        live.on_ready();
        assert_eq!(status("/a"), 404);
    }

    #[test]
    fn details_of_errors_need_the_token() {
        let (live, token) = (LiveReload::new(), AccessToken::generate("/").unwrap());
        let application = application(&live, &token);
        let cookie = cookie(&*application, &token);
        let protected = |headers: &[(&str, &str)], local: Option<&str>| {
            let own = DevelopmentApplication {
                inner: Server::static_files_application()(Arc::new(NoWaker)),
                live: LiveReload::new(),
                token: token.clone(),
                waker: Arc::new(NoWaker),
                pages: RefCell::default(),
                commands: RefCell::default(),
            };
            let mut exchange = request(1, "/", headers, false);
            exchange.end_head(None, local.map(|local| local.parse().unwrap()), false);
            exchange.begin_response(500);
            exchange.push_response_header(b"Content-Type", b"text/html").unwrap();
            exchange.push_response_header(b"X-Rookery-Error-Details", b"1").unwrap();
            exchange.set_response_body(b"secret source");
            own.protect_details(&mut exchange);
            let has_mark = exchange.response_headers().any(|(name, _)| name.starts_with(b"X-R"));
            assert!(!has_mark && exchange.response().status() == 500);
            let body = exchange.response_copy().unwrap();
            let is_shown = body == b"secret source";
            let text = String::from_utf8_lossy(body);
            assert!(is_shown || text.contains("The terminal shows the error."), "{text}");
            is_shown
        };
        let here = Some("127.0.0.1:80");
        assert!(protected(&[("cookie", &cookie)], here));
        assert!(!protected(&[], here));
        assert!(!protected(&[("cookie", "rookery-token-80=a")], here));
        assert!(!protected(&[("cookie", &cookie)], Some("127.0.0.1:81")));
        assert!(!protected(&[("cookie", &cookie)], None), "the clients of a proxy");
    }
}
