//! Keeps a cluster in a file, so that it outlives its process. Every change is written down before anybody learns of it:
//! a process that is killed has lost nothing that it had said. (A machine that loses power may lose the last moments.)
//!
//! The file holds one change per line. It is written again, beside the old one and then in its place, whenever the past
//! in it outweighs the present. A last line that was cut off was never said to anybody, and is left out.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Value, json};

use super::{
    Cluster,
    store::{Key, What, key_of, version_of},
};

/// So many changes are kept besides what is there, before the file is written again.
const PAST: usize = 10_000;

/// Everything there is, with its resource.
type Objects = Vec<(String, Arc<Value>)>;

/// The open file of a cluster.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// Changes since the file was written again.
    past: usize,
    /// Something could not be written: what is in the file is not the whole truth.
    broken: bool,
}

impl Journal {
    fn begin(path: &Path, revision: u64, objects: &Objects) -> io::Result<Self> {
        let file = write_again(path, revision, objects)?;
        Ok(Self { path: path.to_owned(), file, past: 0, broken: false })
    }

    /// Objects have gone without a word of each: the file is written again at the next change.
    pub(super) fn outdated(&mut self) {
        self.past = PAST;
    }

    pub(super) fn is_due(&self) -> bool {
        self.broken || self.past >= PAST
    }

    /// Failures are told once; then the whole file is tried again at each change.
    pub(super) fn renew(&mut self, revision: u64, objects: &Objects) {
        match Self::begin(&self.path, revision, objects) {
            Ok(new) => *self = new,
            Err(error) => self.fail(&error),
        }
    }

    pub(super) fn write(&mut self, resource: &str, what: What, object: &Value) {
        self.past += 1;
        let gone = what == What::Deleted;
        if let Err(error) = self.file.write_all(line(resource, gone, object).as_bytes()) {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &io::Error) {
        if !self.broken {
            tracing::error!(file = %self.path.display(), %error, "what changes from now on is not kept");
        }
        self.broken = true;
    }
}

fn line(resource: &str, gone: bool, object: &Value) -> String {
    let mut line = json!({"resource": resource, "gone": gone, "object": object}).to_string();
    line.push('\n');
    line
}

fn write_again(path: &Path, revision: u64, objects: &Objects) -> io::Result<File> {
    let beside = path.with_extension("new");
    let mut out = BufWriter::new(File::create(&beside)?);
    writeln!(out, "{}", json!({"revision": revision}))?;
    for (resource, object) in objects {
        out.write_all(line(resource, false, object).as_bytes())?;
    }
    out.flush()?;
    fs::rename(&beside, path)?;
    drop(out);
    OpenOptions::new().append(true).open(path)
}

/// What a file says: the newest version, and the objects that are left.
fn read(path: &Path) -> io::Result<(u64, Vec<(String, Value)>)> {
    let mut revision = 0;
    let mut objects: BTreeMap<(String, Key), Value> = BTreeMap::new();
    let mut lines = BufReader::new(File::open(path)?).lines().peekable();
    while let Some(line) = lines.next() {
        let line = line?;
        let Ok(change) = serde_json::from_str::<Value>(&line) else {
            let cut_off = lines.peek().is_none();
            tracing::warn!(file = %path.display(), cut_off, "a line cannot be read and is left out");
            continue;
        };
        let object = &change["object"];
        revision = revision.max(version_of(object)).max(change["revision"].as_u64().unwrap_or(0));
        if let Some(resource) = change["resource"].as_str() {
            let key = (resource.to_owned(), key_of(object));
            match change["gone"].as_bool() {
                Some(true) => drop(objects.remove(&key)),
                _ => drop(objects.insert(key, object.clone())),
            }
        }
    }
    Ok((revision, objects.into_iter().map(|((resource, _), object)| (resource, object)).collect()))
}

/// The cluster of this file, or a new one that is kept in it from now on.
pub fn kept(name: &str, seed: u64, path: &Path) -> io::Result<Cluster> {
    let cluster = match read(path) {
        Ok((revision, objects)) => {
            let cluster = Cluster::restored(name, seed, objects);
            let mut store = cluster.store();
            store.revision = store.revision.max(revision);
            store.compact();
            drop(store);
            cluster
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Cluster::new(name, seed),
        Err(error) => return Err(error),
    };
    let objects = cluster.objects();
    let mut store = cluster.store();
    store.journal = Some(Journal::begin(path, store.revision, &objects)?);
    drop(store);
    Ok(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIMS: &str = "persistentvolumeclaims";

    fn claim(name: &str) -> Value {
        json!({"metadata": {"namespace": "default", "name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}})
    }

    fn state(cluster: &Cluster) -> Vec<(String, Value)> {
        cluster.objects().into_iter().map(|(resource, object)| (resource, Value::clone(&object))).collect()
    }

    #[tokio::test]
    async fn everything_is_there_again_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.json");
        let cluster = kept("host", 1, &path).unwrap();
        for name in ["one", "two", "three"] {
            cluster.create(CLAIMS, claim(name)).unwrap();
        }
        let label = |claim: &mut Value| claim["metadata"]["labels"]["a"] = json!("b");
        cluster.change(CLAIMS, "default", "two", label).unwrap();
        cluster.delete(CLAIMS, "default", "three").unwrap();
        let (before, revision) = (state(&cluster), cluster.store().revision);
        drop(cluster);

        let again = kept("host", 2, &path).unwrap();
        assert_eq!(state(&again), before);
        assert_eq!(again.store().revision, revision, "also where the newest change was a deletion");
        let made = again.create(CLAIMS, claim("four")).unwrap();
        assert!(version_of(&made) > revision);
        drop(again);
        assert!(kept("host", 3, &path).unwrap().get(CLAIMS, "default", "four").is_some());
    }

    #[tokio::test]
    async fn line_that_was_cut_off_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.json");
        let cluster = kept("host", 1, &path).unwrap();
        cluster.create(CLAIMS, claim("one")).unwrap();
        let before = state(&cluster);
        cluster.create(CLAIMS, claim("two")).unwrap();
        drop(cluster);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
        assert_eq!(state(&kept("host", 2, &path).unwrap()), before);
    }

    #[tokio::test]
    async fn past_does_not_pile_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.json");
        let cluster = kept("host", 1, &path).unwrap();
        cluster.create(CLAIMS, claim("one")).unwrap();
        for number in 0..PAST + 10 {
            let label = |claim: &mut Value| claim["metadata"]["labels"]["a"] = json!(number.to_string());
            cluster.change(CLAIMS, "default", "one", label).unwrap();
        }
        let lines = BufReader::new(File::open(&path).unwrap()).lines().count();
        assert!(lines < 100, "{lines} lines");
        let before = state(&cluster);
        drop(cluster);
        assert_eq!(state(&kept("host", 2, &path).unwrap()), before);
    }

    #[tokio::test]
    async fn what_could_not_be_written_is_made_up_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.json");
        let cluster = kept("host", 1, &path).unwrap();
        let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
        cluster.store().journal.as_mut().unwrap().file = full;
        cluster.create(CLAIMS, claim("one")).unwrap();
        drop(cluster);
        assert!(kept("host", 2, &path).unwrap().get(CLAIMS, "default", "one").is_some());
    }
}
