//! Tests of a worker's end of the rings. The front end is this test.

use rookery_exchange::wire::{RequestForm, Up, write_request};
use rookery_exchange::{
    AppToken, AppWaker, ChunkAdmission, Command, MessageKind, QueueLimits, ResponseBody, StreamEnd,
    StreamOptions,
};
use rookery_worker_protocol::rings::{Lane, MAX_RECORD_LEN, Sleep};

use super::*;

struct NoWaker;

impl AppWaker for NoWaker {
    fn wake(&self) {}
}

struct Test {
    front: RingEnd,
    rings: WorkerRings,
    link: Arc<Link>,
    record: Vec<u8>,
}

impl Test {
    fn new() -> Test {
        let (front, _, handles) = RingEnd::create().unwrap();
        let link = Link::new(QueueLimits::default(), Box::new(NoWaker));
        let rings = WorkerRings::new(handles.attach().unwrap(), &link);
        Test { front, rings, link, record: Vec::new() }
    }

    /// Sends a request, and returns it as the application gets it.
    fn ask(&mut self, is_upgrade: bool) -> Box<Exchange> {
        self.send_request(is_upgrade);
        let Some(Event::Request(exchange)) = self.next() else { panic!("a request") };
        assert!(WorkerRings::is_from_front_end(exchange.id()));
        exchange
    }

    fn send_request(&mut self, is_upgrade: bool) {
        let mut exchange = Exchange::new();
        exchange.begin(7, 1, 0);
        exchange.end_head(None, None, is_upgrade);
        let mut record = Vec::new();
        write_request(&exchange, b"", (3 << 10, 0), &mut record, &[], |_, _, _| ());
        self.front.sender.send(RequestForm::Complete.kind(), &record, None).unwrap();
    }

    /// Sends a request with a body, and returns what the application gets first.
    fn post(&mut self, form: RequestForm, body: &[u8]) -> Box<Exchange> {
        let mut exchange = Exchange::new();
        exchange.begin(7, 1, 0);
        exchange.push_body(body);
        let mut record = Vec::new();
        write_request(&exchange, b"", (3 << 10, 0), &mut record, &[], |_, _, _| ());
        let record = [&record[..], b""];
        let sent = (Lane::Requests, form.kind());
        self.front.sender.send_parts(sent, record, None, &mut 0).unwrap();
        let Some(Event::Head(head)) = self.next() else { panic!("a head") };
        assert!(head.body().is_empty());
        head
    }

    /// Takes all events of the link. Returns the total length of the chunks, and the reason for the
    /// end of the body.
    fn chunks(&mut self) -> (usize, Option<StreamEnd>) {
        let mut len = 0;
        while let Some(event) = self.link.next() {
            match event {
                Event::Body { payload, .. } => len += payload.as_bytes().len(),
                Event::BodyEnd { reason, .. } => return (len, Some(reason)),
                event => panic!("{event:?}"),
            }
        }
        (len, None)
    }

    fn tell(&mut self, down: Down<'_>) {
        let mut record = Vec::new();
        let kind = down.write(&mut record);
        self.front.sender.send(kind, &record, None).unwrap();
    }

    fn next(&mut self) -> Option<Event> {
        self.rings.next(Some(1), &self.link).unwrap()
    }

    fn send(&mut self, command: Command) {
        self.rings.send(command, &self.link);
    }

    fn send_message(&mut self, socket: WebSocketId) {
        let (kind, payload) = (MessageKind::Binary, Payload::Pooled(b"message".to_vec()));
        self.send(Command::Send { socket, kind, payload });
    }

    /// Takes the next record that the worker has sent.
    fn sent(&mut self) -> Option<Up<'_>> {
        let arrived = self.front.receiver.take(&mut self.record).unwrap()?;
        Some(Up::read(arrived.kind, &self.record).unwrap())
    }

    fn open_stream(&mut self, rules: StreamOptions) -> (u64, Arc<StreamFlow>) {
        let mut exchange = self.ask(false);
        let (id, body) = (exchange.id(), self.link.stream(rules));
        let flow = Arc::clone(&body.flow);
        exchange.begin_response(200);
        exchange.set_response_stream(body);
        self.send(Command::Respond(exchange));
        assert!(matches!(self.sent(), Some(Up::Response { exchange: 7, .. })));
        (id, flow)
    }
}

