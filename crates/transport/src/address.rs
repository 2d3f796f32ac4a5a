//! Where a server can be reached.

use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::connection::HostId;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// One way to reach a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// An abstract Unix socket on this host; it leaves no file behind.
    Shm {
        /// The host that it is on.
        host: HostId,
        /// The socket's name.
        name: String,
    },
    /// A TCP port.
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Shm { host, name } => write!(f, "shm:{}/{name}", host.0),
            Address::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

impl FromStr for Address {
    type Err = Error;
    fn from_str(text: &str) -> Result<Address> {
        let bad = || {
            Error::new(
                ErrorKind::ConnectionFile,
                format!("'{text}' is no address: expected shm:HOST/NAME or tcp:IP:PORT"),
            )
        };
        if let Some(rest) = text.strip_prefix("shm:") {
            let (host, name) =
                rest.split_once('/').filter(|(h, n)| !h.is_empty() && !n.is_empty()).ok_or_else(bad)?;
            return Ok(Address::Shm { host: HostId(host.to_owned()), name: name.to_owned() });
        }
        let rest = text.strip_prefix("tcp:").ok_or_else(bad)?;
        rest.parse().map(Address::Tcp).map_err(|_| bad())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for text in ["shm:boot.1f/forebay-x", "tcp:127.0.0.1:80", "tcp:[::1]:9000"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "shm:x", "shm:/x", "tcp:localhost:1", "udp:1.2.3.4:5"] {
            assert_eq!(text.parse::<Address>().unwrap_err().kind, ErrorKind::ConnectionFile);
        }
    }
}
