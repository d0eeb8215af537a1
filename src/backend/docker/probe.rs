//! How the probe comes to the engine: as a file of ours that it sees, or in a volume that it is filled into.
//!
//! Whether an engine sees this machine's files is tried and not guessed: a socket may be forwarded, and an engine may be
//! nested in a container or stand in a machine of its own. The run's folder has a name that no other machine has, so an
//! engine that mounts it, and gives back what we wrote there, is on this one or shares its files.

use std::path::Path;

use bollard::Docker;
use bollard::models::{ContainerCreateBody, HostConfig, Mount, MountType, VolumeCreateRequest};
use bollard::query_parameters::{
    DownloadFromContainerOptionsBuilder, RemoveVolumeOptionsBuilder,
    UploadToContainerOptionsBuilder,
};
use futures_util::StreamExt;
use sha2::{Digest, Sha256};

use super::call::{Phase, call, explain, silent};
use super::container::{Container, accept};
use super::owner;
use super::spec::{Delivery, FOLDER, PROBE};
use crate::backend::BackendError;

/// No probe comes near this size; an answer that goes on is not ours.
const MOST: usize = 64 << 20;

/// Brings the probe to the engine. `run` names what is made for it, `image` is any image that the engine holds.
pub async fn deliver(
    docker: &Docker,
    image: &str,
    run: &str,
    word: &str,
    file: &Path,
) -> Result<Delivery, BackendError> {
    let bytes = read(file)?;
    let source = file.to_string_lossy().into_owned();
    if sees(docker, image, run, word, &source, &bytes).await? {
        return Ok(Delivery::Bind(source));
    }
    upload(docker, image, run, word, Face::Probe, &bytes).await
}

/// The probe's bytes.
pub fn read(file: &Path) -> Result<Vec<u8>, BackendError> {
    std::fs::read(file).map_err(|error| {
        let text = format!("read the probe {}: {error}", file.display());
        BackendError::new("harness-failed", text)
    })
}

/// What a copy of the probe is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Face {
    /// It makes the attempts.
    Probe,
    /// It is a set-uid program of root's, which tells its user and nothing else.
    SetUid,
}

impl Face {
    fn mode(self) -> u32 {
        match self {
            Self::Probe => 0o755,
            Self::SetUid => 0o4755,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Probe => "",
            Self::SetUid => "-set-uid",
        }
    }
}

/// Whether the engine mounts our file, and finds in it what we wrote.
async fn sees(
    docker: &Docker,
    image: &str,
    run: &str,
    word: &str,
    source: &str,
    bytes: &[u8],
) -> Result<bool, BackendError> {
    let mount = Mount {
        typ: Some(MountType::BIND),
        source: Some(source.to_owned()),
        target: Some(PROBE.into()),
        read_only: Some(true),
        ..Mount::default()
    };
    let name = format!("escape-audit-{run}-{word}-sight");
    let body = carrier(image, run, word, mount);
    let mut container = match Container::create(docker, &name, body).await {
        Ok(container) => container,
        Err(error) if error.code == "mount-missing" => return Ok(false),
        Err(error) => return Err(error),
    };
    let back = download(docker, &container.id).await;
    container.remove().await;
    match back {
        Ok(back) => Ok(holds(&back, bytes)),
        // It took the mount and does not show it: then it is not relied upon.
        Err(error) if error.code == "engine-timeout" => Err(error),
        Err(_) => Ok(false),
    }
}

