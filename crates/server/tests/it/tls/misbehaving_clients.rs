//! Clients that violate the TLS protocol, are slow, or do not complete the handshake.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rookery_exchange::Share;
use rookery_server::{Config, Limits, ListenerConfig, Rejection, Server};
use rookery_test_support::client::tls_session;
use rookery_test_support::tls::client_config;
use rookery_test_support::tls_file;

use crate::support::tls::{app, settings, site};
use crate::support::{Client, TEST_TIMEOUT, hello, wait_until};

/// Returns the first message of a client.
fn client_hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    tls_session(&Arc::new(client_config(None)), "localhost").write_tls(&mut bytes).unwrap();
    bytes
}

/// Returns the level and the description of the alert with which the server closes the connection,
/// or `None` if it closes without an alert.
fn alert(client: &mut Client) -> Option<[u8; 2]> {
    while client.fill() {}
    let read = std::mem::take(&mut client.read);
    let at = read.len().checked_sub(7)?;
    assert_eq!(read[at..at + 5], [21, 3, 3, 0, 2], "{read:?}");
    Some([read[at + 5], read[at + 6]])
}

#[test]
fn a_handshake_has_a_time() {
    let limits = Limits { tls_handshake_timeout: Duration::from_secs(10), ..Limits::default() };
    let app = app(limits, hello);
    let hello = client_hello();
    // The clients send nothing, half of the message, and single bytes. The timeout is for the whole
    // handshake.
    let mut clients = [app.connect(), app.connect(), app.connect()];
    clients[1].send(&hello[..hello.len() / 2]);
    wait_until("all are there", || app.listener().connections() == 3);
    for byte in &hello[..6] {
        assert_eq!(app.listener().connections(), 3, "sooner than that");
        clients[2].send([*byte]);
        app.advance(Duration::from_secs(1));
    }
    app.advance(Duration::from_secs(10));
    for client in &mut clients {
        assert!(client.wait_for_close());
    }
    // After the handshake the timeout for a head applies, and then the idle timeout.
    let mut client = app.secure();
    app.advance(2 * limits.tls_handshake_timeout);
    assert_eq!(client.get("/").status, 200);
    wait_until("all have gone", || app.listener().connections() == 1);
}

#[test]
fn a_handshake_and_a_request_in_single_bytes() {
    let app = app(Limits::default(), hello);
    let mut socket = TcpStream::connect(app.address).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut tls = tls_session(&Arc::new(client_config(None)), "localhost");
    let mut asked = false;
    let mut answer = Vec::new();
    while !answer.ends_with(b"Hello, World!") {
        if !tls.is_handshaking() && !std::mem::replace(&mut asked, true) {
            tls.writer().write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        }
        let mut out = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut out).unwrap();
        }
        for byte in out {
            socket.write_all(&[byte]).unwrap();
        }
        tls.read_tls(&mut socket).unwrap();
        let state = tls.process_new_packets().unwrap();
        let mut opened = vec![0; state.plaintext_bytes_to_read()];
        tls.reader().read_exact(&mut opened).unwrap();
        answer.extend_from_slice(&opened);
    }
}

#[test]
fn a_record_that_cannot_be_opened_ends_the_connection() {
    let app = app(Limits::default(), hello);
    for request_first in [false, true] {
        let mut client = app.secure();
        if request_first {
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc");
        } else {
            client.get("/");
        }
        client.socket.write_all(&[23, 3, 3, 0, 32]).unwrap();
        client.socket.write_all(&[7; 32]).unwrap();
        let mut tls = client.tls.take().unwrap();
        let failed = loop {
            match tls.read_tls(&mut client.socket) {
                Ok(0) => panic!("no alert"),
                Ok(_) => {}
                Err(error) => panic!("{error}"),
            }
            if let Err(error) = tls.process_new_packets() {
                break error;
            }
        };
        assert_eq!(failed, rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac));
        assert!(!client.fill());
    }
    assert_eq!(app.secure().get("/").status, 200);
}

