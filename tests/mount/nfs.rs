//! Volumes of one server, on a model of a machine.

use std::path::Path;

use domain::volume::backing::{Attached, Backing};

use crate::kinds::{Act, STAGING, all, attached, machine};

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
