//! The question of a health check, asked by the program itself: containers hold no other that could.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
};

use crate::limits::PROBE_TIME;

/// An answer of `/readyz` is far below this, in bytes.
const MOST_ANSWER: u64 = 4096;

/// Asks a server's operators' port whether it takes cameras.
///
/// # Errors
/// When it does not, or does not answer in time; one line says why.
pub fn ready(admin: SocketAddr) -> Result<(), String> {
    let answer = ask(here(admin)).map_err(|error| format!("{admin} (admin_addr): {error}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.split(' ').nth(1) {
        Some("200") => Ok(()),
        Some("503") => Err(body.trim().to_owned()),
        _ => Err(format!("{admin} (admin_addr): it is not a vedette-server that answers there")),
    }
}

/// Where to reach what listens on this address: one that stands for all addresses is this machine's.
fn here(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

fn ask(addr: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&addr, PROBE_TIME)?;
    stream.set_read_timeout(Some(PROBE_TIME))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MOST_ANSWER).read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    /// What `ready` says of a server that answers with these words.
    fn told(answer: &'static str) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let addr = listener.local_addr().expect("an address");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accepts");
            let mut request = [0; 1024];
            let read = stream.read(&mut request).expect("reads");
            assert!(request[..read].starts_with(b"GET /readyz "));
            stream.write_all(answer.as_bytes()).expect("writes");
        });
        let told = ready(addr);
        server.join().expect("no panic");
        told
    }

    #[test]
    fn ready_is_what_answers_200() {
        assert_eq!(told("HTTP/1.1 200 OK\r\n\r\nready\n"), Ok(()));
        let stuck = told("HTTP/1.1 503 Service Unavailable\r\n\r\na worker is stuck\n");
        assert_eq!(stuck, Err("a worker is stuck".to_owned()));
        for other in ["HTTP/1.1 404 Not Found\r\n\r\n", "SSH-2.0-x\r\n", ""] {
            assert!(told(other).expect_err("not ready").contains("not a vedette-server"));
        }
    }

    #[test]
    fn nobody_there_is_not_ready() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let addr = listener.local_addr().expect("an address");
        drop(listener);
        assert!(ready(addr).expect_err("refused").contains(&addr.to_string()));
    }

    #[test]
    fn all_addresses_are_asked_on_this_machine() {
        for (listens, asked) in [
            ("0.0.0.0:9464", "127.0.0.1:9464"),
            ("[::]:1", "[::1]:1"),
            ("192.0.2.7:9464", "192.0.2.7:9464"),
        ] {
            let here = here(listens.parse().expect("an address"));
            assert_eq!(here.to_string(), asked);
        }
    }
}
