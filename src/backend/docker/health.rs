//! Whether the engine is still there: an engine that was lost once is not waited for again and again.

use std::cell::RefCell;
use std::time::Duration;

use bollard::Docker;

use crate::backend::BackendError;

/// How long an engine that was lost may take to say that it is back.
const BACK: Duration = Duration::from_secs(1);

/// So many answers may be missing. An engine can say that it is well and hang in one phase: then every trial would wait for
/// that phase's deadline.
const PATIENCE: usize = 2;

/// What was last known of the engine.
#[derive(Default)]
pub struct Health {
    lost: RefCell<Option<BackendError>>,
    silent: RefCell<Vec<BackendError>>,
}

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
            self.lost.replace(Some(error.clone()));
        }
        if error.code == "engine-timeout" {
            self.silent.borrow_mut().push(error.clone());
        }
        error
    }

    /// Notes that a sandbox could not be removed: each further one would be left behind too.
    pub fn note_left(&self, error: BackendError) {
        if error.code == "engine-timeout" {
            let mut silent = self.silent.borrow_mut();
            silent.resize(PATIENCE, error.clone());
        }
        self.note(error);
    }

    /// Whether another sandbox may be asked for: the engine is there, and did not leave too many questions open.
    pub async fn may_start(&self, docker: &Docker) -> Result<(), BackendError> {
        // Others may be left without an answer at the same moment: they are counted while this is asked.
        self.check(docker).await?;
        let given_up = self.silent.borrow().get(PATIENCE - 1).cloned();
        given_up.map_or(Ok(()), Err)
    }

    /// Asks an engine that was lost whether it is back, shortly. One that was not lost is not asked.
    pub async fn check(&self, docker: &Docker) -> Result<(), BackendError> {
        let Some(error) = self.lost.borrow().clone() else {
            return Ok(());
        };
        match tokio::time::timeout(BACK, docker.ping()).await {
            Ok(Ok(_)) => {
                self.lost.replace(None);
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

    /// It answers when it is asked how it is, and nothing else.
    #[tokio::test]
    async fn an_engine_that_is_well_and_silent_is_given_up() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let docker = Docker::connect_with_http(&address, 5, bollard::API_DEFAULT_VERSION);
        let docker = docker.expect("a client");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut asked = [0; 4096];
                let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut asked).await;
                let well = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nOK";
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, well).await;
            }
        });
        let health = Health::default();
        health.note(BackendError::new("engine-timeout", "first"));
        assert!(health.may_start(&docker).await.is_ok(), "once is no rule");
        health.note(BackendError::new("engine-timeout", "second"));
        let error = health.may_start(&docker).await.expect_err("given up");
        assert_eq!(error.text, "second");
        assert!(health.check(&docker).await.is_ok(), "it may still clean up");
    }
}
