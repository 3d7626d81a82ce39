//! Volumes of every kind, and what a kubelet does with one from beginning to end.

use std::{collections::BTreeMap, path::Path};

use domain::{
    error::Result,
    volume::{
        VolumeMode,
        backing::{AttachMode, Attached, Backing, CsiLeaf, GroupPolicy},
    },
};
use mount::{Access, Expanded, Machine, Permitted, Progress, VolumeUse};

use crate::fake::{Content, Fake, LEAF};

pub const VOLUME: &str = "cluster38/shop/data/0123456789abcdef";
pub const KUBELET: &str = "/kubelet";
pub const STAGING: &str = "/kubelet/plugins/kubernetes.io/csi/kosmos.csi.io/abc/globalmount";
pub const TARGETS: [&str; 2] =
    ["/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-1/mount", "/kubelet/pods/u2/volumes/kubernetes.io~csi/pv-1/mount"];
pub const GROUP: u32 = 2000;

/// A volume, and how it is used.
#[derive(Clone, Debug)]
pub struct Kind {
    pub name: &'static str,
    pub attached: Attached,
    pub way: VolumeUse,
    pub readonly: bool,
    pub has_mount_nfs: bool,
    pub disk: Option<Content>,
}

pub fn attached(backing: Backing) -> Attached {
    Attached { volume: VOLUME.to_owned(), mode: AttachMode::None, backing, options: vec![], readonly: false }
}

pub fn way() -> VolumeUse {
    VolumeUse {
        access: Access::SingleNodeMultiWriter,
        mode: VolumeMode::Filesystem,
        filesystem: String::new(),
        flags: vec!["noatime".to_owned()],
        group: Some(GROUP),
    }
}

pub fn device(filesystem: &str) -> Backing {
    Backing::Device { names: vec!["id-absent".to_owned(), "id-sdb".to_owned()], filesystem: filesystem.to_owned() }
}

pub fn leaf() -> CsiLeaf {
    CsiLeaf {
        driver: "storage.example".to_owned(),
        handle: "vol-1".to_owned(),
        filesystem: "ext4".to_owned(),
        context: BTreeMap::from([("device".to_owned(), "sdc".to_owned())]),
        group_policy: GroupPolicy::Always,
        ..CsiLeaf::default()
    }
}

pub fn all() -> Vec<Kind> {
    let kind = |name, backing, disk| Kind {
        name,
        attached: attached(backing),
        way: way(),
        readonly: false,
        has_mount_nfs: false,
        disk,
    };
    let nfs = || Backing::Nfs { server: "filer.example".to_owned(), path: "/export".to_owned() };
    let local = |path: &str| Backing::Local { path: path.to_owned() };
    let block =
        |kind: Kind| Kind { way: VolumeUse { mode: VolumeMode::Block, flags: vec![], group: None, ..way() }, ..kind };
    let there = |name: &str| Some(Content::Filesystem { name: name.to_owned(), size: 1 << 29 });
    vec![
        kind("nfs by the kernel", nfs(), None),
        Kind { has_mount_nfs: true, readonly: true, ..kind("nfs by its program", nfs(), None) },
        kind("local", local("/mnt/disks/a"), None),
        Kind { readonly: true, ..kind("local read-only", local("/mnt/disks/a"), None) },
        block(kind("local raw", local("/dev/sdb"), Some(Content::Bytes))),
        kind("blank disk", device(""), Some(Content::Blank)),
        kind("blank disk for xfs", device("xfs"), Some(Content::Blank)),
        Kind { readonly: true, ..kind("disk with ext4 to grow", device(""), there("ext4")) },
        kind("disk with xfs to grow", device(""), there("xfs")),
        block(kind("raw disk", device(""), Some(Content::Bytes))),
        kind("csi", Backing::Csi(leaf()), None),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Stage,
    Publish(usize),
    Expand,
    Unpublish(usize),
    Unstage,
}

pub const LIFE: [Act; 7] =
    [Act::Stage, Act::Publish(0), Act::Publish(1), Act::Expand, Act::Unpublish(0), Act::Unpublish(1), Act::Unstage];

impl Kind {
    pub fn machine(&self) -> Fake {
        let fake = Fake::new();
        {
            let mut model = fake.change();
            model.has_mount_nfs = self.has_mount_nfs;
            if let Some(content) = &self.disk {
                model.add_disk("sdb", (8, 16), content.clone());
            }
            for path in [STAGING, TARGETS[0], TARGETS[1]] {
                model.folder(Path::new(path).parent().unwrap().to_str().unwrap());
            }
        }
        fake
    }

    /// Whether its stage mounts it.
    pub fn is_mounted_where_staged(&self) -> bool {
        !self.way.mode.is_block() && !matches!(self.attached.backing, Backing::Local { .. })
    }

    /// What a call does, with the leaf driver's part in it.
    pub fn act(&self, fake: &Fake, act: Act) -> Result<()> {
        let machine = machine(fake);
        let (staging, target) = (Path::new(STAGING), |number: usize| Path::new(TARGETS[number]));
        match act {
            Act::Stage => {
                if let Progress::Ask(_) = mount::stage::stage(&machine, &self.attached, staging, &self.way)? {
                    leaf_mounts(fake, STAGING);
                }
            }
            Act::Publish(number) => {
                let target = target(number);
                let step =
                    mount::publish::publish(&machine, &self.attached, staging, target, &self.way, self.readonly)?;
                if let Progress::Ask(_) = step {
                    leaf_mounts(fake, TARGETS[number]);
                    mount::publish::own(&machine, VOLUME, target)?;
                }
            }
            Act::Expand => {
                let grown = mount::measure::expand(&machine, VOLUME, staging, 0)?;
                assert_eq!(matches!(grown, Expanded::Ask(_)), self.name == "csi");
            }
            Act::Unpublish(number) => {
                if let Progress::Ask(_) = mount::undo::unpublish(&machine, VOLUME, target(number))? {
                    leaf_unmounts(fake, TARGETS[number]);
                    mount::undo::unpublished(&machine, VOLUME, target(number))?;
                }
            }
            Act::Unstage => {
                if let Progress::Ask(_) = mount::undo::unstage(&machine, VOLUME, staging)? {
                    leaf_unmounts(fake, STAGING);
                    mount::undo::unstaged(&machine, VOLUME, staging)?;
                }
            }
        }
        Ok(())
    }
}

pub fn machine(fake: &Fake) -> Machine<Fake> {
    let permitted = Permitted {
        leaf_drivers: vec![leaf().driver],
        nfs_servers: vec!["filer.example".to_owned()],
        // Everything: what a machine shows to nobody is refused whatever its administrator has permitted.
        local_folders: ["/", "/dev"].map(Into::into).into(),
    };
    machine_with(fake, permitted)
}

pub fn machine_with(fake: &Fake, permitted: Permitted) -> Machine<Fake> {
    let state = format!("{KUBELET}/plugins/kosmos.csi.io/volumes");
    Machine::new(fake.clone(), state.into(), "/dev/disk".into(), KUBELET.into(), permitted)
}

fn leaf_mounts(fake: &Fake, path: &str) {
    if !fake.is_mounted(path) {
        fake.change().add_mount(path, LEAF, "/", "ext4", "/dev/sdc");
    }
}

fn leaf_unmounts(fake: &Fake, path: &str) {
    fake.change().mounts.retain(|mounted| mounted.target != Path::new(path));
}