#[test]
fn records_wait_in_order_while_the_front_end_takes_none() {
    let mut test = Test::new();
    let mut exchange = test.ask(true);
    let socket = exchange.id();
    exchange.begin_response(101);
    test.send(Command::Respond(exchange));
    for number in 0..2000_u32 {
        let payload = Payload::Pooled(number.to_le_bytes().to_vec());
        test.send(Command::Send { socket, kind: MessageKind::Binary, payload });
    }
    assert!(test.rings.queue.has_events(), "the application does not sleep");
    assert!(test.next().is_none());
    assert!(matches!(test.sent(), Some(Up::Response { .. })));
    let mut number = 0_u32;
    while number < 2000 {
        match test.sent() {
            Some(Up::Message { socket: 7, content, .. }) => {
                assert_eq!(content, number.to_le_bytes());
                number += 1;
            }
            Some(other) => panic!("{other:?}"),
            None => assert!(test.next().is_none()),
        }
    }
    assert!(!test.rings.queue.has_events());
}

#[test]
fn the_front_end_is_woken_once_for_several_records_and_in_time() {
    let mut test = Test::new();
    test.front.own_sleep.announce(Sleep::Polling);
    let exchange = {
        let mut exchange = test.ask(false);
        exchange.begin_response(200);
        exchange
    };
    test.send(Command::Respond(exchange));
    assert!(test.rings.front_end_sleep.is_asleep(), "a timer wakes it");
    assert!(test.next().is_none());
    assert!(!test.rings.front_end_sleep.is_asleep(), "there is nothing else to do");
}

#[test]
fn a_head_that_is_too_long_is_an_error_and_ends_its_stream() {
    let mut test = Test::new();
    let mut exchange = test.ask(false);
    let id = exchange.id();
    exchange.begin_response(200);
    exchange.push_response_header(b"x-long", &vec![b'x'; 2 << 20]).unwrap();
    let body = test.link.stream(StreamOptions::default());
    let flow = Arc::clone(&body.flow);
    exchange.set_response_stream(body);
    test.send(Command::Respond(exchange));
    let (is_it, ticket) = (7, 3 << 10);
    assert_eq!(test.sent(), Some(Up::Unsendable { exchange: is_it, ticket }));
    assert!(flow.is_over());
    assert!(matches!(
        test.link.next(),
        Some(Event::StreamEnded { stream, reason: StreamEnd::Error, .. }) if stream == id
    ));
    assert_eq!(test.rings.open(), 0);
}

#[test]
fn requests_are_given_back_while_no_listener_serves_them() {
    let mut test = Test::new();
    test.send_request(false);
    assert!(test.rings.next(None, &test.link).unwrap().is_none());
    assert_eq!(test.sent(), Some(Up::Declined { exchange: 7, ticket: 3 << 10 }));
    assert_eq!(test.rings.open(), 0);
}

#[test]
fn a_withdrawn_request_gets_no_response() {
    let mut test = Test::new();
    let exchange = test.ask(false);
    assert_eq!(test.rings.open(), 1);
    test.send(Command::Respond(exchange));
    assert_eq!(test.sent(), None);
    assert_eq!(test.rings.open(), 0);
}

#[test]
fn a_paused_application_continues_once_the_front_end_has_written() {
    let mut test = Test::new();
    let (stream, flow) = test.open_stream(StreamOptions::default());
    let mut sent = 0;
    loop {
        let admission = flow.admit(10_000);
        let payload = Payload::Pooled(vec![0; 10_000]);
        test.send(Command::Chunk { stream, payload, is_pushing: false });
        sent += 10_000;
        let is_last = admission == ChunkAdmission::Pause;
        let Some(Up::Chunk { is_waiting, .. }) = test.sent() else { panic!("a chunk") };
        assert_eq!(is_waiting, is_last);
        if is_last {
            break;
        }
    }
    test.tell(Down::Written { stream: 7, written: 30_000 });
    assert!(test.next().is_none(), "much still waits");
    test.tell(Down::Written { stream: 7, written: sent });
    assert!(matches!(test.next(), Some(Event::Writable { stream: it, .. }) if it == stream));
    assert_eq!(flow.waiting(), 0);
    test.tell(Down::StreamEnded { stream: 7, reason: StreamEnd::Client });
    assert!(matches!(test.next(), Some(Event::StreamEnded { reason: StreamEnd::Client, .. })));
    assert!(flow.is_over() && test.rings.open() == 0);
    // If a response was late, the front end sends this record although the stream has ended.
    test.tell(Down::StreamEnded { stream: 7, reason: StreamEnd::Timeout });
    assert!(test.next().is_none());
}

#[test]
fn an_application_that_stops_ends_all_of_its_streams() {
    for (is_pulled, is_events) in [(false, false), (true, false), (false, true)] {
        let mut test = Test::new();
        test.open_stream(StreamOptions { is_pulled, is_events, ..StreamOptions::default() });
        test.rings.stop_streams();
        let (stream, reason) = (7, StreamEnd::Stop);
        assert_eq!(test.sent(), Some(Up::AbortStream { stream, reason, page: b"" }));
    }
}

