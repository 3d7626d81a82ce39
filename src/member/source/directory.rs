//! Members from a folder: `<name>.kubeconfig`, closed to new volumes while `<name>.cordon` exists.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tokio::sync::watch;

use super::{Definition, Definitions};
use crate::{member::kubeconfig::Trust, volume::id::is_member_name};

/// Looking at a folder costs less than a watch on every kind of file system it may lie on.
const LOOK: Duration = Duration::from_secs(1);

/// A file as it was when last read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
}

/// Follows a folder until nobody listens any more.
pub async fn follow(folder: PathBuf, news: watch::Sender<Option<Definitions>>) {
    let mut folder = Folder { path: folder, read: BTreeMap::new(), refused: BTreeSet::new() };
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
pub fn read(folder: &Path) -> io::Result<Definitions> {
    Folder { path: folder.to_owned(), read: BTreeMap::new(), refused: BTreeSet::new() }.look()
}

struct Folder {
    path: PathBuf,
    read: BTreeMap<String, (Stamp, String)>,
    refused: BTreeSet<String>,
}

impl Folder {
    fn look(&mut self) -> io::Result<Definitions> {
        let mut found = BTreeMap::new();
        let mut cordoned = BTreeSet::new();
        for entry in std::fs::read_dir(&self.path)? {
            let path = entry?.path();
            let Some(name) = path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned) else {
                continue;
            };
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("kubeconfig") if self.is_name(&name) => drop(found.insert(name, path)),
                Some("cordon") => drop(cordoned.insert(name)),
                _ => {}
            }
        }
        self.read.retain(|name, _| found.contains_key(name));
        let define = |(name, path): (String, PathBuf)| {
            let definition = Definition {
                kubeconfig: self.text(&name, &path),
                trust: Trust::Folder,
                cordoned: cordoned.contains(&name),
                clustertree: false,
                origin: format!("file {}", path.display()),
            };
            (name, definition)
        };
        Ok(found.into_iter().map(define).collect())
    }

    fn is_name(&mut self, name: &str) -> bool {
        let good = is_member_name(name);
        if !good && self.refused.insert(name.to_owned()) {
            tracing::warn!(file = %format!("{name}.kubeconfig"), "ignored: a member's name is a DNS label of at most 40 characters");
        }
        good
    }

    /// The file's text, read again only when it changed. One that could never be read is as good as empty, which is refused
    /// with a sentence of its own.
    fn text(&mut self, name: &str, path: &Path) -> String {
        let stamp = std::fs::metadata(path).map(|data| Stamp { modified: data.modified().ok(), length: data.len() });
        if let (Ok(stamp), Some((known, text))) = (&stamp, self.read.get(name))
            && stamp == known
        {
            return text.clone();
        }
        match std::fs::read_to_string(path) {
            Ok(text) => {
                if let Ok(stamp) = stamp {
                    self.read.insert(name.to_owned(), (stamp, text.clone()));
                }
                text
            }
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "a member's kubeconfig cannot be read; what it said before holds");
                self.read.get(name).map(|(_, text)| text.clone()).unwrap_or_default()
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
        put("Not_A_Name.kubeconfig", "c");
        put("notes.txt", "d");
        let mut folder_view =
            Folder { path: folder.path().to_owned(), read: BTreeMap::new(), refused: BTreeSet::new() };
        let found = folder_view.look().unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["cluster38", "cluster39"]);
        assert!(!found["cluster38"].cordoned && found["cluster39"].cordoned);
        put("cluster38.kubeconfig", "changed");
        assert_eq!(folder_view.look().unwrap()["cluster38"].kubeconfig, "changed");
        std::fs::remove_file(folder.path().join("cluster38.kubeconfig")).unwrap();
        assert_eq!(folder_view.look().unwrap().len(), 1);
    }
}
