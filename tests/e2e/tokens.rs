//! Members' tokens on real API servers: renewed by who uses them, and ended with the Secret that they are bound to.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, Secret},
};
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use member::token::Token;
use rcgen::{KeyPair, SigningKey};
use serde_json::{Value, json};

use crate::{
    agent::{self, Agent},
    clusters::{Cluster, wait_for},
    pool::on_fleet,
    rig::{DRIVER_NAMESPACE, PATIENCE, PODS_NAMESPACE, Rig},
};

const MEMBER: &str = "cluster39";
const SECRET: &str = "kosmos-csi-tokens-test";
const LIFE: u64 = 600;
/// It was given long enough ago to be renewed, and has not ended.
const AGE: u64 = 400;
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// And a minute more.
const HALF_A_LIFE: Duration = Duration::from_mins(6);
/// The half of a signature.
const NUMBER: usize = 32;

fn base64url(bytes: &[u8]) -> String {
    let text = json!(ByteString(bytes.to_vec()));
    text.as_str().unwrap_or_default().trim_end_matches('=').replace('+', "-").replace('/', "_")
}

/// The two numbers of a signature as tokens have them, from how certificates have them.
fn plain(signature: &[u8]) -> Result<Vec<u8>> {
    let mut plain = Vec::new();
    let mut rest = signature.get(2..).context("a signature")?;
    for _ in 0..2 {
        let length = usize::from(*rest.get(1).context("a number")?);
        let number = rest.get(2..2 + length).context("a whole number")?;
        let number = &number[number.len().saturating_sub(NUMBER)..];
        plain.extend(vec![0; NUMBER - number.len()]);
        plain.extend(number);
        rest = &rest[2 + length..];
    }
    Ok(plain)
}

/// A token that this cluster gave some minutes ago.
async fn aged(cluster: &Cluster, account: &str, age: u64) -> Result<String> {
    let uid = |kind, name| async move {
        let get = ["-n", DRIVER_NAMESPACE, "get", kind, name, "-o", "jsonpath={.metadata.uid}"];
        cluster.kubectl(&get).await
    };
    let issued = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs() - age;
    let claims = json!({
        "iss": ISSUER, "aud": [ISSUER], "iat": issued, "nbf": issued, "exp": issued + LIFE,
        "sub": format!("system:serviceaccount:{DRIVER_NAMESPACE}:{account}"),
        "kubernetes.io": {
            "namespace": DRIVER_NAMESPACE,
            "serviceaccount": {"name": account, "uid": uid("serviceaccount", account).await?},
            "secret": {"name": SECRET, "uid": uid("secret", SECRET).await?},
        },
    });
    let head = json!({"alg": "ES256", "typ": "JWT"});
    let signed = format!("{}.{}", base64url(head.to_string().as_bytes()), base64url(claims.to_string().as_bytes()));
    let key = KeyPair::from_pem(&std::fs::read_to_string(cluster.token_key())?)?;
    let signature = base64url(&plain(&key.sign(signed.as_bytes())?)?);
    Ok(format!("{signed}.{signature}"))
}

/// The token in a member's Secret.
async fn kept(rig: &Rig, namespace: &str) -> Result<String> {
    let secret = Api::<Secret>::namespaced(rig.fleet.host().client().await?, namespace).get(MEMBER).await?;
    let text = secret.data.and_then(|mut data| data.remove("kubeconfig")).context("a kubeconfig")?;
    let kubeconfig: Value = serde_saphyr::from_str(std::str::from_utf8(&text.0)?)?;
    let token = kubeconfig.pointer("/users/0/user/token").and_then(Value::as_str);
    Ok(token.context("the Secret has a token")?.to_owned())
}

async fn is_renewed(rig: &Rig, namespace: &str, old: &str, within: Duration) -> Result<String> {
    wait_for(&format!("the token in {namespace} is renewed"), within, || async {
        let token = kept(rig, namespace).await?;
        if token == old {
            return Ok(None);
        }
        let (before, after) = (Token::read(old).context("a token")?, Token::read(&token).context("a token")?);
        ensure!(after.lifetime() == LIFE.cast_signed(), "it lives as long as the one before: {after:?}");
        ensure!(after.is_the_next_of(&before), "{after:?} after {before:?}");
        Ok(Some(token))
    })
    .await
}

