//! The work on one member: prove who it is, follow its leaves, and notice when it goes away and comes back.

use std::{convert::Infallible, future::pending, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::time::{Instant, sleep};

use super::{
    CONNECTING_AGAIN, Identity, Link, Member, Scope,
    openings::{Opening, Openings},
};
use cluster::{QUESTIONS, with_causes};
use host::pins::{Pin, Pinning};

/// Runs until it is dropped.
pub(super) async fn run(member: &Member, pinning: &Pinning, openings: &Openings) {
    let Ok(link) = &member.link else { return };
    let (role, mut before_listing) = (link.tracked.role(), BEFORE_LISTING);
    loop {
        let (identity, opening) = prove(member, link, pinning, openings).await;
        tracing::info!(member = member.name, identity, role, "the member is connected");
        let connected = Instant::now();
        let has_changed = tokio::select! {
            biased;
            () = leaf::snapshot::watch::keep(&link.leaf), if link.tracked == Scope::Leaves => true,
            () = leaf::watch::keep(&link.leaf), if link.tracked == Scope::Leaves => true,
            () = link.doubted.notified() => true,
            () = watch_over(member, link, &identity, openings) => {
                let reason = link.line.breaker.open();
                tracing::warn!(member = member.name, reason, role, "the member does not answer");
                false
            }
            never = open(link, opening) => match never {},
        };
        if has_changed {
            let seconds = before_listing.as_secs();
            tracing::info!(member = member.name, seconds, role, "the member is listed again after a pause");
            if before_listing > BEFORE_LISTING {
                link.leaf.rows.unsync();
            }
            let held = connected.elapsed();
            sleep(before_listing).await;
            before_listing = next_pause(before_listing, held);
        }
        link.set(Identity::Connecting(CONNECTING_AGAIN));
    }
}

/// A member that says again and again that all has changed is read less and less, or it would take the time of the others.
fn next_pause(before: Duration, held: Duration) -> Duration {
    if held > CALM { BEFORE_LISTING } else { (before * 2).min(LONGEST_BEFORE_LISTING) }
}

/// Until its leaves are listed it is being opened.
async fn open(link: &Link, mut opening: Opening) -> Infallible {
    if link.tracked == Scope::Leaves {
        opening.go_on(link.leaf.rows.listed()).await;
    }
    drop(opening);
    pending().await
}

/// Tries until the member has said who it is and that is who it should be. Only then is it asked anything else.
async fn prove(member: &Member, link: &Link, pinning: &Pinning, openings: &Openings) -> (String, Opening) {
    let mut pauses = pauses();
    let (mut told, mut is_silent) = (String::new(), false);
    loop {
        let mut opening = if is_silent { Opening::without_place() } else { openings.begin().await };
        match opening.go_on(Box::pin(ask(member, link, pinning))).await {
            Ok(identity) => {
                let opening = opening.placed(openings).await;
                link.line.breaker.close();
                link.leaf.rows.unsync();
                link.set(Identity::Proven(identity.clone()));
                return (identity, opening);
            }
            Err(identity) => {
                // Its token is renewed, and nothing else would close what a request for that has opened.
                if matches!(identity, Identity::Alias(_)) {
                    link.line.breaker.close();
                }
                tell(member, link, &identity, &mut told);
                link.set(identity);
            }
        }
        is_silent = opening.has_outlived();
        drop(opening);
        sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
    }
}

/// Who it is, or what keeps it from being used.
async fn ask(member: &Member, link: &Link, pinning: &Pinning) -> Result<String, Identity> {
    let answer = host::identity_and_origin(&link.line.probe).await;
    let (identity, origin) = answer.map_err(|error| Identity::Unproven(refusal(&error)))?;
    match pinning.pin(&member.name, &identity).await {
        Ok(Pin::Held) => {
            link.line.origins.said_by(&identity, &origin);
            Ok(identity)
        }
        Ok(Pin::SameAs { name }) => Err(Identity::Alias(name)),
        Ok(pin @ Pin::Moved { .. }) => {
            link.line.origins.said_by_another(&origin);
            Err(Identity::Quarantined(quarantined(&pin, &identity)))
        }
        Err(error) => Err(Identity::Unproven(error.to_string())),
    }
}

/// What keeps the member from being used, once.
fn tell(member: &Member, link: &Link, identity: &Identity, told: &mut String) {
    let (Identity::Unproven(news) | Identity::Quarantined(news) | Identity::Alias(news)) = identity else { return };
    if news == told {
        return;
    }
    told.clone_from(news);
    let role = link.tracked.role();
    if let Identity::Alias(serving) = identity {
        tracing::warn!(
            member = member.name,
            serving,
            role,
            "the member is another name of a cluster that the driver knows already: it gets no new volumes under this \
             name"
        );
    } else {
        tracing::warn!(member = member.name, reason = news, role, "the member cannot be used; the driver tries again");
    }
}

/// Returns once the member no longer answers as the cluster it was. A request that failed while the member is well, as
/// asking again shows, interrupts nothing else. That is done at once, or once it has its turn among many that have failed: until then it
/// stays closed, and is taken for nothing else.
async fn watch_over(member: &Member, link: &Link, identity: &str, openings: &Openings) {
    loop {
        link.line.breaker.failure().await;
        link.line.breaker.may_close().await;
        let mut asking = openings.ask_again().await;
        if !asking.go_on(is_still(link, identity)).await {
            return;
        }
        for origin in link.line.origins.settle() {
            let role = link.tracked.role();
            tracing::warn!(
                member = member.name,
                origin,
                role,
                "answers of the member name a FlowSchema and a priority level that its answer about its identity did \
                 not name: the driver takes them for the member's own"
            );
        }
        link.line.breaker.close();
    }
}

/// Whether the member says that it is this cluster: once, or where something has come that may be another cluster's, as often as it takes
/// until it has said so under the same FlowSchema, or that cannot be by chance.
async fn is_still(link: &Link, identity: &str) -> bool {
    let origins = &link.line.origins;
    for _ in 0..QUESTIONS {
        let Ok((answer, origin)) = host::identity_and_origin(&link.line.probe).await else { return false };
        if answer != identity {
            origins.said_by_another(&origin);
            return false;
        }
        origins.said_by(identity, &origin);
        if !origins.are_in_doubt() {
            break;
        }
    }
    true
}

/// Why a member is not used, in words.
pub fn quarantined(pin: &Pin, identity: &str) -> String {
    match pin {
        Pin::Moved { pinned } => format!(
            "its kubeconfig leads to cluster {identity}, but this name has always meant {pinned}: \
             correct the kubeconfig, or give the new cluster a name of its own"
        ),
        Pin::SameAs { name } => {
            format!("it is the same cluster ({identity}) as member {name}: remove one of the two")
        }
        Pin::Held => String::new(),
    }
}

/// What a member has answered instead of who it is.
pub fn refusal(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            "it refuses the credentials of its kubeconfig (expired or revoked?)".to_owned()
        }
        kube::Error::Api(status) => status.message.clone(),
        other => with_causes(other),
    }
}

/// A member that cuts every watch is not to be listed in circles.
const BEFORE_LISTING: Duration = Duration::from_secs(1);
const LONGEST_BEFORE_LISTING: Duration = Duration::from_secs(32);
/// After which a member is taken for one that holds still.
const CALM: Duration = Duration::from_mins(2);
/// As much again comes by chance.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

fn pauses() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(300))
        .with_max_delay(LONGEST_PAUSE)
        .with_jitter()
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_that_is_listed_in_circles_is_listed_less_and_less_until_it_holds_still() {
        let mut pause = BEFORE_LISTING;
        let pauses = [(); 7].map(|()| {
            pause = next_pause(pause, Duration::from_secs(40));
            pause.as_secs()
        });
        assert_eq!(pauses, [2, 4, 8, 16, 32, 32, 32]);
        assert_eq!(next_pause(pause, CALM + Duration::from_secs(1)), BEFORE_LISTING);
    }
}
