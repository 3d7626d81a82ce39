//! What the builds of the test clusters promise: pinned versions, keys that change with what they stand for, and
//! images whose bytes depend on nothing but their programs.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

#[path = "clusters/bill.rs"]
pub mod bill;
#[path = "clusters/images.rs"]
pub mod images;
#[path = "clusters/pack.rs"]
pub mod pack;
#[path = "clusters/packages.rs"]
pub mod packages;
#[path = "clusters/product.rs"]
pub mod product;
#[path = "clusters/tools.rs"]
pub mod tools;
#[path = "clusters/tools_table.rs"]
pub mod tools_table;

use product::Flavour;
use tools_table::{OLDER, SUITES, TOOLS};

const DRIVER: &str = env!("CARGO_BIN_EXE_kosmos-csi");

#[test]
fn every_upstream_tool_is_pinned() {
    for tool in TOOLS {
        let version = tool.version().unwrap();
        let own = tool.module.starts_with("kosmos-csi/");
        assert_eq!(version == "own", own, "{}: {version}", tool.name);
    }
}

#[test]
fn older_control_plane_is_of_the_minor_version_before() {
    let minor = |version: &str| version.split('.').nth(1).unwrap().parse::<u32>().unwrap();
    let now = TOOLS.iter().find(|tool| tool.name == "kubernetes").unwrap();
    let (now_has, older_has) = (now.version().unwrap(), OLDER.version().unwrap());
    assert_eq!(minor(&older_has) + 1, minor(&now_has), "{older_has} and {now_has}");
    assert!(OLDER.binaries.iter().all(|binary| now.binaries.contains(binary)));
}

/// What they expect of an API server is of their own version.
#[test]
fn suites_are_of_the_version_of_the_control_planes() {
    let now = TOOLS.iter().find(|tool| tool.name == "kubernetes").unwrap().version().unwrap();
    let agnhost = SUITES.iter().find(|tool| tool.name == "agnhost").unwrap();
    assert_eq!(agnhost.version().unwrap(), now);
    for tool in SUITES {
        assert_eq!(tool.version().unwrap() == "own", tool.module.starts_with("kosmos-csi/"), "{}", tool.name);
    }
}

#[test]
fn game_day_without_a_fault_that_was_played_leaves_the_page_and_says_what_plays_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut make = Command::new("make");
    make.args(["game-day", "CARGO=false"]).env("CARGO_TARGET_DIR", folder.path()).env_remove("MAKEFLAGS");
    let output = make.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("no fault was played") && said.contains("make faults-real"), "{said}");
}