#[test]
fn long_bodies_cross_in_parts_and_files_beside_their_responses() {
    let mut test = Test::new();
    for len in [64 << 10, MAX_RECORD_LEN, 1 << 20, 5 << 20] {
        let body: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let mut exchange = test.ask(false);
        exchange.begin_response(200);
        exchange.set_response_body(&body);
        // The front end takes nothing, and R goes on.
        test.send(Command::Respond(exchange));
        let is_waiting = test.rings.outbox.has_waiting();
        assert_eq!(is_waiting, len > 1 << 20, "{len}");
        let arrived = loop {
            match test.front.receiver.take(&mut test.record).unwrap() {
                Some(arrived) => break arrived,
                None => assert!(test.next().is_none()),
            }
        };
        assert!(arrived.descriptor.is_none());
        assert!(test.record.ends_with(&body));
        assert_eq!(test.rings.open(), 0);
    }
    let mut exchange = test.ask(false);
    exchange.begin_response(200);
    let body = ResponseBody::File { file: tempfile::tempfile().unwrap(), len: 0, charge: None };
    exchange.response_mut().set_body(body);
    test.send(Command::Respond(exchange));
    let arrived = test.front.receiver.take(&mut test.record).unwrap().unwrap();
    assert!(arrived.descriptor.is_some());
}

#[test]
fn the_application_gets_no_request_while_the_front_end_takes_none_of_many_bytes() {
    let mut test = Test::new();
    let body = vec![b'x'; 3 << 20];
    (0..10).for_each(|_| test.send_request(false));
    let mut answered = 0;
    while let Some(event) = test.next() {
        let Event::Request(mut exchange) = event else { panic!("{event:?}") };
        exchange.begin_response(200);
        exchange.set_response_body(&body);
        test.send(Command::Respond(exchange));
        answered += 1;
    }
    let waiting = test.rings.outbox.waiting_bytes(Lane::Requests);
    assert!(waiting > MAX_UNSENT && waiting <= MAX_UNSENT + 2 * body.len(), "{waiting}");
    // All are answered once the front end takes the responses.
    let mut taken = 0;
    while taken < 10 {
        if let Some(Event::Request(mut exchange)) = test.next() {
            exchange.begin_response(200);
            exchange.set_response_body(&body);
            test.send(Command::Respond(exchange));
            answered += 1;
        }
        while test.sent().is_some() {
            taken += 1;
        }
    }
    assert_eq!(answered, 10);
}

#[test]
fn a_response_crosses_while_the_rest_of_a_message_waits() {
    let mut test = Test::new();
    let mut exchange = test.ask(true);
    let socket = exchange.id();
    exchange.begin_response(101);
    test.send(Command::Respond(exchange));
    let message = |len| {
        let payload = Payload::Pooled(vec![b'x'; len]);
        Command::Send { socket, kind: MessageKind::Binary, payload }
    };
    test.send(message(5 << 20));
    test.send(message(1));
    assert!(test.rings.outbox.waiting(Lane::Messages) > 0);
    let mut exchange = test.ask(false);
    exchange.begin_response(200);
    exchange.set_response_body(&vec![b'y'; 200_000]);
    test.send(Command::Respond(exchange));
    assert_eq!(test.rings.outbox.waiting(Lane::Requests), 0);
    let mut lens = Vec::new();
    while lens.len() < 4 {
        match test.sent() {
            Some(Up::Response { content, .. } | Up::Message { content, .. }) => {
                lens.push(content.len());
            }
            Some(other) => panic!("{other:?}"),
            None => assert!(test.next().is_none()),
        }
    }
    assert!(lens[0] < 100 && lens[1] > 200_000, "{lens:?}");
    assert_eq!(lens[2..], [5 << 20, 1]);
}

#[test]
fn the_body_of_an_accepted_head_follows_with_its_token() {
    let mut test = Test::new();
    let mut head = test.post(RequestForm::HeadFirst, b"body");
    head.set_app_token(AppToken::new(5, test.link.releases()));
    test.send(Command::ReadBody(head));
    let Some(Event::Request(mut exchange)) = test.link.next() else { panic!("a request") };
    assert_eq!((exchange.ticket(), exchange.take_app_token()), (3 << 10, 5));
    assert_eq!(exchange.body().len(), 4);
    assert_eq!(test.sent(), None);
    assert_eq!(test.rings.open(), 1);
    exchange.begin_response(200);
    test.send(Command::Respond(exchange));
    assert!(matches!(test.sent(), Some(Up::Response { exchange: 7, .. })));
    assert_eq!((test.rings.open(), test.rings.heads.len()), (0, 0));
}

