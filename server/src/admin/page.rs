//! The live page: files that are part of this program, served as they are.

use axum::{Router, routing::get};

use super::Admin;

pub(super) fn routes() -> Router<Admin> {
    Router::new().route("/", get(async || "vedette-server\n"))
}
