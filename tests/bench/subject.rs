//! The driver: the release build, as a process, called over its socket.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use csi::{
    client::{Client, Code},
    v1::{
        CapacityRange, CreateVolumeRequest, ListVolumesRequest, VolumeCapability,
        controller_client::ControllerClient,
        volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
    },
};

use tonic::transport::{Channel, Endpoint};

use super::{
    CLASS, MEMBER, PATIENCE,
    clusters::{guardian::profile_folder, wait_for},
};

/// As the sidecar has it.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Where the driver finds its clusters.
pub struct Place {
    folder: PathBuf,
}

impl Place {
    /// Kubeconfigs of the host and of the member.
    pub fn new(folder: &Path, host: &str, member: &str) -> Result<Self> {
        std::fs::create_dir(folder.join("bench-members")).context("make the members' folder")?;
        std::fs::write(folder.join("bench-host.kubeconfig"), host).context("write the host's kubeconfig")?;
        let path = folder.join(format!("bench-members/{MEMBER}.kubeconfig"));
        std::fs::write(path, member).context("write the member's kubeconfig")?;
        Ok(Self { folder: folder.to_owned() })
    }
}

pub struct Subject {
    client: Client,
    lister: ControllerClient<Channel>,
    process: Child,
}

impl Subject {
    pub async fn start(place: &Place) -> Result<Self> {
        let socket = place.folder.join("bench.sock");
        let process = Command::new(profile_folder()?.join("kosmos-csi"))
            .arg("controller")
            .arg(format!("--endpoint=unix://{}", socket.display()))
            .arg(format!("--kubeconfig={}", place.folder.join("bench-host.kubeconfig").display()))
            .arg(format!("--members-dir={}", place.folder.join("bench-members").display()))
            .args(["--members-namespace=kosmos-csi", "--leaf-namespace=bench"])
            .env_clear()
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .spawn()
            .context("start the driver")?;
        let client = Client::new(&socket).map_err(anyhow::Error::msg)?;
        let channel = Endpoint::from_shared(format!("unix://{}", socket.display()))?.connect_lazy();
        let subject = Self { client, lister: ControllerClient::new(channel), process };
        let first = wait_for("the driver makes a first volume", PATIENCE, || async {
            Ok(subject.create_once("first").await.ok())
        });
        first.await?;
        Ok(subject)
    }

    /// One volume, by its handle. Repeated as the sidecar repeats it.
    pub async fn create(&self, name: &str) -> Result<String> {
        loop {
            match self.create_once(name).await {
                Ok(handle) => return Ok(handle),
                Err((Code::Aborted | Code::Unavailable, message)) => eprintln!("{name}: {message}"),
                Err((code, message)) => bail!("{name}: {code:?}: {message}"),
            }
        }
    }

    async fn create_once(&self, name: &str) -> Result<String, (Code, String)> {
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
            volume_capabilities: vec![VolumeCapability {
                access_type: Some(AccessType::Mount(MountVolume::default())),
                access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
            }],
            parameters: HashMap::from([("leafStorageClass".to_owned(), CLASS.to_owned())]),
            ..CreateVolumeRequest::default()
        };
        let made = self.client.create_volume(request, TIMEOUT).await;
        made.map(|volume| volume.volume_id).map_err(|refusal| (refusal.code, refusal.message))
    }

    /// How long a page of ListVolumes takes; none where that is not offered.
    pub async fn list(&self) -> Result<Duration> {
        let begun = Instant::now();
        let request = ListVolumesRequest { max_entries: 100, ..ListVolumesRequest::default() };
        self.lister.clone().list_volumes(request).await.context("ListVolumes")?;
        Ok(begun.elapsed())
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
