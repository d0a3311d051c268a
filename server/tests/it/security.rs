//! Who may connect, who may call, and how much: encryption, tokens, and limits of connections and rates.

mod pki;
mod tls;
