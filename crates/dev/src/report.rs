//! What is printed for the person who started it.

use std::{fmt::Write as _, net::SocketAddr};

use super::{
    HOST,
    folder::{Folder, quoted},
    objects,
};

pub(super) fn text(folder: &Folder, clusters: &[(String, SocketAddr)], page: SocketAddr, asleep: &[String]) -> String {
    let mut text = String::new();
    let members = clusters.len().saturating_sub(1);
    let count = if members == 1 { "one member".to_owned() } else { format!("{members} members") };
    let dir = folder.path().display();
    let typed = quoted(&dir.to_string());
    let host = format!("kubectl --kubeconfig {typed}/{HOST}.kubeconfig");
    let first = clusters.iter().map(|(name, _)| name.as_str()).find(|name| *name != HOST).unwrap_or_default();
    let example = "deploy/examples/nginx.yaml";
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "\nkosmos-csi dev: a host and {count}, simulated in this process. The driver is the real one; clusters,\n\
         scheduler, provisioner and storage are played, and whoever may use this machine may use them.\n\
         Never for production.\n\n"
    );
    for (name, address) in clusters {
        let _ = writeln!(text, "  {name:<10} http://{address:<22} {}", folder.kubeconfig(name).display());
    }
    let _ = writeln!(text, "  {:<10} {}", "driver", folder.socket().display());
    let _ = writeln!(text, "  {:<10} {}", "node", folder.node().socket.display());
    let _ = writeln!(text, "  {:<10} {dir}/volumes/<member>/<volume>", "volumes");
    let _ = writeln!(text, "  {:<10} http://{page}", "page");
    for member in asleep {
        let _ =
            writeln!(text, "  {member:<10} is kept and not started: start again with more --members to bring it back");
    }
    let _ = write!(
        text,
        "\nTry it in another terminal, from the checkout:\n\n\
         {host} apply -f {example}\n\
         for c in {HOST} {first}; do kubectl --kubeconfig {typed}/$c.kubeconfig -n {namespace} get all,pvc,pv -o wide; done\n\
         {host} delete -f {example}\n\n\
         Our own commands, such as:\n\n\
         source {typed}/env\n\
         kosmos-csi get volumes; kosmos-csi trace pvc/nginx-pvc -n {namespace}; kosmos-csi status\n\n\
         Ctrl-C ends all of it. If you start it again with {dir}, everything is still there; rm -r {typed} removes it.\n",
        namespace = objects::NAMESPACE,
    );
    text
}
