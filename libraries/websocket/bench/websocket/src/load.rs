//! The load generator: plain sockets, one thread, epoll, and one message in flight on each
//! connection.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;

use rookery_websocket::protocol::deflate::{DeflateConfig, Deflater, Fin, Inflater, Takeover};
use rookery_websocket::protocol::{Header, MaskKey, OpCode, Role, encode_frame, encode_message};

/// The message of each connection, and the expected echo.
pub struct Message {
    pub frame: Vec<u8>,
    pub payload: Vec<u8>,
    pub deflates: bool,
}

const MASK: Option<MaskKey> = Some(MaskKey([0x11, 0x22, 0x33, 0x44]));

impl Message {
    pub fn plain(len: usize) -> Message {
        let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let mut frame = Vec::new();
        encode_frame(&mut frame, OpCode::Binary, true, MASK, &payload);
        Message { frame, payload, deflates: false }
    }

    /// Makes a message of JSON text, compressed by itself.
    pub fn json(len: usize) -> Message {
        let mut text = String::from("[");
        let mut seed = 12345_u32;
        while text.len() < len {
            seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12345);
            let (a, b) = (seed >> 16, seed >> 8 & 0xFF);
            text += &format!(
                "{{\"id\":{a},\"name\":\"sensor {b}\",\"value\":{}.{b},\"ok\":true}},",
                a % 977
            );
        }
        text.truncate(len);
        let config = DeflateConfig::default();
        let agreed = config.choose(b"permessage-deflate").expect("an offer");
        let mut deflater =
            Deflater::new(&agreed, Role::Client, &config).expect("a window of 15 bits");
        let mut frame = Vec::new();
        encode_message(
            &mut frame,
            OpCode::Text,
            Fin::Last,
            MASK,
            text.as_bytes(),
            Some(&mut deflater),
        );
        Message { frame, payload: text.into_bytes(), deflates: true }
    }

    fn check(&self, reply: &[u8]) -> io::Result<()> {
        let wrong = || io::Error::other("the reply is not what was sent");
        let (header, at) = Header::parse(reply).map_err(io::Error::other)?.map_err(|_| wrong())?;
        let mut inflated = Vec::new();
        let payload = if header.rsv1 {
            let mut inflater = Inflater::new(Takeover::None);
            inflater.push(&reply[at..], &mut inflated, 1 << 20).map_err(io::Error::other)?;
            inflater.finish(&mut inflated, 1 << 20).map_err(io::Error::other)?;
            &inflated[..]
        } else {
            &reply[at..]
        };
        if header.fin && header.rsv1 == self.deflates && payload == self.payload {
            Ok(())
        } else {
            Err(wrong())
        }
    }
}

/// A connection whose handshake is done.
pub fn open(port: u16, deflates: bool) -> io::Result<TcpStream> {
    let mut io = TcpStream::connect(("127.0.0.1", port))?;
    io.set_nodelay(true)?;
    let extension = if deflates {
        "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; \
         client_no_context_takeover\r\n"
    } else {
        ""
    };
    write!(
        io,
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{extension}\r\n"
    )?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        io.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    if !head.starts_with("http/1.1 101") || head.contains("permessage-deflate") != deflates {
        return Err(io::Error::other(format!("the server answered {head}")));
    }
    Ok(io)
}

struct Client {
    io: TcpStream,
    /// The number of bytes of the frame that were written.
    written: usize,
    reply: Vec<u8>,
}

/// The result of a load.
pub struct Done {
    pub messages: u64,
    pub bytes_received: u64,
}

pub struct Load<'m> {
    clients: Vec<Client>,
    message: &'m Message,
    epoll: i32,
}

impl<'m> Load<'m> {
    pub fn open(port: u16, connections: usize, message: &'m Message) -> io::Result<Load<'m>> {
        // SAFETY: a system call without pointers.
        let epoll = check(unsafe { libc::epoll_create1(0) })?;
        let mut clients = Vec::with_capacity(connections);
        for n in 0..connections {
            let io = open(port, message.deflates)?;
            io.set_nonblocking(true)?;
            let mut event = libc::epoll_event {
                events: (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET) as u32,
                u64: n as u64,
            };
            // SAFETY: `event` is valid for reading.
            check(unsafe {
                libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, io.as_raw_fd(), &raw mut event)
            })?;
            clients.push(Client {
                io,
                written: 0,
                reply: Vec::with_capacity(message.payload.len() + 64),
            });
        }
        Ok(Load { clients, message, epoll })
    }

    /// Sends until `messages` echoes have arrived. The first echo of each connection is compared,
    /// and of all others the length of the frame.
    pub fn run(&mut self, messages: u64) -> io::Result<Done> {
        let mut done = Done { messages: 0, bytes_received: 0 };
        let mut checked = vec![false; self.clients.len()];
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 1024];
        let mut buffer = vec![0; 256 << 10];
        for client in &mut self.clients {
            client.written = 0;
            client.write(self.message)?;
        }
        let mut started = self.clients.len() as u64;
        while done.messages < started {
            // SAFETY: `events` is valid for writing of its length.
            let n = unsafe {
                libc::epoll_wait(self.epoll, events.as_mut_ptr(), events.len() as i32, 10_000)
            };
            let n = match check(n) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if n == 0 {
                return Err(io::Error::other("no reply within ten seconds"));
            }
            for event in &events[..n as usize] {
                let index = event.u64 as usize;
                let client = &mut self.clients[index];
                if client.written < self.message.frame.len() {
                    client.write(self.message)?;
                }
                if event.events & libc::EPOLLIN as u32 == 0 {
                    continue;
                }
                loop {
                    let n = match client.io.read(&mut buffer) {
                        Ok(0) => return Err(io::Error::other("the server hung up")),
                        Ok(n) => n,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error),
                    };
                    done.bytes_received += n as u64;
                    client.reply.extend_from_slice(&buffer[..n]);
                    if client.is_complete()? {
                        if !checked[index] {
                            self.message.check(&client.reply)?;
                            checked[index] = true;
                        }
                        client.reply.clear();
                        done.messages += 1;
                        client.written = 0;
                        if started < messages {
                            started += 1;
                            client.write(self.message)?;
                        } else {
                            client.written = self.message.frame.len();
                        }
                    }
                    if n < buffer.len() {
                        break;
                    }
                }
            }
        }
        Ok(done)
    }
}

impl Client {
    fn write(&mut self, message: &Message) -> io::Result<()> {
        while self.written < message.frame.len() {
            match self.io.write(&message.frame[self.written..]) {
                Ok(n) => self.written += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn is_complete(&self) -> io::Result<bool> {
        match Header::parse(&self.reply).map_err(io::Error::other)? {
            Ok((header, at)) => Ok(self.reply.len() as u64 == at as u64 + header.len),
            Err(_) => Ok(false),
        }
    }
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
