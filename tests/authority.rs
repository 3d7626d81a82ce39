//! An authority for kubeconfigs whose connections are no TLS: PEM, and no certificate.

pub(crate) const AUTHORITY: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
