//! The encoding of numbers, texts and addresses.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::Malformed;

pub(super) fn write_text(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
}

pub(super) fn write_address(address: Option<SocketAddr>, out: &mut Vec<u8>) {
    let Some(address) = address else { return out.push(0) };
    match address.ip() {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend_from_slice(&ip.octets());
        }
    }
    out.extend_from_slice(&address.port().to_le_bytes());
}

/// A reader of plain data, which fails where the data end too early.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    /// Returns all bytes that are left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(super) fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u32()? as usize;
        let (text, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(text)
    }

    pub(super) fn address(&mut self) -> Result<Option<SocketAddr>, Malformed> {
        let ip = match self.u8()? {
            0 => return Ok(None),
            4 => IpAddr::from(self.array::<4>()?),
            6 => IpAddr::from(Ipv6Addr::from(self.array::<16>()?)),
            _ => return Err(Malformed),
        };
        Ok(Some(SocketAddr::new(ip, self.u16()?)))
    }

    pub(super) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}
