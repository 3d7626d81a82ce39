//! `ui`: the controller's page on this machine, through the host's API server. Whoever may forward a port of that pod may see it.

use std::{
    net::Ipv4Addr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, bail};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{Api, Client};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional},
    net::TcpListener,
};

use super::{
    Report, connect,
    print::{out, patiently, progress},
};
use crate::{args::operator::Ui, run::Misuse};
use cluster::{Dial, lease, with_causes};
use domain::volume::id::is_subdomain;

/// Where a controller of the chart shows it, in its pod.
const PORT: u16 = 9813;
const PATIENCE: Duration = Duration::from_secs(20);
/// After a connection that went away before it was taken.
const PAUSE: Duration = Duration::from_millis(100);
/// Something of the page that is always there.
const QUESTION: &[u8] = b"GET /icon.svg HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// The pod behind the page: another one, once that one leads no more and has gone.
#[derive(Clone)]
struct ForwardedPod {
    client: Client,
    namespace: String,
    pod: Arc<Mutex<String>>,
    /// Somebody chose it.
    is_fixed: bool,
}

pub(super) async fn ui(flags: &Ui, dial: &Dial) -> anyhow::Result<Report> {
    let client = connect::user(&flags.access, dial).await?;
    let namespace = flags.members_namespace.clone();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, flags.port)).await.map_err(|error| {
        Misuse(format!(
            "this command cannot use port {} of this machine: {error}; choose another by --port",
            flags.port
        ))
    })?;
    let pod = match &flags.pod {
        Some(pod) => pod.clone(),
        None => patiently("asking the host who leads", leader(&client, &namespace)).await?,
    };
    let way = ForwardedPod { client, namespace, pod: Arc::new(Mutex::new(pod)), is_fixed: flags.pod.is_some() };
    patiently("connecting to the controller", way.is_there()).await?;
    out(&format!(
        "http://{}/ shows what controller {} knows of members and volumes, until you end this command (Ctrl-C)\n",
        listener.local_addr()?,
        way.pod()
    ))?;
    tokio::select! {
        never = serve(&listener, &way) => match never {},
        _ = tokio::signal::ctrl_c() => Ok(Report::well(String::new())),
    }
}

async fn serve(listener: &TcpListener, way: &ForwardedPod) -> std::convert::Infallible {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let way = way.clone();
        tokio::spawn(async move {
            if let Err(error) = way.forward(stream).await {
                progress(&format!("controller {} does not answer: {error:#}", way.pod()));
                way.look_for_another().await;
            }
        });
    }
}

/// Its holder is named after the pod.
async fn leader(client: &Client, namespace: &str) -> anyhow::Result<String> {
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    let answer = cluster::read(leases.get(lease::CONTROLLER).await, lease::CONTROLLER);
    let found = answer.map_err(|error| {
        anyhow::anyhow!(
            "this command cannot read which controller leads: {}; name a pod of the controller by --pod",
            with_causes(&error)
        )
    })?;
    let was_held = found.is_some();
    let holder = found.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
    anyhow::ensure!(
        !was_held || !holder.is_empty(),
        "no controller leads in namespace {namespace} just now: try again in some seconds, or see `kosmos-csi status`"
    );
    // Whoever may write the lease is not to say which path of the API server an administrator asks.
    let pod = holder.rsplit_once('_').map(|(pod, _)| pod.to_owned()).filter(|pod| is_subdomain(pod));
    pod.with_context(|| {
        format!(
            "no controller in a pod leads in namespace {namespace}: name the driver's namespace by --members-namespace"
        )
    })
}

impl ForwardedPod {
    fn pod(&self) -> String {
        self.pod.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn look_for_another(&self) {
        if self.is_fixed {
            return;
        }
        if let Ok(leader) = leader(&self.client, &self.namespace).await {
            *self.pod.lock().unwrap_or_else(PoisonError::into_inner) = leader;
        }
    }

    /// Whether there is a page, said before anybody opens it.
    async fn is_there(&self) -> anyhow::Result<()> {
        let (mut ours, theirs) = tokio::io::duplex(4096);
        let asked = async {
            ours.write_all(QUESTION).await?;
            let mut answer = vec![0; 12];
            ours.read_exact(&mut answer).await.map(|_| answer)
        };
        let asked = async {
            tokio::select! {
                answer = asked => Ok(answer),
                forwarded = self.forward(theirs) => forwarded.map(|()| Err(std::io::ErrorKind::UnexpectedEof.into())),
            }
        };
        let answer = tokio::time::timeout(PATIENCE, asked).await.context("it does not answer");
        let answer = answer.and_then(|answer| answer).with_context(|| format!("controller {}", self.pod()))?;
        match answer {
            Ok(answer) if answer == b"HTTP/1.1 200" => Ok(()),
            _ => bail!("controller {} shows no page: set ui.enabled in the chart's values", self.pod()),
        }
    }

    async fn forward(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> anyhow::Result<()> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.namespace);
        let forwarding = pods.portforward(&self.pod(), &[PORT]).await;
        let mut forwarder = forwarding.map_err(|error| anyhow::anyhow!("{}", with_causes(&error)))?;
        let mut page = forwarder.take_stream(PORT).context("its port is not forwarded")?;
        // Who goes away in the middle is no fault of anybody's.
        let _ = copy_bidirectional(&mut stream, &mut page).await;
        drop(page);
        forwarder.abort();
        Ok(())
    }
}
