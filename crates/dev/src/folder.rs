//! The folder that `dev` lives in. Its layout is fixed: kubeconfigs and the socket on top, for people and tools; below
//! `state` what the process keeps for itself.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::{DirBuilderExt, MetadataExt, symlink},
    path::{Path, PathBuf},
};

use anyhow::Context;
use kube::config::Kubeconfig;
use tokio::net::TcpListener;

use super::node::Places;
use commands::{args::socket_path, run::Misuse};

const LONGEST_SOCKET: &str = "kubelet/plugins/storage.simulated/csi.sock";

#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Held while the process lives, however it ends.
    _lock: File,
}

impl Folder {
    /// Makes the folder where it is missing, and keeps every other process out of it.
    pub(super) fn open(path: &Path) -> Result<Self, Misuse> {
        let shown = path.display();
        let misuse = |error: io::Error| Misuse(format!("--dir {shown} cannot be used: {error}"));
        let path = std::path::absolute(path).map_err(misuse)?;
        socket_path(&path.join(LONGEST_SOCKET).display().to_string())
            .map_err(|reason| Misuse(format!("--dir {shown}: the folder has sockets, and for them {reason}")))?;
        let foreign = || Misuse(format!("--dir {shown} belongs to another user: give another folder"));
        if is_foreign(&path).map_err(misuse)? {
            return Err(foreign());
        }
        let private = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
        private(&path).map_err(misuse)?;
        // Somebody may have laid it between the look and the making.
        if is_foreign(&path).map_err(misuse)? {
            return Err(foreign());
        }
        private(&path.join("state")).map_err(misuse)?;
        let lock = File::create(path.join("state/lock")).map_err(misuse)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                Err(Misuse(format!("another kosmos-csi dev uses --dir {shown}: end it, or give another folder")))
            }
            Err(TryLockError::Error(error)) => Err(misuse(error)),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path.join("csi.sock")
    }

    /// What this machine is as a node of the host.
    pub(super) fn node(&self) -> Places {
        Places {
            socket: self.path.join("node.sock"),
            kubelet_dir: self.path.join("kubelet"),
            device_dir: self.path.join("devices"),
            volumes: self.path.join("volumes"),
        }
    }

    pub(super) fn kubeconfig(&self, cluster: &str) -> PathBuf {
        self.path.join(format!("{cluster}.kubeconfig"))
    }

    /// What a cluster holds.
    pub(super) fn state(&self, cluster: &str) -> PathBuf {
        self.path.join("state").join(format!("{cluster}.jsonl"))
    }

    pub(super) fn volumes(&self, member: &str) -> PathBuf {
        self.path.join("volumes").join(member)
    }

    /// The folder from which the driver learns of the members. The host's kubeconfig is not in it: it would be taken for
    /// a member's.
    pub(super) fn members(&self) -> PathBuf {
        self.path.join("state/members")
    }

    /// Members that were here before and are not among these; their volumes are kept.
    pub(super) fn asleep(&self, members: &[String]) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.path.join("state"))? {
            let path = entry?.path();
            let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
            let kept = path.extension().is_some_and(|extension| extension == "jsonl");
            if kept && name != super::HOST && !members.contains(&name) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Makes these the members: a link for each, and none for others.
    pub(super) fn link_members(&self, members: &[String]) -> anyhow::Result<()> {
        let folder = self.members();
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_symlink() {
                fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        for member in members {
            let link = folder.join(format!("{member}.kubeconfig"));
            symlink(self.kubeconfig(member), &link).with_context(|| format!("cannot make {}", link.display()))?;
        }
        Ok(())
    }

    /// By which kubectl and our own commands find the clusters, in a shell that has read it.
    pub(super) fn write_environment(&self) -> anyhow::Result<()> {
        let quoted = |path: &Path| quoted(&path.display().to_string());
        let (host, members) = (quoted(&self.kubeconfig(super::HOST)), quoted(&self.members()));
        let path = self.path.join("env");
        fs::write(&path, format!("export KUBECONFIG={host}\nexport KOSMOS_CSI_MEMBERS_DIR={members}\n"))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// A loopback port for a cluster: the one of last time, where it is free.
    pub(super) async fn listen(&self, cluster: &str) -> anyhow::Result<(TcpListener, SocketAddr)> {
        let at = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let before = self.last_port(cluster);
        let listener = match before {
            Some(port) => match at(port).await {
                Ok(listener) => listener,
                Err(error) => {
                    tracing::warn!(cluster, port, %error, "the port of last time is in use: the cluster gets another one");
                    at(0).await?
                }
            },
            None => at(0).await?,
        };
        let address = listener.local_addr()?;
        if before != Some(address.port()) {
            self.write_kubeconfig(cluster, address)?;
        }
        Ok((listener, address))
    }

    /// A loopback port for the page: the one of last time, where it is free.
    pub(super) async fn listen_for_people(&self) -> io::Result<TcpListener> {
        let (file, at) = (self.path.join("state/page.port"), |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
        let before = fs::read_to_string(&file).ok().and_then(|port| port.trim().parse().ok());
        let listener = match at(before.unwrap_or_default()).await {
            Ok(listener) => listener,
            Err(_) => at(0).await?,
        };
        fs::write(file, listener.local_addr()?.port().to_string())?;
        Ok(listener)
    }

    /// The kubeconfig is where the port is remembered.
    fn last_port(&self, cluster: &str) -> Option<u16> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig(cluster)).ok()?;
        let server = kubeconfig.clusters.into_iter().next()?.cluster?.server?;
        server.strip_prefix("http://127.0.0.1:")?.parse().ok()
    }

    fn write_kubeconfig(&self, cluster: &str, address: SocketAddr) -> anyhow::Result<()> {
        let path = self.kubeconfig(cluster);
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {cluster}\n\
             clusters: [{{name: {cluster}, cluster: {{server: 'http://{address}'}}}}]\n\
             users: [{{name: anyone, user: {{}}}}]\n\
             contexts: [{{name: {cluster}, context: {{cluster: {cluster}, user: anyone}}}}]\n"
        );
        let beside = path.with_extension("new");
        fs::write(&beside, text)
            .and_then(|()| fs::rename(&beside, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Below a folder for everybody, whoever came first could have laid links for us to write through: neither the folder nor a link to it
/// is another user's.
fn is_foreign(path: &Path) -> io::Result<bool> {
    let own = fs::metadata("/proc/self")?.uid();
    match fs::symlink_metadata(path).and_then(|link| Ok(link.uid() != own || fs::metadata(path)?.uid() != own)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        foreign => foreign,
    }
}

/// As a shell takes it for one word.
pub(super) fn quoted(path: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    if path.chars().all(plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn port_stays_the_same_where_it_is_free() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        let (listener, first) = folder.listen("host").await.unwrap();
        drop(listener);
        let (taken, again) = folder.listen("host").await.unwrap();
        assert_eq!(again, first);
        let (_listener, other) = folder.listen("host").await.unwrap();
        assert_ne!(other, first, "the port was taken");
        drop(taken);
        assert_eq!(folder.last_port("host"), Some(other.port()));
    }

    #[test]
    fn folder_belongs_to_one_process_and_its_path_must_be_short() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("deep/er");
        let folder = Folder::open(&path).unwrap();
        let refused = Folder::open(&path).unwrap_err().to_string();
        assert!(refused.contains("another kosmos-csi dev"), "{refused}");
        drop(folder);
        Folder::open(&path).unwrap();
        let long = Folder::open(&place.path().join("x".repeat(70))).unwrap_err().to_string();
        assert!(long.contains("--dir") && long.contains("at most 107"), "{long}");
    }

    #[test]
    fn folder_of_another_user_is_refused() {
        let place = tempfile::tempdir().unwrap();
        // Only root may give a folder away; for anybody else, root's own are foreign.
        let given_away = std::os::unix::fs::chown(place.path(), Some(65534), None).is_ok();
        let foreign = if given_away { place.path() } else { Path::new("/usr") };
        let refused = Folder::open(foreign).unwrap_err().to_string();
        assert!(refused.contains("belongs to another user"), "{refused}");
    }

    #[test]
    fn members_are_those_that_were_asked_for() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for name in ["host", "a", "b"] {
            fs::write(folder.state(name), "").unwrap();
        }
        folder.link_members(&names(&["a", "b"])).unwrap();
        fs::write(folder.members().join("a.cordon"), "").unwrap();
        folder.link_members(&names(&["a"])).unwrap();
        let mut left: Vec<_> =
            fs::read_dir(folder.members()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a.cordon", "a.kubeconfig"]);
        assert_eq!(folder.asleep(&names(&["a"])).unwrap(), ["b"]);
    }

    #[test]
    fn path_is_one_word_for_a_shell() {
        for (path, expected) in
            [("/tmp/a-b.c", "/tmp/a-b.c"), ("/tmp/a b", "'/tmp/a b'"), ("/tmp/it's", r"'/tmp/it'\''s'")]
        {
            assert_eq!(quoted(path), expected);
        }
    }
}
