//! What the driver tells of itself, read by Prometheus' own parser.

use anyhow::{Context, Result, ensure};

use crate::{clusters::tools::fed, pool::beside_others, rig::Rig};

/// As Prometheus asks, as it asked before it knew OpenMetrics, and as whoever does not care.
const ACCEPTED: [(&str, &str); 3] = [
    (
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;\
         q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
        "application/openmetrics-text",
    ),
    ("text/plain;version=0.0.4;q=0.3,*/*;q=0.2", "text/plain"),
    ("*/*", "text/plain"),
];

/// The names of the samples that Prometheus keeps.
fn scrape(rig: &Rig, content_type: &str, text: &str) -> Result<String> {
    fed(&rig.fleet.tools().path("scrape"), content_type, text.as_bytes())
        .with_context(|| format!("Prometheus refuses it as {content_type}:\n{text}"))
}

#[test]
fn prometheus_reads_the_metrics_in_the_form_that_it_asks_for() {
    beside_others("metrics", async |rig| {
        for (accepted, kind) in ACCEPTED {
            let (content_type, text) = rig.driver.scraped(accepted).await?;
            ensure!(content_type.starts_with(kind), "{accepted} is answered as {content_type}");
            let names = scrape(rig, &content_type, &text)?;
            for name in ["kosmos_csi_build_info", "kosmos_csi_member_up", "kosmos_csi_rpc_started_total"] {
                ensure!(names.lines().any(|line| line == name), "{kind} has no {name}:\n{names}");
            }
        }
        // What was answered before: one form under the name of the other.
        let (_, open) = rig.driver.scraped(ACCEPTED[0].0).await?;
        ensure!(scrape(rig, "text/plain; version=0.0.4", &open).is_err(), "the parser takes anything");
        Ok(())
    });
}
