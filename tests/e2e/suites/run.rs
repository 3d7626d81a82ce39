//! Runs specs of Kubernetes' own suites: several processes of their program side by side, each with a share of the names. What is
//! kept of each spec as soon as it has ended lets a run go on where it was ended.

use std::{
    collections::BTreeSet,
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use tokio::process::Command;

use super::{
    left_out,
    outcome::{Ends, Listed, is_written, judge},
    parts::{Part, is_alone},
};
use crate::{
    clusters::{guardian::profile_folder, tools::suites_program},
    rig::Rig,
};

/// Says where a run is kept, as for all else that takes long.
const FOLDER: &str = "KOSMOS_CSI_FAULTS_FOLDER";
/// What ends a part that hangs; each spec has limits of its own.
const LONGEST: Duration = Duration::from_hours(3);
/// What is made of specs that are ended is taken away.
const GRACE: Duration = Duration::from_mins(5);

pub struct Run<'a> {
    rig: &'a Rig,
    part: Part,
    /// Says to the suites what the driver can.
    driver: PathBuf,
    folder: PathBuf,
}

impl<'a> Run<'a> {
    pub fn new(rig: &'a Rig, part: Part, driver: PathBuf) -> Result<Self> {
        let folder = folder(part)?;
        Ok(Self { rig, part, driver, folder })
    }

    /// What has not passed yet, and then all is held against what is listed.
    pub async fn go_on(&self) -> Result<()> {
        let all = self.all().await?;
        let meaningless = left_out::meaningless(&all);
        let chosen: Vec<String> = all.into_iter().filter(|name| self.is_chosen(name)).collect();
        ensure!(!chosen.is_empty(), "the suites have no spec of {}", self.part.name);
        let before = self.ends()?;
        let left: Vec<String> = chosen.iter().filter(|name| !before.is_settled(name)).cloned().collect();
        eprintln!("{}: {} of {} specs are left", self.part.name, left.len(), chosen.len());
        let (alone, others) = left.into_iter().partition::<Vec<_>, _>(|name| is_alone(name));
        self.side_by_side("others", &others, self.part.workers).await?;
        self.side_by_side("alone", &alone, 1).await?;
        let judged = judge(&chosen, &self.ends()?, &Listed::of(self.part.name)?, is_written());
        judged.with_context(|| format!("what the suites said is in {}", self.folder.display()))?;
        ensure!(meaningless.is_empty(), "these leave out no spec: {meaningless:?}");
        // The next run is of all.
        fs::remove_dir_all(&self.folder).context("remove what was kept of a run that is done")
    }

    fn is_chosen(&self, name: &str) -> bool {
        (self.part.has)(name) && left_out::why(name, self.part.scene).is_none()
    }

    async fn all(&self) -> Result<Vec<String>> {
        let mut command = Command::new(suites_program("e2e.test")?);
        let output = command.args(self.arguments()).arg("--list").output().await.context("run the suites")?;
        let printed = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
        let names: BTreeSet<String> = printed.lines().map(str::to_owned).collect();
        Ok(names.into_iter().collect())
    }

    fn ends(&self) -> Result<Ends> {
        let entries = fs::read_dir(&self.folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        let is_kept = |file: &PathBuf| file.extension().is_some_and(|end| end == "jsonl");
        Ends::read(&entries.into_iter().filter(is_kept).collect::<Vec<_>>())
    }

    async fn side_by_side(&self, name: &str, specs: &[String], workers: usize) -> Result<()> {
        let share = |worker: usize| specs.iter().skip(worker).step_by(workers).cloned().collect::<Vec<_>>();
        let shares = (0..workers).map(|worker| (format!("{name}-{worker}"), share(worker)));
        try_join_all(shares.filter(|(_, specs)| !specs.is_empty()).map(async |(name, specs)| {
            self.share(&name, &specs).await.with_context(|| format!("run the share {name}"))
        }))
        .await
        .map(drop)
    }

    /// A process of the fleet: it ends with that, however the test ends.
    async fn share(&self, name: &str, specs: &[String]) -> Result<()> {
        let file = |end: &str| self.folder.join(format!("{name}.{end}"));
        fs::write(file("specs"), specs.join("\n"))?;
        // It is there also where the suites end before their first spec does.
        File::options().create(true).append(true).open(file("jsonl"))?;
        let mut arguments = self.arguments();
        arguments.push(format!("--specs={}", file("specs").display()));
        arguments.push(format!("--results={}", file("jsonl").display()));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let process = self.rig.fleet.spawn(&format!("suites-{name}"), suites_program("e2e.test")?, &arguments, &[])?;
        let exit = process.wait(LONGEST + GRACE).await?;
        fs::copy(process.log_path(), file("log")).context("keep what the suites said")?;
        let ends = Ends::read(&[file("jsonl")])?;
        ensure!(specs.iter().any(|spec| ends.has(spec)), "no spec has ended, {exit:?}: {}", file("log").display());
        Ok(())
    }

    fn arguments(&self) -> Vec<String> {
        let fleet = &self.rig.fleet;
        vec![
            format!("--kubeconfig={}", fleet.host().kubeconfig_inside().display()),
            format!("--kubectl-path={}", fleet.tools().path("kubectl").display()),
            format!("--storage.testdriver={}", self.driver.display()),
            "--provider=skeleton".to_owned(),
            "--non-blocking-taints=kosmos.io/node".to_owned(),
            "--ginkgo.no-color".to_owned(),
            format!("--ginkgo.timeout={}s", LONGEST.as_secs()),
        ]
    }
}

fn folder(part: Part) -> Result<PathBuf> {
    let kept = env::var_os(FOLDER).filter(|value| !value.is_empty()).map(PathBuf::from);
    let target = || profile_folder()?.parent().map(Path::to_owned).context("cargo's folders lie in one");
    let folder = kept.map_or_else(target, Ok)?.join("suites").join(part.name);
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    Ok(folder)
}