/// A container that is never started: what is mounted in it can be read and written through the engine.
fn carrier(image: &str, run: &str, word: &str, mount: Mount) -> ContainerCreateBody {
    ContainerCreateBody {
        image: Some(image.to_owned()),
        entrypoint: Some(vec![PROBE.into()]),
        cmd: Some(Vec::new()),
        labels: Some(owner::labels(run, word)),
        host_config: Some(HostConfig {
            mounts: Some(vec![mount]),
            network_mode: Some("none".into()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

async fn download(docker: &Docker, id: &str) -> Result<Vec<u8>, BackendError> {
    let options = DownloadFromContainerOptionsBuilder::default()
        .path(PROBE)
        .build();
    let mut pieces = docker.download_from_container(id, Some(options));
    let mut archive = Vec::new();
    let read = async {
        while let Some(piece) = pieces.next().await {
            archive.extend_from_slice(&piece.map_err(|error| explain(Phase::Download, &error))?);
            if archive.len() > MOST {
                break;
            }
        }
        Ok(())
    };
    match tokio::time::timeout(Phase::Download.deadline(), read).await {
        Ok(Ok(())) => Ok(archive),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(silent(Phase::Download)),
    }
}

/// Whether the archive holds one file with these bytes.
fn holds(archive: &[u8], bytes: &[u8]) -> bool {
    let mut archive = tar::Archive::new(archive);
    let Ok(entries) = archive.entries() else {
        return false;
    };
    entries.flatten().any(|mut entry| {
        let mut found = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut found).is_ok()
            && Sha256::digest(&found) == Sha256::digest(bytes)
    })
}

/// Brings it into a volume of ours, which the run's last sweep removes.
pub async fn upload(
    docker: &Docker,
    image: &str,
    run: &str,
    word: &str,
    face: Face,
    bytes: &[u8],
) -> Result<Delivery, BackendError> {
    let volume = format!("escape-audit-{run}-{word}{}", face.name());
    let request = VolumeCreateRequest {
        name: Some(volume.clone()),
        labels: Some(owner::labels(run, word)),
        ..VolumeCreateRequest::default()
    };
    call(Phase::Upload, docker.create_volume(request)).await?;
    let filled = fill(docker, image, run, word, &volume, face, bytes).await;
    if filled.is_err() {
        let options = RemoveVolumeOptionsBuilder::default().build();
        let removed = accept(docker.remove_volume(&volume, Some(options)), &[404]);
        let _ = call(Phase::Remove, removed).await;
    }
    filled.map(|()| Delivery::Volume(volume))
}

async fn fill(
    docker: &Docker,
    image: &str,
    run: &str,
    word: &str,
    volume: &str,
    face: Face,
    bytes: &[u8],
) -> Result<(), BackendError> {
    let mount = Mount {
        typ: Some(MountType::VOLUME),
        source: Some(volume.to_owned()),
        target: Some(FOLDER.into()),
        read_only: Some(false),
        ..Mount::default()
    };
    let name = format!("{volume}-filler");
    let mut container = Container::create(docker, &name, carrier(image, run, word, mount)).await?;
    let options = UploadToContainerOptionsBuilder::default()
        .path(FOLDER)
        .build();
    let body = bollard::body_full(archive(bytes, face.mode())?.into());
    let sent = docker.upload_to_container(&container.id, Some(options), body);
    let sent = call(Phase::Upload, sent).await;
    // What arrived is what is run, so it is read back.
    let back = match &sent {
        Ok(()) => download(docker, &container.id)
            .await
            .map(|back| holds(&back, bytes)),
        Err(_) => Ok(true),
    };
    container.remove().await;
    sent?;
    match back? {
        true => Ok(()),
        false => Err(BackendError::new(
            "engine-failed",
            "bring the probe to the engine: what it gives back is not what it was given",
        )),
    }
}

fn archive(bytes: &[u8], mode: u32) -> Result<Vec<u8>, BackendError> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(mode);
    let mut builder = tar::Builder::new(Vec::new());
    builder
        .append_data(&mut header, "probe", bytes)
        .and_then(|()| builder.into_inner())
        .map_err(|error| BackendError::new("harness-failed", format!("pack the probe: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_gives_back_what_was_put_in() {
        let packed = archive(b"probe's bytes", 0o755).expect("packed");
        assert!(holds(&packed, b"probe's bytes"));
        assert!(!holds(&packed, b"other bytes"));
        assert!(!holds(b"no archive", b""));
    }
}
