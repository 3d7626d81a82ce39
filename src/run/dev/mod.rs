mod host;
use crate::args::Dev;
pub async fn dev(arguments: Dev) -> anyhow::Result<()> {
    todo!()
}
