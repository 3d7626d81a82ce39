//! What a host is to have in a member: as it is said, or else as it was before. Who types `member add` again to renew tokens means no more.

use anyhow::bail;
use k8s_openapi::api::core::v1::Secret;

use super::{bindings, secret};
use crate::{
    args::operator::Add,
    run::{Misuse, operator::connect::Admin},
};
use domain::volume::namespaces::Namespaces;
use host::Host;
use member::kubeconfig as rules;
use operator::{
    kubeconfig::{self, Reach},
    objects::{ATTACH_ROLE, MOVES_ROLE, Uses},
};

pub(super) struct Scope {
    /// What it is for.
    pub(super) uses: Uses,
    /// Where the driver's account has rights.
    pub(super) namespaces: Namespaces,
    /// How the host has reached it until now.
    pub(super) reach: Option<Reach>,
    is_of_before: bool,
}

impl Scope {
    pub(super) fn said(flags: &Add) -> Result<Self, Misuse> {
        let namespaces = Namespaces::named(flags.namespace.iter().map(String::as_str));
        let namespaces = namespaces.map_err(|reason| Misuse(format!("--namespace: {reason}")))?;
        let uses = Uses {
            pods: !flags.volumes_only,
            attach: flags.attach,
            moves: flags.moves,
            volume_stats: flags.volume_stats,
        };
        Ok(Self { uses, namespaces, reach: None, is_of_before: false })
    }

    /// `secret`: by which the host's driver knows the member already. A former cluster of this host has given its Secrets to nobody, and
    /// its rights are known by their bindings alone.
    pub(super) async fn of(
        flags: &Add,
        admin: &Admin,
        host: &Host,
        agents: &Host,
        secret: Option<&Secret>,
    ) -> anyhow::Result<Self> {
        let mut scope = Self::in_namespaces(flags, admin, host, agents, secret).await?;
        let Uses { attach, moves, .. } = &mut scope.uses;
        *attach |= bindings::has(&admin.client, ATTACH_ROLE, &host.id.0).await?;
        // Without rights in the whole member they are of no use.
        *moves |= scope.namespaces == Namespaces::All && bindings::has(&admin.client, MOVES_ROLE, &host.id.0).await?;
        Ok(scope)
    }

    async fn in_namespaces(
        flags: &Add,
        admin: &Admin,
        host: &Host,
        agents: &Host,
        secret: Option<&Secret>,
    ) -> anyhow::Result<Self> {
        let mut scope = Self::said(flags)?;
        let text = secret.and_then(secret::kubeconfig);
        scope.reach = text.as_deref().and_then(kubeconfig::reach);
        let is_said = flags.pods || flags.volumes_only || !flags.pods_in.is_empty();
        if is_said || secret.is_none() && !flags.take_over {
            return Ok(scope);
        }
        let said = text.as_deref().map(rules::namespaces);
        let has_agents = !secret::of_member(agents, &flags.name).await?.is_empty();
        // What cannot be read is written again by what the bindings say: it means no more.
        let before = before(admin, host, said.clone().and_then(Result::ok), has_agents).await?;
        let Some(before) = before else {
            if let Some(Err(reason)) = said {
                bail!(
                    "the host's Secret of this member cannot be read ({reason}), and nothing in the member tells which rights this host had: give \
                     --pods, or --volumes-only with the namespaces. Nothing was written"
                );
            }
            return Ok(scope);
        };
        (scope.uses.pods, scope.namespaces) = before;
        scope.is_of_before = !scope.uses.pods;
        if flags.volume_stats && !scope.uses.pods {
            bail!(
                "--volume-stats reports only volumes of this host's pods, and none run in this member: give --pods as well. Nothing was written"
            );
        }
        if flags.moves && scope.namespaces != Namespaces::All {
            bail!(
                "the account of this host has rights in {} alone, but moves need them in the whole member: give --volumes-only or --pods as \
                 well. Nothing was written",
                scope.namespaces
            );
        }
        Ok(scope)
    }

    /// What somebody may have meant otherwise.
    pub(super) fn told(&self) -> String {
        match &self.namespaces {
            _ if !self.is_of_before => String::new(),
            Namespaces::All => {
                "The member is for volumes alone, as before. To run this host's pods there too, give --pods.\n"
                    .to_owned()
            }
            only @ Namespaces::Only(_) => format!(
                "The member is for volumes in {only} alone, as before. For other namespaces, give --volumes-only with them, or without any for all; to \
                 run this host's pods there too, give --pods.\n"
            ),
        }
    }
}

/// Pods, and namespaces. What the host's Secrets say counts first, as a right that somebody has taken away in the member is to be given again;
/// its bindings tell what no Secret does.
async fn before(
    admin: &Admin,
    host: &Host,
    said: Option<Namespaces>,
    has_agents: bool,
) -> anyhow::Result<Option<(bool, Namespaces)>> {
    let given = bindings::given(&admin.client, &host.id.0);
    Ok(match said {
        None => given.await?,
        Some(Namespaces::All) => {
            let (pods, namespaces) = given.await?.unwrap_or_default();
            Some((pods || has_agents && namespaces == Namespaces::All, namespaces))
        }
        // The agent's account is held to no namespaces.
        Some(only @ Namespaces::Only(_)) => {
            bindings::are_there(&admin.client, &only).await?;
            Some((false, only))
        }
    })
}
