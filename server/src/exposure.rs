//! What a server is open to that its operator may not have meant: said once, at the start.

use std::net::SocketAddr;

use crate::config::NetConfig;

/// One line for each thing that may be open by mistake, with what to do about it.
#[must_use]
pub fn of(net: &NetConfig, as_root: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if as_root {
        lines.push(
            "running as root: a weakness of anything in this process would be one of the whole \
             machine; run it as a user of its own"
                .into(),
        );
    }
    lines.extend(cameras(net));
    lines.extend(operators(net.admin_addr));
    lines
}

fn cameras(net: &NetConfig) -> Option<String> {
    let addr = net.addr;
    if addr.ip().is_loopback() {
        return None;
    }
    let tls = net.security.tls.as_ref();
    let known =
        net.security.token_file.is_some() || tls.is_some_and(|files| files.client_ca.is_some());
    let (what, how) = match (tls.is_some(), known) {
        (true, true) => return None,
        (true, false) => ("anyone who reaches it may call", "set token-file or tls-client-ca"),
        (false, true) => (
            "tokens and pictures cross the network unencrypted",
            "set tls-cert and tls-key, or keep it behind a proxy that encrypts",
        ),
        (false, false) => (
            "anyone who reaches it may call, and pictures cross the network unencrypted",
            "set tls-cert and tls-key, and token-file or tls-client-ca",
        ),
    };
    Some(format!("addr: {addr}: {what}; {how}, or listen on 127.0.0.1"))
}

fn operators(addr: SocketAddr) -> Option<String> {
    (!addr.ip().is_loopback()).then(|| {
        format!(
            "admin_addr: {addr}: anyone who reaches it may read metrics; let only those reach it that \
             collect them, or listen on 127.0.0.1"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn lines(settings: Settings, as_root: bool) -> Vec<String> {
        of(&settings.check().expect("valid").net, as_root)
    }

    fn on(addr: &str) -> Settings {
        Settings { addr: Some(addr.parse().expect("an address")), ..Settings::default() }
    }

    fn encrypted(settings: Settings) -> Settings {
        Settings { tls_cert: Some("c".into()), tls_key: Some("k".into()), ..settings }
    }

    #[test]
    fn what_only_this_machine_reaches_is_nobody_else_s() {
        for addr in ["127.0.0.1:1", "[::1]:1", "127.8.0.1:1"] {
            assert_eq!(lines(on(addr), false), [""; 0]);
        }
        assert!(lines(on("127.0.0.1:1"), true)[0].contains("root"));
    }

    #[test]
    fn what_is_missing_on_an_open_address_is_said() {
        let tokens = |s: Settings| Settings { token_file: Some("t".into()), ..s };
        let mutual = |s: Settings| Settings { tls_client_ca: Some("a".into()), ..encrypted(s) };
        for (settings, said) in [
            (on("0.0.0.0:1"), Some("set tls-cert and tls-key, and token-file or")),
            (on("[::]:1"), Some("set tls-cert and tls-key, and token-file or")),
            (encrypted(on("0.0.0.0:1")), Some("anyone who reaches it may call; set token-file")),
            (tokens(on("0.0.0.0:1")), Some("tokens and pictures cross the network")),
            (tokens(encrypted(on("0.0.0.0:1"))), None),
            (mutual(on("0.0.0.0:1")), None),
        ] {
            let lines = lines(settings, false);
            assert_eq!(lines.len(), said.map_or(0, |_| 1), "{lines:?}");
            assert!(lines.iter().zip(said).all(|(line, said)| line.contains(said)), "{lines:?}");
            assert!(lines.iter().all(|line| !line.contains('\n')));
        }
    }

    #[test]
    fn an_open_operators_port_is_said() {
        let settings = Settings {
            admin_addr: Some("10.0.0.1:9464".parse().expect("an address")),
            ..on("127.0.0.1:1")
        };
        assert!(lines(settings, false)[0].starts_with("admin_addr: 10.0.0.1:9464: "));
    }
}