#[test]
fn list_of_parts_ends_with_how_many_have_passed_and_how_long_they_took() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("first.passed"), "61\n").unwrap();
    fs::write(folder.path().join("second.passed"), "3600\n").unwrap();
    let script = "set -eu -o pipefail; besides=(); . tests/parts.sh; list first second third";
    let output = Command::new("bash").args(["-c", script]).env("folder", folder.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let expected = [
        "first passed after 61 s",
        "second passed after 3600 s",
        "third",
        "2 of 3 parts have passed, in 1 h 1 min 1 s",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn the_longest_of_any_number_of_tests_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let (log, clusters) = (folder.path().join("log"), folder.path().join("times.tsv"));
    let tests = 0..20_000;
    let lines: Vec<_> = tests.clone().map(|number| format!("test rule_{number:05} ... ok <{number}.0s>")).collect();
    let rows: Vec<_> = tests.map(|number| format!("story_{number:05}\tfleet 0\t0.5\t{number}\tpassed")).collect();
    fs::write(&log, lines.join("\n")).unwrap();
    fs::write(&clusters, rows.join("\n")).unwrap();

    let table = Command::new("tests/times.sh").args([&log, &clusters]).env("MOST", "2").output().unwrap();
    assert!(table.status.success(), "{table:?}");
    let table = String::from_utf8(table.stdout).unwrap();
    let told: Vec<_> = table.split_whitespace().filter(|word| word.contains('_')).collect();
    assert_eq!(told, ["rule_19999", "rule_19998", "story_19999", "story_19998"], "{table}");
}

#[test]
fn every_binary_has_one_tool() {
    let names: Vec<_> = TOOLS.iter().chain(&SUITES).flat_map(|tool| tool.binaries).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
}

#[test]
fn a_key_changes_with_the_version_and_with_go() {
    let key = |version, go| TOOLS[0].key(version, go).unwrap();
    assert_eq!(key("v1.0.0", "go1.26.0"), key("v1.0.0", "go1.26.0"));
    assert_ne!(key("v1.0.0", "go1.26.0"), key("v1.0.0", "go1.26.1"));
    let hash = |key: String| key.rsplit_once('-').unwrap().1.to_owned();
    let stamped = TOOLS.iter().find(|tool| tool.name == "kubernetes").unwrap();
    let stamped = |version| hash(stamped.key(version, "go1.26.0").unwrap());
    assert_ne!(stamped("v1.36.3"), stamped("v1.36.4"));
}

#[test]
fn all_that_is_missing_is_listed_with_its_remedy() {
    let item = |what, remedy: &str| packages::Lacking { what, remedy: remedy.to_owned() };
    let text = packages::list(&[item("go", "install it"), item("runc", "apt-get install runc")]);
    assert_eq!(text, "missing on this machine:\n  go    install it\n  runc  apt-get install runc");
}

#[test]
fn the_snapshot_crds_are_there_six_of_them() {
    let files = tools::tools().unwrap().snapshot_crds().unwrap();
    assert_eq!(files.len(), 6, "{files:?}");
}

#[test]
fn an_image_packed_again_has_the_same_bytes() {
    let tools = tools::tools().unwrap();
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = images::images_in(&tools, one.path()).unwrap();
    let second = images::images_in(&tools, other.path()).unwrap();
    for (first, second) in first.iter().zip(&second) {
        assert_eq!(first.file_name(), second.file_name());
        assert!(fs::read(first).unwrap() == fs::read(second).unwrap(), "{}", first.display());
    }
}

#[test]
fn program_of_an_image_finds_its_libraries_there() {
    let folder = tempfile::tempdir().unwrap();
    let root = |flavour| {
        let root = folder.path().join(format!("{flavour:?}"));
        product::fill(flavour, Path::new(DRIVER), &root).unwrap();
        root
    };
    let (small, node, mover) = (root(Flavour::Small), root(Flavour::Node), root(Flavour::Mover));
    assert!(!small.join("usr/sbin/blkid").exists() && !small.join("usr/bin/rsync").exists());
    for (root, program, flag, words) in [
        (&small, "/kosmos-csi", "--version", "kosmos-csi "),
        (&node, "/kosmos-csi", "--version", "kosmos-csi "),
        (&node, "blkid", "-V", "blkid from util-linux"),
        (&node, "blockdev", "-V", "blockdev from util-linux"),
        (&node, "mkfs.ext4", "-V", "mke2fs "),
        (&node, "resize2fs", "-h", "resize2fs "),
        (&node, "mkfs.xfs", "-V", "mkfs.xfs version"),
        (&node, "xfs_growfs", "-V", "xfs_growfs version"),
        (&mover, "/kosmos-csi", "--version", "kosmos-csi "),
        (&mover, "/usr/bin/rsync", "--version", "rsync  version 3."),
    ] {
        let run = Command::new("/usr/sbin/chroot").arg(root).args([program, flag]).env("PATH", "/usr/sbin").output();
        let printed = run.map(|run| [run.stdout, run.stderr].concat()).unwrap();
        let printed = String::from_utf8_lossy(&printed);
        assert!(printed.starts_with(words), "{program}: {printed}");
    }
}

#[test]
fn image_of_the_same_program_has_the_same_digest() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pack =
        |folder: &Path, tag| product::image(Flavour::Small, Path::new(DRIVER), product::NAME, tag, folder).unwrap();
    let (first, second) = (pack(one.path(), "1"), pack(other.path(), "1"));
    assert_eq!(first.digest, second.digest);
    assert!(fs::read(first.archive).unwrap() == fs::read(second.archive).unwrap());
    assert_eq!(pack(one.path(), "2").digest, first.digest, "the tag is no part of an image");
}

/// For who looks up whether a flaw is in it.
#[test]
fn image_comes_with_a_list_of_what_it_is_made_of() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let list = |folder: &Path| {
        let image = product::image(Flavour::Node, Path::new(DRIVER), product::NAME, "1", folder).unwrap();
        (image.digest, fs::read_to_string(folder.join("kosmos-csi-node-1.spdx.json")).unwrap())
    };
    let (digest, text) = list(one.path());
    assert_eq!(text, list(other.path()).1, "the same image has the same list");
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["spdxVersion"], "SPDX-2.3");
    let packages = document["packages"].as_array().unwrap();
    assert_eq!(packages[0]["checksums"][0]["checksumValue"], digest.trim_start_matches("sha256:"));
    let locators: Vec<&str> =
        packages.iter().filter_map(|package| package["externalRefs"][0]["referenceLocator"].as_str()).collect();
    for wanted in ["pkg:cargo/kosmos-csi@", "pkg:cargo/kube@", "pkg:cargo/tokio@"] {
        assert!(locators.iter().any(|locator| locator.starts_with(wanted)), "{wanted}");
    }
    assert!(!text.contains("pkg:cargo/proptest@"), "only tests use it");
    if Path::new("/var/lib/dpkg/status").exists() {
        for wanted in ["/e2fsprogs@", "/xfsprogs@", "/util-linux@", "/libc6@"] {
            assert!(locators.iter().any(|locator| locator.contains(wanted)), "{wanted} in {locators:?}");
        }
    }
    let named: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    assert!(named.contains(&"/etc/passwd"), "what is written is of no package: {named:?}");
    assert!(!named.iter().any(|name| name.contains("/ssl/")), "nobody is trusted because the packer's machine does");
    assert_eq!(document["relationships"].as_array().unwrap().len(), packages.len());
}