#[test]
fn records_that_are_none_are_answered_with_an_alert() {
    const FATAL: u8 = 2;
    let app = app(Limits::default(), hello);
    for (sent, description, what) in [
        (vec![23, 3, 3, 0, 1, 0], Some(10), "application data before the handshake"),
        (vec![22, 3, 1, 0, 4, 20, 0, 0, 0], Some(10), "Finished first"),
        (vec![99, 3, 3, 0, 1, 0], Some(50), "no type of record"),
        (vec![22, 3, 3, 0xFF, 0xFF], Some(50), "a record larger than there are"),
        (
            vec![22, 3, 1, 0, 5, 1, 0xFF, 0xFF, 0xFF, 0],
            None,
            "a message of 16 MB, of which rustls says nothing",
        ),
    ] {
        let mut client = app.connect();
        // The server may reject the bytes before all of them were sent.
        let _ = client.socket.write_all(&sent);
        let found = alert(&mut client);
        assert_eq!(found, description.map(|description| [FATAL, description]), "{what}");
    }
    // An alert of the client also ends the connection.
    let mut client = app.connect();
    client.send([21, 3, 3, 0, 2, FATAL, 40]);
    assert!(client.wait_for_close());
    assert!(app.server.reports().count(Rejection::Handshake) >= 5);
    assert_eq!(app.secure().get("/").status, 200);
}

/// Returns the first message of a client with an older version of TLS, as sent by OpenSSL 1.0. The
/// minor version of TLS 1.0 is 1, that of TLS 1.1 is 2.
fn old_hello(minor: u8) -> Vec<u8> {
    let suites = [0xC0, 0x13, 0xC0, 0x14, 0x00, 0x2F, 0x00, 0x35];
    let mut body = vec![3, minor];
    body.extend([7; 32]);
    body.push(0);
    body.extend([0, suites.len() as u8]);
    body.extend(suites);
    body.extend([1, 0]);
    let mut message = vec![1, 0, 0, body.len() as u8];
    message.extend(body);
    let mut record = vec![22, 3, 1, 0, message.len() as u8];
    record.extend(message);
    record
}

#[test]
fn versions_that_have_been_given_up_are_refused() {
    let app = app(Limits::default(), hello);
    for minor in [0, 1, 2] {
        let mut client = app.connect();
        client.send(old_hello(minor));
        // The alert is `handshake_failure`, because rustls first misses the signature algorithms,
        // which were introduced by TLS 1.2.
        assert_eq!(alert(&mut client), Some([2, 40]), "3.{minor}");
    }
}

#[test]
fn who_goes_in_the_middle_of_the_handshake_is_forgotten() {
    let app = app(Limits::default(), hello);
    let hello = client_hello();
    for end in [0, 1, 5, hello.len() / 2, hello.len()] {
        let mut client = app.connect();
        client.send(&hello[..end]);
        drop(client);
    }
    wait_until("all have gone", || app.listener().connections() == 0);
    // A client that closes the connection has not violated the protocol.
    assert_eq!(app.server.reports().count(Rejection::Handshake), 0);
}

