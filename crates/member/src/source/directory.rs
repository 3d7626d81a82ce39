//! Members from a folder: `<name>.kubeconfig`, closed to new volumes while `<name>.cordon` exists, with pods above the level
//! `baseline` while `<name>.privileged-pods` does; the account that runs pods there may have a
//! `<name>.virtual-node.kubeconfig` of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tokio::sync::watch;

use super::{Account, MemberDefinition, MemberDefinitions};
use crate::{
    kubeconfig::KubeconfigSource,
    policy::{PodNetworks, Policy},
};
use domain::volume::id::is_member_name;

/// Looking at a folder costs less than a watch on every kind of file system it may lie on.
const LOOK: Duration = Duration::from_secs(1);
const VIRTUAL_NODE: &str = ".virtual-node";

/// A file as it was when last read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
}

/// Follows a folder until nobody listens any more.
pub async fn follow(folder: PathBuf, account: Account, news: watch::Sender<Option<MemberDefinitions>>) {
    let mut folder = Folder::new(folder, account);
    let mut ticks = tokio::time::interval(LOOK);
    while !news.is_closed() {
        ticks.tick().await;
        match folder.look() {
            Ok(definitions) => {
                if definitions.is_empty() && news.borrow().is_none() {
                    tracing::warn!(folder = %folder.path.display(), "no <name>.kubeconfig here yet");
                }
                news.send_if_modified(|known| {
                    let changed = known.as_ref() != Some(&definitions);
                    *known = Some(definitions);
                    changed
                });
            }
            Err(error) => {
                tracing::warn!(folder = %folder.path.display(), %error, "the members' folder cannot be read");
            }
        }
    }
}

/// The members as the folder names them now, for who asks once.
pub fn read(folder: &Path, account: Account) -> io::Result<MemberDefinitions> {
    Folder::new(folder.to_owned(), account).look()
}

struct Folder {
    path: PathBuf,
    account: Account,
    read: BTreeMap<PathBuf, (Stamp, String)>,
    refused: BTreeSet<String>,
}

impl Folder {
    fn new(path: PathBuf, account: Account) -> Self {
        Self { path, account, read: BTreeMap::new(), refused: BTreeSet::new() }
    }

    fn look(&mut self) -> io::Result<MemberDefinitions> {
        let (mut found, mut own) = (BTreeMap::new(), BTreeMap::new());
        let (mut cordoned, mut privileged) = (BTreeSet::new(), BTreeSet::new());
        for entry in std::fs::read_dir(&self.path)? {
            let path = entry?.path();
            let Some(name) = path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned) else {
                continue;
            };
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("kubeconfig") => match name.strip_suffix(VIRTUAL_NODE) {
                    Some(member) if self.is_name(member) => drop(own.insert(member.to_owned(), path)),
                    None if self.is_name(&name) => drop(found.insert(name, path)),
                    _ => {}
                },
                Some("cordon") => drop(cordoned.insert(name)),
                Some("privileged-pods") => drop(privileged.insert(name)),
                _ => {}
            }
        }
        if self.account == Account::VirtualNode {
            found.append(&mut own);
        }
        let used: BTreeSet<&PathBuf> = found.values().collect();
        self.read.retain(|path, _| used.contains(path));
        let define = |(name, path): (String, PathBuf)| {
            let definition = MemberDefinition {
                kubeconfig: self.text(&path),
                source: KubeconfigSource::Folder,
                policy: Policy {
                    cordoned: cordoned.contains(&name),
                    privileged_pods: privileged.contains(&name),
                    pod_networks: PodNetworks::Any,
                },
                clustertree: false,
                secret: None,
                origin: format!("file {}", path.display()),
            };
            (name, definition)
        };
        Ok(found.into_iter().map(define).collect())
    }

    fn is_name(&mut self, name: &str) -> bool {
        let good = is_member_name(name);
        if !good && self.refused.insert(name.to_owned()) {
            tracing::warn!(file = %format!("{name}.kubeconfig"), "the kubeconfig is ignored: a member's name is a DNS label of at most 40 characters");
        }
        good
    }

    /// The file's text, read again only when it changed. One that could never be read is as good as empty, which is refused
    /// with a sentence of its own.
    fn text(&mut self, path: &Path) -> String {
        let stamp = std::fs::metadata(path).map(|data| Stamp { modified: data.modified().ok(), length: data.len() });
        if let (Ok(stamp), Some((known, text))) = (&stamp, self.read.get(path))
            && stamp == known
        {
            return text.clone();
        }
        match std::fs::read_to_string(path) {
            Ok(text) => {
                if let Ok(stamp) = stamp {
                    self.read.insert(path.to_owned(), (stamp, text.clone()));
                }
                text
            }
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "a member's kubeconfig cannot be read: the driver goes on with the one that it read before");
                self.read.get(path).map(|(_, text)| text.clone()).unwrap_or_default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_members_and_a_cordon_closes_one() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        put("cluster38.kubeconfig", "a");
        put("cluster39.kubeconfig", "b");
        put("cluster39.cordon", "");
        put("cluster38.privileged-pods", "");
        put("Not_A_Name.kubeconfig", "c");
        put("notes.txt", "d");
        let mut folder_view = Folder::new(folder.path().to_owned(), Account::Driver);
        let found = folder_view.look().unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["cluster38", "cluster39"]);
        assert!(!found["cluster38"].policy.cordoned && found["cluster39"].policy.cordoned);
        assert!(found["cluster38"].policy.privileged_pods && !found["cluster39"].policy.privileged_pods);
        put("cluster38.kubeconfig", "changed");
        assert_eq!(folder_view.look().unwrap()["cluster38"].kubeconfig, "changed");
        std::fs::remove_file(folder.path().join("cluster38.kubeconfig")).unwrap();
        assert_eq!(folder_view.look().unwrap().len(), 1);
    }

    #[test]
    fn account_of_its_own_is_a_file_of_its_own_and_no_member() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        put("cluster38.kubeconfig", "the driver's");
        put("cluster38.virtual-node.kubeconfig", "its own");
        put("cluster39.kubeconfig", "of both");
        let told = |account| {
            let found = Folder::new(folder.path().to_owned(), account).look().unwrap();
            found.into_iter().map(|(name, definition)| format!("{name}: {}", definition.kubeconfig)).collect::<Vec<_>>()
        };
        assert_eq!(told(Account::Driver), ["cluster38: the driver's", "cluster39: of both"]);
        assert_eq!(told(Account::VirtualNode), ["cluster38: its own", "cluster39: of both"]);
    }
}