#[test]
fn slip_in_an_image_s_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (name, tag, words) in
        [("localhost/kosmos-csi:1", "1", "IMAGE"), ("localhost/", "1", "IMAGE"), ("a", "1/2", "TAG")]
    {
        let refusal = product::images(Path::new(DRIVER), name, tag, folder.path()).unwrap_err().to_string();
        assert!(refusal.contains(words), "{refusal}");
    }
}

/// Whoever makes the image: the script decides for `make image` and for the Dockerfile.
#[test]
fn mover_image_is_made_with_no_rsync_that_the_mover_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let (rsync, path) = (folder.path().join("rsync"), std::env::var("PATH").unwrap());
    for version in ["3.2.7", "3.4.9", "3.5.0", "3.10.0"] {
        let says = format!("rsync  version {version}  protocol version 32");
        fs::write(&rsync, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
        fs::set_permissions(&rsync, fs::Permissions::from_mode(0o755)).unwrap();
        let mut script = Command::new(product::ROOT);
        script.args(["mover", "/bin/true"]).arg(folder.path().join(version));
        let made = script.env("PATH", format!("{}:{path}", folder.path().display())).output().unwrap();
        assert_eq!(made.status.success(), mover::rsync_version(&says).is_ok(), "{version}: {made:?}");
    }
}

