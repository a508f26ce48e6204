//! Tests of the control channel over a real pair of sockets.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::time::{Duration, Instant};

use rookery_worker_protocol::{
    ControlChannel, ErrorReport, Inherited, MAX_ANNOUNCEMENT_SIZE, MAX_ERROR_REPORT_SIZE, Message,
    Received,
};

use crate::support::start;

/// Waits for the next packet.
fn wait(control: &ControlChannel) -> Received {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match control.receive() {
            Received::Nothing if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            came => return came,
        }
    }
}

fn send(end: &OwnedFd, bytes: &[u8]) {
    // SAFETY: the pointer and the length are those of `bytes`.
    let sent = unsafe { libc::send(end.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
    assert_eq!(usize::try_from(sent), Ok(bytes.len()));
}

#[test]
fn messages_pass_in_both_directions_and_malformed_packets_are_detected() {
    let (ours, theirs) = ControlChannel::pair().unwrap();
    assert_eq!(ours.receive(), Received::Nothing);
    for wrong in [&b"Rk"[..], &[0; 16], &[0; 17], &[b'x'; 10_000]] {
        send(&theirs, wrong);
        assert_eq!(ours.receive(), Received::Malformed);
    }
    let theirs = ControlChannel::attach(theirs).unwrap();
    theirs.send(Message::Ready { sees_heads: true, is_sticky: false }).unwrap();
    theirs.send(Message::Leaving).unwrap();
    ours.send(Message::Ping(3)).unwrap();
    assert_eq!(
        ours.receive(),
        Received::Message(Message::Ready { sees_heads: true, is_sticky: false })
    );
    assert_eq!(ours.receive(), Received::Message(Message::Leaving));
    assert_eq!(ours.receive(), Received::Nothing);
    assert_eq!(theirs.receive(), Received::Message(Message::Ping(3)));
    theirs.send(Message::Pong(3)).unwrap();
    drop(theirs);
    // A message that was sent before the end is received.
    assert_eq!(ours.receive(), Received::Message(Message::Pong(3)));
    assert_eq!(ours.receive(), Received::End);
    assert_eq!(ours.send(Message::Stop).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn an_announcement_carries_any_bytes_up_to_a_limit() {
    let (ours, theirs) = ControlChannel::pair().unwrap();
    let theirs = ControlChannel::attach(theirs).unwrap();
    for (number, len) in
        [0, 1, 4, 5, 12, 13, 14, 4096, MAX_ANNOUNCEMENT_SIZE].into_iter().enumerate()
    {
        let number = u64::MAX - number as u64;
        let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
        theirs.announce(number, &bytes).unwrap();
        theirs.send(Message::Leaving).unwrap();
        assert_eq!(ours.receive(), Received::Announcement(number, bytes), "{len}");
        assert_eq!(ours.receive(), Received::Message(Message::Leaving));
        assert_eq!(ours.receive(), Received::Nothing);
    }
    let refused = theirs.announce(1, &vec![0; MAX_ANNOUNCEMENT_SIZE + 1]).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(ours.receive(), Received::Nothing);
    let refused = (0..10_000)
        .find_map(|number| theirs.announce(number, &vec![0; MAX_ANNOUNCEMENT_SIZE]).err());
    assert_eq!(refused.unwrap().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn an_announcement_of_a_wrong_length_is_malformed_and_later_packets_arrive() {
    let (ours, theirs) = ControlChannel::pair().unwrap();
    send(&theirs, &[b"Rk\x01S", &vec![0; 8 + MAX_ANNOUNCEMENT_SIZE + 1][..]].concat());
    // Also packets that are too short to contain the number.
    send(&theirs, b"Rk\x01S");
    send(&theirs, b"Rk\x01S\0\0\0\0\0\0\0");
    send(&theirs, &Message::Leaving.encode());
    for _ in 0..3 {
        assert_eq!(ours.receive(), Received::Malformed);
    }
    assert_eq!(ours.receive(), Received::Message(Message::Leaving));
}

#[test]
fn an_error_report_arrives_and_one_that_is_too_long_is_malformed() {
    let (ours, theirs) = ControlChannel::pair().unwrap();
    let long = [&b"Rk\x01E"[..], &vec![b'x'; MAX_ERROR_REPORT_SIZE + 1]].concat();
    send(&theirs, &long);
    send(&theirs, b"Rk\x01E");
    send(&theirs, &long[..4 + MAX_ERROR_REPORT_SIZE]);
    let theirs = ControlChannel::attach(theirs).unwrap();
    let report =
        ErrorReport { message: "no".into(), trace: "f()".into(), ..ErrorReport::default() };
    theirs.report_error(&report).unwrap();
    theirs.send(Message::Leaving).unwrap();
    assert_eq!(ours.receive(), Received::Malformed);
    assert_eq!(ours.receive(), Received::Error(ErrorReport::default()));
    let Received::Error(longest) = ours.receive() else { panic!("no report") };
    assert_eq!(longest.request_id.len(), MAX_ERROR_REPORT_SIZE);
    assert_eq!(ours.receive(), Received::Error(report));
    assert_eq!(ours.receive(), Received::Message(Message::Leaving));
    let refused = (0..100_000).find_map(|_| theirs.report_error(&ErrorReport::default()).err());
    assert_eq!(refused.unwrap().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn an_end_that_leaves_packets_unread_is_detected() {
    let (ours, theirs) = ControlChannel::pair().unwrap();
    ours.send(Message::Ping(1)).unwrap();
    drop(theirs);
    assert_eq!(ours.receive(), Received::End);
}

#[test]
fn sending_does_not_wait_for_a_reader() {
    let (ours, _theirs) = ControlChannel::pair().unwrap();
    let refused = (0..1_000_000).find_map(|number| ours.send(Message::Ping(number)).err());
    assert_eq!(refused.unwrap().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn descriptors_in_packets_are_not_received() {
    let (ours, theirs) = ControlChannel::pair().unwrap();
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let passed = io::stderr();
    let bytes = Message::Ping(1).encode();
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut room = [0_u64; 8];
    // SAFETY: a zeroed `msghdr` is a valid empty message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = room.as_mut_ptr().cast();
    // SAFETY: the macro only computes a number.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(4) } as usize;
    // SAFETY: the control buffer has capacity for one header and one descriptor.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(header).cast::<libc::c_int>().write_unaligned(passed.as_raw_fd());
    }
    // Other tests open and close a few descriptors meanwhile, but a leak of many would be visible.
    let before = count();
    for _ in 0..100 {
        // SAFETY: `message` is completely initialized and its pointers are valid.
        let sent = unsafe { libc::sendmsg(theirs.as_raw_fd(), &raw const message, 0) };
        assert_eq!(usize::try_from(sent), Ok(bytes.len()), "{}", io::Error::last_os_error());
        assert_eq!(ours.receive(), Received::Message(Message::Ping(1)));
    }
    assert!(count() < before + 50);
}

#[test]
fn other_descriptors_are_rejected_as_control_channels() {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("listener")).unwrap();
    // SAFETY: `socket` takes only numbers.
    let packets =
        unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
    // SAFETY: the descriptor has just been opened and belongs to nothing else.
    let packets = unsafe { OwnedFd::from_raw_fd(packets) };
    for (what, fd) in [
        ("a file", OwnedFd::from(tempfile::tempfile().unwrap())),
        ("a stream", std::os::unix::net::UnixStream::pair().unwrap().0.into()),
        ("datagrams", UnixDatagram::pair().unwrap().0.into()),
        ("a listener", listener.into()),
        ("an end of nothing", packets),
    ] {
        let refused = ControlChannel::attach(fd).expect_err(what);
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{what}");
    }
}

#[test]
fn the_channel_ends_with_its_process() {
    let mut worker = start("control_channel::responds_to_pings", "");
    worker.control.send(Message::Ping(5)).unwrap();
    assert_eq!(wait(&worker.control), Received::Message(Message::Pong(5)));
    worker.process.kill().unwrap();
    assert_eq!(wait(&worker.control), Received::End);
    // In the other direction, the worker exits because its supervisor is gone.
    let mut worker = start("control_channel::responds_to_pings", "");
    let (nobody, _) = ControlChannel::pair().unwrap();
    drop(std::mem::replace(&mut worker.control, nobody));
    assert!(worker.process.wait().unwrap().success());
}

/// Runs in the worker process: responds to pings until the supervisor closes the channel.
#[test]
#[ignore = "started by the test above"]
fn responds_to_pings() {
    // SAFETY: no other thread uses the environment, and the descriptors belong to nothing else.
    let control = unsafe { Inherited::take() }.unwrap().unwrap().control;
    loop {
        match wait(&control) {
            Received::Message(Message::Ping(number)) => {
                control.send(Message::Pong(number)).unwrap();
            }
            Received::End => return,
            other => panic!("{other:?}"),
        }
    }
}
