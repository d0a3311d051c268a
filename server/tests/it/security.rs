//! Who may connect, who may call, and how much: encryption, tokens, and limits of connections and rates.

mod connections;
mod documents;
mod pki;
mod rates;
mod tls;
mod tokens;
