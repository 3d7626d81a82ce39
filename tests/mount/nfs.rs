//! Volumes of one server, on a model of a machine.

use std::path::Path;

use domain::volume::backing::{Attached, Backing};

use crate::{
    fake::NFS,
    kinds::{Act, STAGING, all, attached, machine},
};

/// The kernel tells the root of all NFS as "/", also of a folder below it that is shown elsewhere.
#[test]
fn folder_that_the_machine_has_from_a_server_is_known_where_it_is_shown() {
    let kind = all().into_iter().find(|kind| kind.name == "local").unwrap();
    let fake = kind.machine();
    {
        let mut model = fake.change();
        model.add_mount("/mnt/disks", NFS, "/", "nfs4", "filer.example:/disks");
        model.folder("/mnt/disks/a");
    }
    for act in [Act::Stage, Act::Stage, Act::Publish(0), Act::Publish(0), Act::Unpublish(0), Act::Unstage] {
        kind.act(&fake, act).unwrap_or_else(|error| panic!("{act:?}: {error}"));
    }
    assert_eq!(fake.see().mounts.len(), 3, "the machine's own is left");
}

/// A kubelet unstages no volume while something else has its number and its root, and NFS has the same root for all that it mounts.
#[test]
fn volumes_of_one_server_are_told_apart_in_the_table_of_mounts() {
    for kind in all().into_iter().filter(|kind| kind.name.starts_with("nfs")) {
        let fake = kind.machine();
        kind.act(&fake, Act::Stage).unwrap();
        let beside = Backing::Nfs { server: "filer.example".to_owned(), path: "/export/beside".to_owned() };
        let beside = Attached { volume: "cluster38/shop/beside/0123456789abcdef".to_owned(), ..attached(beside) };
        let at = "/kubelet/beside/globalmount";
        fake.change().folder("/kubelet/beside");
        mount::stage::stage(&machine(&fake), &beside, Path::new(at), &kind.way).unwrap();
        let model = fake.see();
        let of = |path: &str| {
            let mounted = model.mounts.iter().find(|mounted| mounted.target == Path::new(path)).unwrap();
            (mounted.device, mounted.root.clone())
        };
        assert_ne!(of(STAGING), of(at), "{}", kind.name);
    }
}
