//! Faults as rules: the k-th request that matches meets one. Rules are data, so that a schedule that failed can be
//! printed and played again.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{Action, Asked, Verb};

/// What is empty or not given matches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub verb: Option<Verb>,
    pub resource: String,
    pub name: String,
    pub client: String,
    /// The first request that meets it, counted from 1 among those that match.
    pub from: u64,
    pub times: u64,
    pub action: Action,
}

impl Rule {
    /// Every request, from the first on.
    pub fn always(action: Action) -> Self {
        let any = String::new;
        Self { verb: None, resource: any(), name: any(), client: any(), from: 1, times: u64::MAX, action }
    }

    fn matches(&self, asked: &Asked) -> bool {
        let fits = |wanted: &str, given: &str| wanted.is_empty() || wanted == given;
        self.verb.is_none_or(|verb| verb == asked.verb)
            && fits(&self.resource, &asked.resource)
            && fits(&self.name, &asked.name)
            && fits(&self.client, &asked.client)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = self.verb.map_or_else(|| "any".to_owned(), |verb| format!("{verb:?}"));
        let or_any = |text: &str| if text.is_empty() { "*".to_owned() } else { text.to_owned() };
        write!(out, "{verb} {} {}", or_any(&self.resource), or_any(&self.name))?;
        if !self.client.is_empty() {
            write!(out, " by {}", self.client)?;
        }
        match self.times {
            1 => write!(out, ", request {}", self.from)?,
            u64::MAX => write!(out, ", from request {} on", self.from)?,
            times => write!(out, ", requests {} to {}", self.from, self.from.saturating_add(times - 1))?,
        }
        write!(out, ": {:?}", self.action)
    }
}

/// The plan that follows the rules: the first that applies to a request counts. Each rule counts for itself.
pub fn plan(rules: Vec<Rule>) -> impl Fn(&Asked) -> Action + Send + Sync + 'static {
    let counted: Vec<(Rule, AtomicU64)> = rules.into_iter().map(|rule| (rule, AtomicU64::new(0))).collect();
    move |asked| {
        let mut met = None;
        for (rule, seen) in counted.iter().filter(|(rule, _)| rule.matches(asked)) {
            let number = seen.fetch_add(1, Ordering::Relaxed) + 1;
            if met.is_none() && number >= rule.from && number - rule.from < rule.times {
                met = Some(rule.action.clone());
            }
        }
        met.unwrap_or(Action::Pass)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;

    fn asked(verb: Verb, name: &str) -> Asked {
        Asked {
            number: 0,
            client: "driver".to_owned(),
            verb,
            resource: "pods".to_owned(),
            namespace: String::new(),
            name: name.to_owned(),
            subresource: String::new(),
            query: String::new(),
            body: Arc::new(Value::Null),
        }
    }

    #[test]
    fn rule_is_met_by_the_requests_it_counts_and_by_no_other() {
        let rule = Rule { verb: Some(Verb::Get), from: 2, times: 2, ..Rule::always(Action::Refuse) };
        assert_eq!(rule.to_string(), "Get * *, requests 2 to 3: Refuse");
        let plan = plan(vec![rule]);
        let met: Vec<bool> = (0..5)
            .map(|_| {
                assert_eq!(plan(&asked(Verb::List, "x")), Action::Pass);
                plan(&asked(Verb::Get, "x")) == Action::Refuse
            })
            .collect();
        assert_eq!(met, [false, true, true, false, false]);
    }

    #[test]
    fn first_rule_that_applies_counts() {
        let named = Rule { name: "x".to_owned(), times: 1, ..Rule::always(Action::Hang) };
        let plan = plan(vec![named, Rule::always(Action::Refuse)]);
        assert_eq!(plan(&asked(Verb::Get, "x")), Action::Hang);
        assert_eq!(plan(&asked(Verb::Get, "x")), Action::Refuse);
        assert_eq!(plan(&asked(Verb::Get, "y")), Action::Refuse);
    }
}
