//! Specs that are not run, each with the reason. Pure.

use super::parts::Scene;

#[derive(Clone, Copy, Debug)]
pub struct LeftOut {
    /// Part of the names of those that are meant.
    pub specs: &'static str,
    /// Where alone it is so; without it everywhere.
    pub scene: Option<Scene>,
    pub why: &'static str,
}

const fn everywhere(specs: &'static str, why: &'static str) -> LeftOut {
    LeftOut { specs, scene: None, why }
}

const fn on_virtual_nodes(specs: &'static str, why: &'static str) -> LeftOut {
    LeftOut { specs, scene: Some(Scene::Virtual), why }
}

const fn on_the_real_node(specs: &'static str, why: &'static str) -> LeftOut {
    LeftOut { specs, scene: Some(Scene::Real), why }
}

const TAINT: &str = "it picks a node that has no taint for its pods, and a virtual node always has one";
const NO_EVENTS: &str = "it waits for events of a pod that does well, and of such copies the host is told none";
const REGISTRY: &str = "it pulls images from the internet";

#[rustfmt::skip] // one row, one line
pub const LEFT_OUT: [LeftOut; 26] = [
    everywhere("[Disruptive]", "it stops a node's kubelet by ssh"),
    everywhere("[Feature:Windows]", "no node here has Windows"),
    everywhere("(ntfs)", "no node here has Windows"),
    everywhere("when running a container with a new image", REGISTRY),
    everywhere("ImageVolume", REGISTRY),
    everywhere("with any volume data source", "it runs a populator, whose image is not to be had here"),
    everywhere("when creating containers with AllowPrivilegeEscalation", "its image has a program that root has given his rights to, which is not to be had here"),
    everywhere("should have their auto-restart back-off timer reset on image update", "it wants an image of nginx, which is not to be had here"),
    everywhere("should cap back-off at MaxContainerBackOff", "it waits for half an hour"),
    everywhere("should enable privileged commands", "it makes a dummy network device, which not every kernel has"),
    everywhere("multiple pods should modify volumes", "it changes the class of claims that wait for their first pod, which nobody may"),
    everywhere("(block volmode)] multiVolume [Slow] should concurrently access the single volume from pods on the same node", "its dd has an option that busybox' has not"),
    everywhere("HostPath", "it writes to the /tmp of its node, which here is that of the machine that runs the tests"),
    everywhere("volume-expand Verify if offline", "it waits for a larger volume that no pod uses, and the claim is larger here once a pod has let its filesystem grow"),
    on_the_real_node("(Always)[LinuxOnly], pod created with an initial fsgroup, volume contents ownership changed via chgrp in first pod, new pod with same fsgroup", "the kubelet leaves the group to the driver, and does not tell it the policy"),
    on_virtual_nodes("Container Lifecycle Hook", TAINT),
    on_virtual_nodes("NodeLease", TAINT),
    on_virtual_nodes("on different node", TAINT),
    on_virtual_nodes("topology should", TAINT),
    on_virtual_nodes("with pvc data source", TAINT),
    on_virtual_nodes("non-local redirect http liveness probe", NO_EVENTS),
    on_virtual_nodes("should support sysctls", NO_EVENTS),
    on_virtual_nodes("Pod InPlace Resize", "resources of a pod that runs are not passed on to its copy: ResizeNotCopied"),
    on_virtual_nodes("should contain environment variables for services", "a copy has the variables of its member's Services"),
    on_virtual_nodes("should not mount / map unused volumes in a pod", "it looks for the pod's UID in its node's folders, where the copy's is"),
    on_virtual_nodes("should block a second pod from using an in-use ReadWriteOncePod volume", "it waits for what a kubelet says; in a member the scheduler keeps the copy back"),
];

/// Why a spec is not run there.
pub fn why(name: &str, scene: Scene) -> Option<&'static str> {
    let applies = |row: &&LeftOut| name.contains(row.specs) && row.scene.is_none_or(|only| only == scene);
    LEFT_OUT.iter().find(applies).map(|row| row.why)
}

/// Rows that mean no spec that there is: they are to go, or to be written as the specs are called by now.
pub fn meaningless(all: &[String]) -> Vec<&'static str> {
    let rows = LEFT_OUT.iter().filter(|row| !all.iter().any(|name| name.contains(row.specs)));
    rows.map(|row| row.specs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_is_left_out_where_its_row_says_so() {
        let lease = "[sig-node] NodeLease NodeLease should have OwnerReferences set [NodeConformance]";
        assert_eq!((why(lease, Scene::Virtual), why(lease, Scene::Real)), (Some(TAINT), None));
        assert!(why("[sig-node] X [Disruptive]", Scene::Real).is_some());
        assert_eq!(why("[sig-node] Pods should be updated", Scene::Virtual), None);
    }

    #[test]
    fn row_that_means_no_spec_is_told() {
        let all = LEFT_OUT.map(|row| format!("a {} b", row.specs));
        assert_eq!(meaningless(&all), [] as [&str; 0]);
        assert_eq!(meaningless(&all[1..]), [LEFT_OUT[0].specs]);
    }
}
