//! The driver as a process that writes all the log it can.

use std::{
    io::Read as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Instant,
};

use flate2::read::GzDecoder;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::{Child, Command},
    time::{sleep, timeout},
};

use super::PATIENCE;

pub struct Driver {
    folder: PathBuf,
    admin: SocketAddr,
    child: Child,
}

impl Driver {
    /// With kubeconfigs of the host and of the members m0 and m4.
    pub fn start(folder: &Path, host: &str, [member, other]: &[String; 2], more: &[String]) -> Self {
        let members = folder.join("members");
        std::fs::create_dir(&members).unwrap();
        std::fs::write(folder.join("host.kubeconfig"), host).unwrap();
        std::fs::write(members.join("m0.kubeconfig"), member).unwrap();
        std::fs::write(members.join("m4.kubeconfig"), other).unwrap();
        // One that cannot be used: its text must not be told with the reason.
        std::fs::write(members.join("m2.kubeconfig"), member.replace("token:", "exec: {command: x}, token:")).unwrap();
        std::fs::write(members.join("m3.kubeconfig"), member.replace("users:", "users: {{")).unwrap();
        let admin = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let at = |name: &str| folder.join(name).display().to_string();
        let child = Command::new(env!("CARGO_BIN_EXE_kosmos-csi"))
            .args(["controller", &format!("--endpoint=unix://{}", at("csi.sock"))])
            .args([format!("--kubeconfig={}", at("host.kubeconfig")), format!("--members-dir={}", at("members"))])
            .args([format!("--admin-address={admin}"), "--members-namespace=kosmos-csi".to_owned()])
            .args(["--leaf-namespace=kosmos-csi-leaves", "--shutdown-grace=1s", "--mover-image=mover"])
            .args(more)
            .env_clear()
            .env("RUST_LOG", "trace")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.join("log")).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { folder: folder.to_owned(), admin, child }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("csi.sock")
    }

    pub async fn sees_member(&self, name: &str) {
        let began = Instant::now();
        let lists =
            format!("kosmos_csi_member_requests_total{{member=\"{name}\",verb=\"watch\",resource=\"storageclasses\"");
        while !self.metrics().await.contains(&lists) {
            assert!(began.elapsed() < PATIENCE, "the member is not seen");
            sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Head and body, as they come.
    pub async fn metrics(&self) -> String {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect(self.admin).await {
            let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            stream.write_all(request.as_bytes()).await.unwrap();
            stream.read_to_string(&mut answer).await.unwrap();
        }
        answer
    }

    /// All that the archive for who helps holds, by what the administrator types beside it.
    pub async fn support_bundle(&self) -> String {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let typed = Command::new(env!("CARGO_BIN_EXE_kosmos-csi"))
            .args(["support-bundle".to_owned(), format!("--kubeconfig={}", at("host.kubeconfig"))])
            .args([format!("--members-dir={}", at("members")), format!("--output={}", at("all.tar.gz"))])
            .env_clear()
            .output();
        let told = timeout(PATIENCE, typed).await.unwrap().unwrap();
        assert!(told.status.success(), "{told:?}");
        let mut text = String::from_utf8(told.stdout).unwrap();
        GzDecoder::new(std::fs::File::open(at("all.tar.gz")).unwrap()).read_to_string(&mut text).unwrap();
        text
    }

    /// Stops it as Kubernetes does, and tells what it has logged.
    pub async fn end(mut self) -> String {
        let process = Pid::from_raw(self.child.id().unwrap().cast_signed());
        kill(process, Signal::SIGTERM).unwrap();
        timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap();
        std::fs::read_to_string(self.folder.join("log")).unwrap()
    }
}