/// Runs `openssl s_client` against the server. `input` is sent after the handshake.
fn s_client(address: std::net::SocketAddr, arguments: &[&str], input: &[u8]) -> Option<String> {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &address.to_string(), "-CAfile"]).arg(tls_file("ca.pem"));
    command.args(["-servername", "localhost", "-ign_eof"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut client) = command.spawn() else {
        println!("NOT TESTED: there is no openssl");
        return None;
    };
    // A program whose handshake failed does not read its input.
    let _ = client.stdin.take().unwrap().write_all(input);
    let output = client.wait_with_output().unwrap();
    Some(format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}

#[test]
fn openssl_is_served() {
    let app = app(Limits::default(), hello);
    let close = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for arguments in
        [&["-tls1_3"][..], &["-tls1_2"], &["-max_send_frag", "512"], &["-alpn", "http/1.1"]]
    {
        let Some(said) = s_client(
            app.address,
            &[arguments, &["-quiet", "-verify_return_error"]].concat(),
            close,
        ) else {
            return;
        };
        assert!(said.contains("Hello, World!"), "{arguments:?}: {said}");
    }
    let said = s_client(app.address, &["-brief"], close).unwrap();
    assert!(said.contains("Verification: OK"), "{said}");
    for (arguments, expected) in [
        (&["-alpn", "foo"][..], "no application protocol"),
        (&["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], "handshake failure"),
        (&["-tls1_2", "-cipher", "AES128-SHA"], "handshake failure"),
    ] {
        let said = s_client(app.address, arguments, close).unwrap();
        assert!(said.contains(expected) && !said.contains("Hello"), "{arguments:?}: {said}");
    }
}

#[test]
fn renegotiation_is_refused() {
    let app = app(Limits::default(), hello);
    // `s_client` requests a renegotiation when it reads a line with only an R.
    let mut command = Command::new("openssl");
    command
        .args(["s_client", "-connect", &app.address.to_string(), "-tls1_2", "-CAfile"])
        .arg(tls_file("ca.pem"));
    let heard = tempfile::NamedTempFile::new().unwrap();
    let end = || Stdio::from(heard.as_file().try_clone().unwrap());
    command.stdin(Stdio::piped()).stdout(end()).stderr(end());
    let Ok(mut client) = command.spawn() else {
        return println!("NOT TESTED: there is no openssl");
    };
    let mut stdin = client.stdin.take().unwrap();
    let said = || String::from_utf8_lossy(&std::fs::read(heard.path()).unwrap()).into_owned();
    wait_until("its handshake", || said().contains("Verify return code"));
    // `s_client` takes the line for a command only if it reads the line separately.
    stdin.write_all(b"R\n").unwrap();
    wait_until("it is refused", || {
        said().contains("RENEGOTIATING") && said().contains("no renegotiation")
    });
    drop(stdin);
    client.wait().unwrap();
    assert_eq!(app.secure().get("/").status, 200);
}

#[test]
fn curl_is_served() {
    let app = app(Limits::default(), hello);
    let url = format!("https://localhost:{}/", app.address.port());
    let mut command = Command::new("curl");
    let resolve = format!("localhost:{}:127.0.0.1", app.address.port());
    command.args(["-sS", "--http1.1", "--resolve", &resolve, "--cacert"]).arg(tls_file("ca.pem"));
    command.args(["-w", " %{http_version} %{ssl_verify_result}", &url]);
    let Ok(output) = command.output() else { return println!("NOT TESTED: there is no curl") };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Hello, World! 1.1 0", "{output:?}");
    // The option also makes curl offer this version in TLS.
    let output = command.arg("--http1.0").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Hello, World! 1 0", "{output:?}");
}

#[test]
fn handshakes_take_seats_and_give_them_up() {
    let limits = Limits { max_connections: 4, ..Limits::default() };
    let app = app(limits, hello);
    let hello = client_hello();
    let mut stuck: Vec<Client> = (0..4)
        .map(|_| {
            let mut client = app.connect();
            client.send(&hello[..hello.len() / 2]);
            client
        })
        .collect();
    wait_until("all are there", || app.listener().connections() == 4);
    // A handshake without progress for more than a tick makes its connection the slowest one.
    app.advance(Duration::from_secs(3));
    let mut client = app.secure();
    assert_eq!(client.get("/").status, 200);
    assert!(stuck[0].wait_for_close(), "the oldest has gone");
}

#[test]
fn a_crowd_is_taken_in_and_who_does_not_go_on_keeps_nobody_out() {
    let limits = Limits { tls_handshake_timeout: Duration::from_secs(120), ..Limits::default() };
    let app = app(limits, hello);
    let mut open = app.secure();
    let hello = client_hello();
    // The clients stop before, within, or after their first message.
    let lens = [0, hello.len() / 2, hello.len()].into_iter().cycle().take(30);
    let stuck: Vec<Client> = lens
        .map(|len| {
            let mut client = app.connect();
            client.send(&hello[..len]);
            client
        })
        .collect();
    wait_until("all are in", || app.listener().connections() == 31);
    let address = app.address;
    let newcomer = || {
        std::thread::spawn(move || {
            let mut client =
                Client::connect_tls(address, &Arc::new(client_config(None)), "localhost")
                    .expect("a handshake");
            client.get("/").status
        })
    };
    let crowd: Vec<_> = (0..40).map(|_| newcomer()).collect();
    for one in crowd {
        assert_eq!(one.join().unwrap(), 200);
    }
    assert_eq!(open.get("/").status, 200);
    assert!(app.listener().connections() >= 31, "none has been closed for them");
    drop((stuck, open));
    wait_until("all have gone", || app.listener().connections() == 0);
    assert_eq!(app.secure().get("/").status, 200);
}

#[test]
fn who_finds_no_seat_is_told_by_an_alert() {
    let limits = Limits { max_connections_per_ip: 1, ..Limits::default() };
    let app = app(limits, hello);
    let _seated = app.secure();
    let refused = Client::connect_tls(app.address, &Arc::new(client_config(None)), "localhost")
        .expect_err("an alert");
    assert!(refused.to_string().contains("InternalError"), "{refused}");
}

#[test]
fn many_handshakes_that_never_end_hold_what_they_are_charged() {
    const COUNT: usize = 400;
    let limits =
        Limits { max_client_memory: Some(100 << 20), max_connections: 900, ..Limits::default() };
    let server = Server::with_closure_and_echo(Config { limits, ..Config::default() }, hello);
    let listener =
        server.listen_tcp("127.0.0.1:0".parse().unwrap(), site(settings(&["localhost"]))).unwrap();
    let address = listener.local_addr().unwrap();
    let hello = client_hello();
    let stuck: Vec<TcpStream> = (0..COUNT)
        .map(|_| {
            let mut socket = TcpStream::connect(address).unwrap();
            // The server may already have closed the connection of a rejected client.
            let _ = socket.write_all(&hello[..hello.len() - 1]);
            socket
        })
        .collect();
    // The share is a fifth of 100 MiB, and each handshake that has begun takes 80 KiB. Connections
    // whose handshakes have not begun take a little of the room.
    let room = (20 << 20) / (80 << 10);
    let expected = room * 9 / 10..=room;
    wait_until("as many as there is room for", || expected.contains(&listener.connections()));
    assert!(server.budget().used(Share::Connections) <= 20 << 20);
    // The newest connections without progress are evicted for another one, which is served.
    server.advance_clock(Duration::from_secs(3));
    let mut client = Client::connect_tls(address, &Arc::new(client_config(None)), "localhost")
        .expect("a handshake");
    assert_eq!(client.get("/").status, 200);
    drop((stuck, client));
    wait_until("all have gone", || listener.connections() == 0);
    assert_eq!(server.budget().used(Share::Connections), 0);
}

#[test]
fn a_plain_listener_beside_one_with_tls() {
    let server = Server::with_closure_and_echo(Config::default(), hello);
    let any = || "127.0.0.1:0".parse().unwrap();
    let secure = server.listen_tcp(any(), site(settings(&["localhost"]))).unwrap();
    let plain = server.listen_tcp(any(), ListenerConfig::default()).unwrap();
    let mut one = Client::connect_tls(
        secure.local_addr().unwrap(),
        &Arc::new(client_config(None)),
        "localhost",
    )
    .unwrap();
    let mut other = Client::connect(plain.local_addr().unwrap());
    for client in [&mut one, &mut other] {
        assert_eq!(client.get("/").body, b"Hello, World!");
    }
}
