//! The calls, as a kernel answers them.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    time::Duration,
};

use mount::{
    Kernel,
    kernel::{Called, Ended, Failure, Filled, Left, NewMount, Number, Point, Seen},
    options::{Flags, name_of},
};

use super::{Content, Fake, Model, Mounted, NFS, NFS_AGAIN, What};

impl Kernel for Fake {
    fn mountinfo(&self) -> Called<String> {
        self.call(|model, _| Ok(model.mountinfo()))
    }

    fn resolve(&self, path: &Path) -> Called<PathBuf> {
        self.call(|model, _| model.resolved(path))
    }

    fn look(&self, path: &Path) -> Called<Seen> {
        self.call(|model, _| model.seen(path))
    }

    fn ask(&self, place: &Path, filesystem: Number) -> Called<Seen> {
        self.call(|model, _| {
            if model.silent_filesystems.contains(&filesystem) {
                return Err(Failure::Silent);
            }
            model.seen(place)
        })
    }

    fn is_empty(&self, folder: &Path) -> Called<bool> {
        self.call(|model, _| {
            let at = model.walk(folder)?;
            Ok(!model.has_entries(model.mounts[at.mount].device, &at.inner))
        })
    }

    fn make(&self, path: &Path, point: Point) -> Called<()> {
        self.call(|model, _| {
            let parent = model.walk(path.parent().unwrap())?;
            let (tree, inner) = (model.mounts[parent.mount].device, parent.inner.join(path.file_name().unwrap()));
            if model.trees[&tree].contains_key(inner.as_os_str()) {
                return Err(Failure::Exists);
            }
            let what = if point == Point::Folder { What::Folder } else { What::File(0) };
            model.new_node(tree, &inner, what);
            Ok(())
        })
    }

    fn remove(&self, path: &Path, point: Point) -> Called<()> {
        self.call(|model, _| {
            let parent = model.walk(path.parent().unwrap())?;
            let (tree, inner) = (model.mounts[parent.mount].device, parent.inner.join(path.file_name().unwrap()));
            if model.mounts.iter().any(|mounted| mounted.target == path) {
                return Err(Failure::Busy);
            }
            match (model.trees[&tree].get(inner.as_os_str()).map(|node| &node.what), point) {
                (None, _) => return Err(Failure::Missing),
                (Some(What::Folder), Point::Folder) if !model.has_entries(tree, &inner) => {}
                (Some(What::File(0)), Point::File) => {}
                _ => return Err(Failure::NotEmpty),
            }
            model.trees.get_mut(&tree).unwrap().remove(inner.as_os_str());
            Ok(())
        })
    }

    fn mount(&self, new: &NewMount, target: &Path) -> Called<()> {
        self.call(|model, _| {
            let NewMount { source, filesystem, flags, data } = new;
            model.mounts_asked.push(format!("{filesystem} {source} {data} {flags:?}"));
            model.mount(source, filesystem, flags, data, target)
        })
    }

    fn mount_by(&self, program: &str, source: &str, target: &Path, options: &str) -> Called<Ended> {
        self.call(|model, _| {
            if !model.has_mount_nfs {
                return Err(Failure::Missing);
            }
            model.mounts_asked.push(format!("{program} {source} -o {options}"));
            let options = format!("{options},addr=10.0.0.1");
            let flags = mount::options::flags_of(&options.split(',').map(str::to_owned).collect::<Vec<_>>());
            model.mount(source, "nfs4", &flags, &options, target)?;
            Ok(Ended { code: Some(0), ..Ended::default() })
        })
    }

    fn bind(&self, source: &Path, seen: &Seen, target: &Path) -> Called<()> {
        self.call(|model, _| {
            let now = model.seen(source)?;
            if (now.kind, now.mount, now.file) != (seen.kind, seen.mount, seen.file) {
                return Err(Failure::Other("replaced".to_owned()));
            }
            model.walk(target)?;
            let at = model.walk(source)?;
            let from = model.mounts[at.mount].clone();
            model.push(Mounted { root: at.inner, target: target.to_owned(), ..from });
            Ok(())
        })
    }

    fn remount(&self, target: &Path, flags: &Flags) -> Called<()> {
        self.call(|model, _| {
            let at = model.walk(target)?;
            let (id, now) = (model.mounts[at.mount].id, words(flags));
            let before = std::mem::replace(&mut model.mounts[at.mount].options, now);
            model.made_with.entry(id).or_insert(before);
            Ok(())
        })
    }

    fn unmount(&self, target: &Path, lazy: bool) -> Called<()> {
        self.call(|model, _| {
            model.walk(target.parent().unwrap())?;
            let is_below = |mounted: &Mounted| mounted.target != target && mounted.target.starts_with(target);
            let is_busy = model.busy.iter().any(|busy| busy == target) || model.mounts.iter().any(is_below);
            if is_busy && !lazy {
                return Err(Failure::Busy);
            }
            let at = model.mounts.iter().rposition(|mounted| mounted.target == target).ok_or(Failure::Unfit)?;
            let device = model.mounts[at].device;
            let is_last = model.mounts.iter().filter(|mounted| mounted.device == device).count() == 1;
            // All is written before it ends.
            let hangs = !lazy && is_last && model.silent_filesystems.contains(&device);
            assert!(!hangs, "the unmount of {} hangs", target.display());
            model.mounts.remove(at);
            // A lazy one takes along what is below.
            model.mounts.retain(|mounted| !is_below(mounted));
            if model.copied.iter().any(|copied| copied == target) {
                model.mounts.retain(|mounted| mounted.target != target);
            }
            Ok(())
        })
    }