/// The lines of a Dockerfile's stage, one for each instruction, without its first one.
fn stage(file: &str, name: &str) -> Vec<String> {
    let whole = file.replace("\\\n", " ");
    let mut lines =
        whole.lines().skip_while(|line| !(line.starts_with("FROM ") && line.ends_with(&format!(" AS {name}"))));
    assert!(lines.next().is_some(), "there is no stage {name}");
    let own = lines.take_while(|line| !line.starts_with("FROM "));
    own.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// Each program of the node's image, and the package that has it.
fn node_programs(script: &str) -> impl Iterator<Item = (&str, &str)> {
    let rows = script.split("node_programs=(").nth(1).and_then(|rest| rest.split(')').next()).unwrap_or_default();
    rows.split(' ').filter_map(|row| row.split_once(':'))
}

#[test]
fn node_image_has_each_program_that_the_node_plugin_runs_on_a_disk() {
    let [script, source] = [product::ROOT, "crates/mount/src/device.rs"].map(|path| fs::read_to_string(path).unwrap());
    let begins = ["run(machine, \"", "run_well(machine, \"", "=> (\""];
    let named = begins.iter().flat_map(|begin| source.split(begin).skip(1)).filter_map(|rest| rest.split('"').next());
    let named: BTreeSet<&str> = named.collect();
    let there: BTreeSet<&str> = node_programs(&script).map(|(program, _)| program).collect();
    assert_eq!(there, named);
}

#[test]
fn dockerfile_makes_the_same_images_by_the_same_script() {
    let file = fs::read_to_string("Dockerfile").unwrap();
    assert!(stage(&file, "root").contains(&format!("COPY {} /root.sh", product::ROOT)));
    for flavour in Flavour::ALL {
        let (word, form) = (flavour.word(), flavour.form("image:1"));
        assert_eq!(
            stage(&file, &format!("{word}-root")).last().unwrap(),
            &format!("RUN /root.sh {word} /kosmos-csi /image")
        );
        let mut wanted = vec![format!("COPY --from={word}-root /image /"), format!("ENV PATH={}", form.path)];
        wanted.extend(form.user.map(|user| format!("USER {user}")));
        wanted.push(format!("ENTRYPOINT [{:?}]", form.entrypoint.unwrap()));
        assert_eq!(stage(&file, word), wanted);
        assert!(form.command.is_none() && file.contains(&format!("FROM scratch AS {word}\n")), "{word}");
    }
    let [makefile, script, toolchain] =
        ["Makefile", product::ROOT, "rust-toolchain.toml"].map(|path| fs::read_to_string(path).unwrap());
    let built = "--release --bin kosmos-csi --no-default-features";
    assert!(makefile.contains(&format!("build {built}\n")) && file.contains(&format!("{built}; ")));
    let channel = toolchain.split('"').nth(1).unwrap();
    assert!(file.contains(&format!("/rust:{channel}-slim-bookworm AS program\n")), "another compiler than {channel}");
    let packages: BTreeSet<&str> = node_programs(&script).map(|(_, package)| package).collect();
    let installed = stage(&file, "node-root").remove(0);
    for package in packages.into_iter().chain(["nfs-common"]) {
        assert!(installed.split(' ').any(|word| word == package), "{package} is not installed: {installed}");
    }
}

/// What stands in for the builder's programs writes down how it was called; the one that compiles, also by which linker.
fn builder(folder: &Path, own: &str) -> io::Result<()> {
    let log = folder.join("log");
    for program in ["rustup", "apt-get", "cargo", "install", "dpkg"] {
        let besides = match program {
            "dpkg" => format!("echo {own}"),
            "cargo" => format!("env | grep ^CARGO_TARGET >>{}", log.display()),
            _ => String::new(),
        };
        let stub = folder.join(program);
        fs::write(&stub, format!("#!/bin/sh\necho {program} \"$@\" >>{}\n{besides}\n", log.display()))?;
        fs::set_permissions(&stub, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// What the lines that build the program call, run as an engine runs them; none where they fail.
fn built(own: &str, target: &str, features: &str) -> io::Result<Option<Vec<String>>> {
    let folder = tempfile::tempdir()?;
    builder(folder.path(), own)?;
    let file = fs::read_to_string("Dockerfile")?;
    let file = file.replace("/cpu", &folder.path().join("cpu").display().to_string());
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    for line in stage(&file, "program").iter().filter_map(|line| line.strip_prefix("RUN ")) {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", line]).env_clear().envs([("PATH", &*path), ("TARGETARCH", target), ("FEATURES", features)]);
        if !shell.output()?.status.success() {
            return Ok(None);
        }
    }
    let log = fs::read_to_string(folder.path().join("log"))?;
    Ok(Some(log.lines().filter(|line| !line.starts_with("dpkg")).map(str::to_owned).collect()))
}

#[test]
fn dockerfile_builds_the_program_for_the_processor_that_is_asked_for() {
    let calls = |cpu: &str, cross: &[&str], features: &str| -> Vec<String> {
        let triple = format!("{cpu}-unknown-linux-gnu");
        let build = format!(
            "cargo build {features}--locked --target {triple} --release --bin kosmos-csi --no-default-features"
        );
        let linker = format!("CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_LINKER={cpu}-linux-gnu-gcc", cpu.to_uppercase());
        let install = format!("install target/{triple}/release/kosmos-csi /kosmos-csi");
        let add = format!("rustup target add {triple}");
        let cross = cross.iter().map(ToString::to_string);
        std::iter::once(add).chain(cross).chain([build, linker, install]).collect()
    };
    let cross = |packages: &str| format!("apt-get install --yes --no-install-recommends {packages}");
    let (amd, arm) =
        (cross("gcc-x86-64-linux-gnu libc6-dev-amd64-cross"), cross("gcc-aarch64-linux-gnu libc6-dev-arm64-cross"));
    assert_eq!(built("amd64", "amd64", "").unwrap(), Some(calls("x86_64", &[], "")));
    assert_eq!(built("arm64", "arm64", "otlp").unwrap(), Some(calls("aarch64", &[], "--features otlp ")));
    assert_eq!(built("amd64", "arm64", "").unwrap(), Some(calls("aarch64", &["apt-get update", &arm], "")));
    assert_eq!(built("arm64", "amd64", "").unwrap(), Some(calls("x86_64", &["apt-get update", &amd], "")));
    assert_eq!(built("amd64", "riscv64", "").unwrap(), None);
}

/// Its base is the release of Debian on which these tests run: what it installs has to be there under that name.
#[test]
fn dockerfile_installs_packages_that_debian_has() {
    let is_known = |package| Command::new("apt-cache").args(["show", "--no-all-versions", package]).output();
    let is_bookworm = fs::read_to_string("/etc/os-release").unwrap_or_default().contains("VERSION_CODENAME=bookworm");
    if !is_bookworm || !is_known("nfs-common").is_ok_and(|known| known.status.success()) {
        eprintln!("this is not Debian bookworm, or without apt's lists: the names of packages are not looked up");
        return;
    }
    let file = fs::read_to_string("Dockerfile").unwrap();
    let installed = file.lines().filter_map(|line| line.split_once("--no-install-recommends ")).map(|(_, names)| names);
    let is_name = |word: &&str| word.starts_with(|first: char| first.is_ascii_lowercase());
    let named: Vec<&str> = installed.flat_map(str::split_whitespace).filter(is_name).collect();
    assert!(named.len() > 4, "{named:?}");
    for package in named.into_iter().chain(["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"]) {
        let known = is_known(package).unwrap();
        assert!(known.status.success(), "{package}: {}", String::from_utf8_lossy(&known.stderr));
    }
}
