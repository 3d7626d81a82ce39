//! The two forms in which metrics are read: OpenMetrics, and the older text format of Prometheus for whoever does not ask for
//! the first. A scraper believes the content type, and refuses what is not of that form.

/// What a scraper asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    OpenMetrics,
    Text,
}

impl Form {
    /// By the `Accept` header, as RFC 9110 has it.
    pub fn accepted(header: &str) -> Self {
        let quality = |wanted: &str| {
            let ranges = header.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                parts.next().filter(|kind| kind.eq_ignore_ascii_case(wanted))?;
                let quality = parts.find_map(|part| part.strip_prefix("q="));
                quality.map_or(Some(1.0), |quality| quality.parse::<f32>().ok())
            });
            ranges.fold(0.0, f32::max)
        };
        let open = quality("application/openmetrics-text");
        if open > 0.0 && open >= quality("text/plain") { Self::OpenMetrics } else { Self::Text }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// In this form, what is given as OpenMetrics.
    pub fn written(self, open: String) -> String {
        match self {
            Self::OpenMetrics => open,
            Self::Text => text(&open),
        }
    }
}

/// The older form has no units and no end, calls a family as its samples are called, and knows fewer types.
fn text(open: &str) -> String {
    let kinds: Vec<(&str, &str)> =
        open.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let mut text = String::with_capacity(open.len());
    for line in open.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let line = match words[..] {
            ["#", "EOF"] | ["#", "UNIT", ..] => continue,
            ["#", word, family, rest] => {
                let kind = kinds.iter().find(|(name, _)| *name == family).map_or("unknown", |(_, kind)| *kind);
                let (name, kind) = match kind {
                    "counter" => (format!("{family}_total"), "counter"),
                    "info" => (format!("{family}_info"), "gauge"),
                    "unknown" => (family.to_owned(), "untyped"),
                    kind => (family.to_owned(), kind),
                };
                let rest = if word == "TYPE" { kind } else { rest };
                format!("# {word} {name} {rest}")
            }
            _ => line.to_owned(),
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_is_the_one_that_is_preferred_and_text_where_nobody_says() {
        for (header, form) in [
            ("", Form::Text),
            ("*/*", Form::Text),
            ("text/plain", Form::Text),
            ("application/json", Form::Text),
            ("application/openmetrics-text", Form::OpenMetrics),
            ("application/openmetrics-text;q=0", Form::Text),
            ("text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.5", Form::Text),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,*/*;q=0.1",
                Form::OpenMetrics,
            ),
        ] {
            assert_eq!(Form::accepted(header), form, "{header:?}");
        }
    }

    #[test]
    fn every_kind_of_metric_is_written_in_both_forms() {
        let open = "# HELP built what is running.\n# TYPE built info\nbuilt_info{version=\"1\"} 1\n\
                    # HELP asked RPCs begun.\n# TYPE asked counter\nasked_total{method=\"a b\"} 3\n\
                    # HELP took_seconds time.\n# TYPE took_seconds histogram\n# UNIT took_seconds seconds\n\
                    took_seconds_sum 1.5\ntook_seconds_bucket{le=\"+Inf\"} 1\n\
                    # HELP what it is.\n# TYPE what unknown\nwhat 2\n# EOF\n";
        assert_eq!(Form::OpenMetrics.written(open.to_owned()), open);
        let text = "# HELP built_info what is running.\n# TYPE built_info gauge\nbuilt_info{version=\"1\"} 1\n\
                    # HELP asked_total RPCs begun.\n# TYPE asked_total counter\nasked_total{method=\"a b\"} 3\n\
                    # HELP took_seconds time.\n# TYPE took_seconds histogram\n\
                    took_seconds_sum 1.5\ntook_seconds_bucket{le=\"+Inf\"} 1\n\
                    # HELP what it is.\n# TYPE what untyped\nwhat 2\n";
        assert_eq!(Form::Text.written(open.to_owned()), text);
    }
}
