//! Whether the engine is still there: an engine that was lost once is not waited for again and again.

use std::cell::RefCell;
use std::time::Duration;

use bollard::Docker;

use crate::backend::BackendError;

/// How long an engine that was lost may take to say that it is back.
const BACK: Duration = Duration::from_secs(1);

/// What was last known of the engine.
#[derive(Default)]
pub struct Health(RefCell<Option<BackendError>>);

impl Health {
    /// Notes an error, if it is one of the engine's absence, and hands it back.
    pub fn note(&self, error: BackendError) -> BackendError {
        let absence = [
            "engine-timeout",
            "engine-gone",
            "engine-refused",
            "engine-missing",
        ];
        if absence.contains(&error.code) {
            self.0.replace(Some(error.clone()));
        }
        error
    }

    /// Asks an engine that was lost whether it is back, shortly. One that was not lost is not asked.
    pub async fn check(&self, docker: &Docker) -> Result<(), BackendError> {
        let Some(error) = self.0.borrow().clone() else {
            return Ok(());
        };
        match tokio::time::timeout(BACK, docker.ping()).await {
            Ok(Ok(_)) => {
                self.0.replace(None);
                Ok(())
            }
            _ => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_an_absence_is_remembered() {
        let nowhere = Docker::connect_with_http("127.0.0.1:1", 1, bollard::API_DEFAULT_VERSION);
        let docker = nowhere.expect("a client");
        let health = Health::default();
        health.note(BackendError::new("image-missing", "no"));
        assert!(health.check(&docker).await.is_ok());
        health.note(BackendError::new("engine-timeout", "late"));
        let error = health.check(&docker).await.expect_err("still lost");
        assert_eq!(
            (error.code, error.text.as_str()),
            ("engine-timeout", "late")
        );
    }
}
