//! When claims were bound, from one process to another: a line of a file for each, with the clock that all processes of a
//! machine share.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::{BufRead, BufReader, Write},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};

use super::{clusters::wait_for, process::now};

const PATIENCE: Duration = Duration::from_mins(1);

/// Where it is told; nowhere, where nobody asks.
#[derive(Clone, Debug, Default)]
pub struct Told(Option<Arc<Mutex<Record>>>);

#[derive(Debug)]
struct Record {
    file: File,
    names: HashSet<String>,
}

impl Told {
    pub fn to(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("make {}", path.display()))?;
        Ok(Self(Some(Arc::new(Mutex::new(Record { file, names: HashSet::new() })))))
    }

    /// That a claim, `namespace/name`, is bound. The first word counts.
    pub fn bound(&self, claim: &str) -> Result<()> {
        let Some(record) = &self.0 else { return Ok(()) };
        let now = now()?;
        let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
        if record.names.insert(claim.to_owned()) {
            let line = format!("{claim} {}\n", now.as_nanos());
            record.file.write_all(line.as_bytes()).context("tell that a claim is bound")?;
        }
        Ok(())
    }
}

/// Who reads it.
#[derive(Debug)]
pub struct Heard {
    file: BufReader<File>,
    /// The beginning of one of which the rest is not written yet.
    line: String,
    times: HashMap<String, Duration>,
}

impl Heard {
    pub fn from(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
        Ok(Self { file: BufReader::new(file), line: String::new(), times: HashMap::new() })
    }

    /// When these claims were bound. What was heard of others is forgotten.
    pub async fn of(&mut self, claims: &[String]) -> Result<Vec<Duration>> {
        let what = format!("the binder has told of {} claims", claims.len());
        wait_for(&what, PATIENCE, || {
            let all = self.read().map(|()| claims.iter().all(|claim| self.times.contains_key(claim)).then_some(()));
            std::future::ready(all)
        })
        .await?;
        let times = std::mem::take(&mut self.times);
        Ok(claims.iter().filter_map(|claim| times.get(claim).copied()).collect())
    }

    fn read(&mut self) -> Result<()> {
        while self.file.read_line(&mut self.line).context("hear of bound claims")? > 0 && self.line.ends_with('\n') {
            let line = std::mem::take(&mut self.line);
            let (claim, time) = line.trim_end().rsplit_once(' ').with_context(|| format!("understand {line:?}"))?;
            self.times.insert(claim.to_owned(), Duration::from_nanos(time.parse()?));
        }
        Ok(())
    }
}