async fn is_up(rig: &Rig, up: u8) -> Result<()> {
    wait_for(&format!("the member is served: {up}"), PATIENCE, || async {
        let line = format!("kosmos_csi_member_up{{member=\"{MEMBER}\"}} {up}");
        Ok(rig.driver.metrics().await?.contains(&line).then_some(()))
    })
    .await
}

#[test]
fn tokens_are_renewed_by_who_uses_them_and_end_with_their_secret() {
    on_fleet("tokens", async |rig| {
        let member = rig.fleet.member(MEMBER);
        member.kubectl(&["-n", DRIVER_NAMESPACE, "create", "secret", "generic", SECRET]).await?;
        let agent = Agent::start(rig).await?;
        let driver = aged(member, "kosmos-csi", AGE).await?;
        let usual = member.kubeconfig_for(DRIVER_NAMESPACE, "kosmos-csi").await?;
        rig.join_with(MEMBER, &with_token(&usual, &driver)?).await?;
        let pods = aged(member, agent::ACCOUNT, AGE).await?;
        let usual_of_pods = member.kubeconfig_for(DRIVER_NAMESPACE, agent::ACCOUNT).await?;
        agent::give(rig.fleet.host(), MEMBER, &with_token(&usual_of_pods, &pods)?).await?;
        tokio::try_join!(
            is_renewed(rig, DRIVER_NAMESPACE, &driver, PATIENCE),
            is_renewed(rig, PODS_NAMESPACE, &pods, PATIENCE)
        )?;
        is_up(rig, 1).await?;
        member.kubectl(&["-n", DRIVER_NAMESPACE, "delete", "secret", SECRET]).await?;
        let token = kept(rig, DRIVER_NAMESPACE).await?;
        // The API server believes what it knows for some seconds.
        wait_for("the token has ended", PATIENCE, || async { Ok(is_refused(member, &token).await?.then_some(())) })
            .await?;
        rig.driver.kill().await?;
        rig.driver.ensure(&rig.fleet).await?;
        is_up(rig, 0).await.context("its token ends with the Secret")?;
        rig.join_with(MEMBER, &usual).await?;
        is_up(rig, 1).await?;
        agent.end().await
    });
}

#[test]
#[ignore = "half an hour: make faults-real"]
fn token_of_ten_minutes_is_renewed_five_times_without_a_failed_call() {
    on_fleet("tokens-for-long", async |rig| {
        let member = rig.fleet.member(MEMBER);
        member.kubectl(&["-n", DRIVER_NAMESPACE, "create", "secret", "generic", SECRET]).await?;
        let usual = member.kubeconfig_for(DRIVER_NAMESPACE, "kosmos-csi").await?;
        let mut token = aged(member, "kosmos-csi", 0).await?;
        rig.join_with(MEMBER, &with_token(&usual, &token)?).await?;
        is_up(rig, 1).await?;
        for number in 1..=5 {
            token = is_renewed(rig, DRIVER_NAMESPACE, &token, HALF_A_LIFE).await?;
            println!("renewed {number} times");
            is_up(rig, 1).await?;
            let metrics = rig.driver.metrics().await?;
            let refused = |line: &&str| line.contains(MEMBER) && line.contains("code=\"401\"");
            let failed: Vec<&str> = metrics.lines().filter(refused).collect();
            ensure!(failed.is_empty(), "after {number} renewals: {failed:?}");
        }
        Ok(())
    });
}

async fn is_refused(cluster: &Cluster, token: &str) -> Result<bool> {
    let mut kubeconfig = Kubeconfig::read_from(cluster.kubeconfig())?;
    kubeconfig.auth_infos[0].auth_info = Some(serde_json::from_value(json!({"token": token}))?);
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let asked = Api::<Namespace>::all(Client::try_from(config)?).get("kube-system").await;
    Ok(asked.is_err_and(|error| matches!(error, kube::Error::Api(status) if status.code == 401)))
}

fn with_token(kubeconfig: &str, token: &str) -> Result<String> {
    let mut kubeconfig: Value = serde_saphyr::from_str(kubeconfig)?;
    kubeconfig["users"][0]["user"] = json!({"token": token});
    Ok(kubeconfig.to_string())
}
