//! What a crowd of connections has freed goes back to the system: in a process of its own, whose resident set is looked at.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rookery_server::{Config, Server, Site};

const CROWD: usize = 1500;

/// KiB of a line of /proc/self/status.
fn status(name: &str) -> usize {
    let all = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = all.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_crowd_that_is_idle_gives_its_memory_back() {
    let server = Server::answering(Config::default(), |exchange| exchange.begin_reply(200));
    let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), Site::default()).unwrap();
    let address = listener.local_addr().unwrap();
    let ask = || {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert!(socket.read(&mut [0; 1000]).unwrap() > 0);
        socket
    };
    let mut sockets: Vec<TcpStream> = (0..CROWD).map(|_| ask()).collect();
    let most = status("VmHWM");
    let until = Instant::now() + Duration::from_secs(60);
    while most - status("VmRSS").min(most) < CROWD * 6 {
        assert!(Instant::now() < until, "at most {most} KiB, now {} KiB", status("VmRSS"));
        std::thread::sleep(Duration::from_millis(50));
    }
    // All of them go on.
    for socket in &mut sockets {
        socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert!(socket.read(&mut [0; 1000]).unwrap() > 0);
    }
}
