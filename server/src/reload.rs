//! What can be read anew while the server runs.

use std::sync::Arc;

use crate::pipeline::ModelReloader;

/// Reads everything anew that can be.
#[derive(Clone)]
pub struct Reloader {
    /// The model.
    pub model: Arc<ModelReloader>,
}

impl Reloader {
    /// Reads it anew, and comes back when that is done. What is of no use leaves what was before in place,
    /// and says so in the log.
    pub async fn reload(&self) {
        let model = Arc::clone(&self.model);
        match tokio::task::spawn_blocking(move || model.reload()).await {
            Ok(Ok(model)) => tracing::info!(model = model.name, "the model was read anew"),
            Ok(Err(error)) => tracing::error!("{error}; going on with the model as it was"),
            Err(error) => {
                tracing::error!(%error, "reading the model anew failed; going on with it");
            }
        }
    }
}