    fn sync(&self, path: &Path) -> Called<()> {
        self.call(|model, _| {
            let device = model.mounts[model.walk(path)?.mount].device;
            model.unwritten.remove(&device);
            Ok(())
        })
    }

    fn filled(&self, path: &Path) -> Called<Filled> {
        self.call(|model, _| {
            model.walk(path)?;
            let left = Left { total: 100, free: 60, available: 50 };
            Ok(Filled { unit: 4096, blocks: left, files: left })
        })
    }

    fn give(&self, folder: &Path, group: u32) -> Called<u64> {
        self.call(|model, begun| {
            let at = model.walk(folder)?;
            let tree = model.trees.get_mut(&model.mounts[at.mount].device).unwrap();
            for (path, node) in tree.iter_mut().filter(|(path, _)| Path::new(path).starts_with(&at.inner)) {
                if *path == at.inner && begun {
                    continue;
                }
                node.group = group;
                node.mode |= if node.what == What::Folder { 0o2070 } else { 0o060 };
            }
            Ok(0)
        })
    }

    fn address(&self, _host: &str) -> Called<IpAddr> {
        self.call(|_, _| Ok(Ipv4Addr::new(10, 0, 0, 1).into()))
    }

    fn ids(&self, device: &Path) -> Called<Vec<String>> {
        self.call(|model, _| model.disks.get(device).map(|disk| disk.ids.clone()).ok_or(Failure::Missing))
    }

    fn device_size(&self, device: &Path) -> Called<u64> {
        self.call(|model, _| model.disks.get(device).map(|disk| disk.size).ok_or(Failure::Missing))
    }

    fn rescan(&self, _device: &Path) -> Called<()> {
        self.call(|_, _| Ok(()))
    }

    fn pause(&self, _time: Duration) {
        let mut model = self.change();
        model.pauses += 1;
        if model.hears_after == Some(model.pauses) {
            for disk in model.disks.values_mut() {
                disk.size = 2 << 30;
            }
        }
    }

    fn head(&self, device: &Path) -> Called<Vec<u8>> {
        self.call(|model, _| model.disks.get(device).map(super::Disk::head).ok_or(Failure::Missing))
    }

    fn is_held(&self, device: &Path) -> Called<bool> {
        self.call(|model, _| Ok(model.held.contains(device)))
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Called<Ended> {
        self.call(|model, begun| {
            let ended = model.run(program, arguments, begun);
            if let Some((_, ids)) = model.replaced_after.take_if(|(after, _)| *after == program) {
                model.replace_disk("sdb", ids);
            }
            Ok(ended)
        })
    }

    fn read(&self, file: &Path) -> Called<String> {
        self.call(|model, _| model.files.get(file).cloned().ok_or(Failure::Missing))
    }

    fn write(&self, file: &Path, text: &str) -> Called<()> {
        self.call(|model, begun| {
            if let Some(why) = model.unwritable {
                return Err(Failure::Other(why.to_owned()));
            }
            if !begun {
                model.files.insert(file.to_owned(), text.to_owned());
            }
            Ok(())
        })
    }

    fn erase(&self, file: &Path) -> Called<()> {
        self.call(|model, _| model.files.remove(file).map(drop).ok_or(Failure::Missing))
    }

    fn list(&self, folder: &Path) -> Called<Vec<PathBuf>> {
        self.call(|model, _| Ok(model.files.keys().filter(|file| file.starts_with(folder)).cloned().collect()))
    }
}

fn words(flags: &Flags) -> Vec<String> {
    let mut words: Vec<String> = flags.iter().map(|flag| name_of(*flag).to_owned()).collect();
    if !words.iter().any(|word| word == "ro") {
        words.insert(0, "rw".to_owned());
    }
    words
}

impl Model {
    fn mount(&mut self, source: &str, filesystem: &str, flags: &Flags, data: &str, target: &Path) -> Called<()> {
        self.walk(target)?;
        let device = if filesystem.starts_with("nfs") {
            assert!(data.contains("addr="), "the kernel needs the server's address: {data:?}");
            let is_there = self.mounts.iter().any(|mounted| mounted.device == NFS && mounted.source != source);
            let shares = !data.split(',').any(|option| option == "nosharecache");
            if shares || !is_there { NFS } else { NFS_AGAIN }
        } else {
            let disk = self.disks.get_mut(Path::new(source)).ok_or(Failure::Missing)?;
            if !matches!(&disk.content, Content::Filesystem { name, .. } if name == filesystem) {
                return Err(Failure::Unfit);
            }
            if filesystem == "xfs" && disk.has_errors {
                return Err(Failure::Broken);
            }
            disk.mounted += 1;
            disk.number
        };
        self.new_node(device, Path::new("/"), What::Folder);
        self.push(Mounted {
            id: 0,
            device,
            root: "/".into(),
            target: target.to_owned(),
            options: words(flags),
            filesystem: filesystem.to_owned(),
            source: source.to_owned(),
            super_options: words(flags)[0].clone(),
        });
        Ok(())
    }

    pub fn push(&mut self, mounted: Mounted) {
        self.next += 1;
        self.mounts.push(Mounted { id: self.next, ..mounted });
    }
}