#[test]
fn the_front_end_receives_a_body_when_the_application_wants_it() {
    let (exchange, ticket) = (7, 3 << 10);
    let mut test = Test::new();
    let head = test.post(RequestForm::HeadOnly, b"");
    test.send(Command::ReadBody(head));
    assert_eq!(test.sent(), Some(Up::ReadBody { exchange, ticket, is_head_seen: true }));
    assert_eq!(test.rings.open(), 0);

    // An application that wants chunks gets the head again, and its first answer is dropped.
    let mut head = test.post(RequestForm::HeadOnly, b"");
    test.send(Command::StreamBody { exchange: head.id(), listener: 1, slot: 0 });
    assert_eq!(test.chunks(), (0, Some(StreamEnd::Client)));
    assert_eq!(test.sent(), Some(Up::ReadBody { exchange, ticket, is_head_seen: false }));
    head.begin_response(400);
    test.send(Command::Respond(head));
    assert_eq!(test.sent(), None);
    assert_eq!(test.rings.open(), 0);
}

#[test]
fn a_body_in_chunks_waits_for_the_application() {
    let mut test = Test::new();
    let head = test.post(RequestForm::HeadFirst, &vec![1; 300 << 10]);
    let (exchange, listener, slot) = (head.id(), 1, 0);
    test.send(Command::StreamBody { exchange, listener, slot });
    assert_eq!(test.chunks(), (256 << 10, None));
    test.send(Command::BodyConsumed { exchange, bytes: 20 << 10 });
    assert_eq!(test.chunks(), (44 << 10, Some(StreamEnd::Done)));
    test.send(Command::BodyConsumed { exchange, bytes: 20 << 10 });
    assert_eq!((test.chunks(), test.rings.heads.len()), ((0, None), 0));
}

#[test]
fn an_application_may_respond_before_the_body() {
    let mut test = Test::new();
    for is_streamed in [false, true] {
        let mut head = test.post(RequestForm::HeadFirst, &vec![1; 300 << 10]);
        if is_streamed {
            test.send(Command::StreamBody { exchange: head.id(), listener: 1, slot: 0 });
        }
        head.begin_response(413);
        test.send(Command::Respond(head));
        let len = if is_streamed { 256 << 10 } else { 0 };
        assert_eq!(test.chunks(), (len, is_streamed.then_some(StreamEnd::Done)));
        assert!(matches!(test.sent(), Some(Up::Response { .. })));
        assert_eq!((test.rings.open(), test.rings.heads.len()), (0, 0));
    }
}

/// Returns a worker's end with a WebSocket for which messages wait in the worker, and the id of the
/// WebSocket.
fn with_unsent_messages() -> (Test, WebSocketId) {
    let mut test = Test::new();
    let mut exchange = test.ask(true);
    let socket = exchange.id();
    exchange.begin_response(101);
    test.send(Command::Respond(exchange));
    for _ in 0..1000 {
        test.send_message(socket);
    }
    assert!(test.rings.outbox.waiting(Lane::Messages) > 0);
    (test, socket)
}

#[test]
fn records_that_waited_are_sent_although_further_records_arrive_without_end() {
    let (mut test, socket) = with_unsent_messages();
    let mut sent = 0;
    for _ in 0..2000 {
        test.tell(Down::Message { socket: 7, kind: MessageKind::Binary, content: b"x" });
        assert!(test.next().is_some(), "the worker is never without a record");
        test.send_message(socket);
        while test.sent().is_some() {
            sent += 1;
        }
    }
    assert!(sent > 2000 && test.rings.outbox.waiting(Lane::Messages) < 1000, "{sent}");
}

#[test]
fn the_front_end_is_woken_for_records_that_had_to_wait() {
    let (mut test, _) = with_unsent_messages();
    test.front.own_sleep.announce(Sleep::Polling);
    assert!(test.next().is_none());
    assert!(!test.rings.front_end_sleep.is_asleep());
    while test.sent().is_some() {}
    test.front.own_sleep.announce(Sleep::Polling);
    assert!(test.next().is_none());
    assert!(test.sent().is_some(), "the rest");
    assert!(!test.rings.front_end_sleep.is_asleep());
}

#[test]
fn a_worker_is_not_done_while_responses_wait() {
    let mut test = Test::new();
    let exchanges: Vec<_> = (0..700)
        .map(|_| {
            let mut exchange = test.ask(false);
            exchange.begin_response(200);
            exchange
        })
        .collect();
    for exchange in exchanges {
        test.send(Command::Respond(exchange));
    }
    assert_eq!(test.rings.open(), 1);
    while test.sent().is_some() {}
    assert!(test.next().is_none());
    assert_eq!(test.rings.open(), 0);
}
