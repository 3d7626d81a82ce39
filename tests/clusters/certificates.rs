//! A cluster's own authority, the certificates it signs, and the kubeconfigs made of them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::{Value, json};

/// Signs what a cluster needs and writes it to the cluster's folder.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn create(folder: &Path, cluster: &str) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, format!("{cluster}-ca"));
        let certificate = params.self_signed(&key)?.pem();
        fs::write(folder.join("ca.crt"), &certificate)?;
        fs::write(folder.join("ca.key"), key.serialize_pem())?;
        let issuer = Issuer::new(params, key);
        Ok(Self { folder: folder.to_owned(), certificate, issuer })
    }

    /// A server's certificate, `<file>.crt` and `<file>.key`, for names and addresses.
    pub fn server(&self, file: &str, names: &[&str]) -> Result<()> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        self.sign(file, CertificateParams::new(names)?).map(drop)
    }

    /// A client's certificate and key: Kubernetes takes the user from the common name, the group from the organization.
    pub fn client(&self, file: &str, user: &str, group: Option<&str>) -> Result<Credentials> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        let (certificate, key) = self.sign(file, params)?;
        Ok(Credentials::Certificate { certificate, key })
    }

    /// The pair of keys that service account tokens are signed and checked with.
    pub fn token_keys(&self) -> Result<()> {
        let key = KeyPair::generate()?;
        fs::write(self.folder.join("tokens.key"), key.serialize_pem())?;
        fs::write(self.folder.join("tokens.pub"), key.public_key_pem())?;
        Ok(())
    }

    fn sign(&self, file: &str, mut params: CertificateParams) -> Result<(String, String)> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        let key = key.serialize_pem();
        fs::write(self.folder.join(format!("{file}.crt")), &certificate)?;
        fs::write(self.folder.join(format!("{file}.key")), &key)?;
        Ok((certificate, key))
    }

    pub fn certificate(&self) -> &str {
        &self.certificate
    }
}

#[derive(Debug, Clone)]
pub enum Credentials {
    Certificate { certificate: String, key: String },
    Token(String),
}

/// A kubeconfig that needs no other file. JSON is YAML.
pub fn kubeconfig(cluster: &str, server: &str, authority: &str, credentials: &Credentials) -> Result<String> {
    let user = match credentials {
        Credentials::Certificate { certificate, key } => json!({
            "client-certificate-data": encoded(certificate)?,
            "client-key-data": encoded(key)?,
        }),
        Credentials::Token(token) => json!({"token": token}),
    };
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster,
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
        "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": encoded(authority)?}}],
        "users": [{"name": cluster, "user": user}],
    });
    serde_json::to_string_pretty(&kubeconfig).context("write a kubeconfig")
}

fn encoded(text: &str) -> Result<Value> {
    serde_json::to_value(ByteString(text.as_bytes().to_vec())).context("encode a certificate")
}
