//! One table: what was to be reached, what was seen, and whether that will do.

/// One line of it.
pub struct Row {
    what: String,
    goal: Option<f64>,
    seen: f64,
    /// More is better.
    at_least: bool,
}

impl Row {
    pub fn at_most(what: String, goal: Option<f64>, seen: f64) -> Self {
        Self { what, goal, seen, at_least: false }
    }

    pub fn at_least(what: String, goal: Option<f64>, seen: f64) -> Self {
        Self { what, goal, seen, at_least: true }
    }

    /// What is no number reaches nothing.
    fn is_missed(&self) -> bool {
        let misses = |goal: f64| if self.at_least { self.seen < goal } else { self.seen > goal };
        self.goal.is_some_and(|goal| self.seen.is_nan() || misses(goal))
    }

    fn verdict(&self) -> &'static str {
        match self.goal {
            None => "",
            Some(_) if self.is_missed() => "MISSED",
            Some(_) => "reached",
        }
    }
}

/// How many goals were.
pub fn missed(rows: &[Row]) -> usize {
    rows.iter().filter(|row| row.is_missed()).count()
}

pub fn print(rows: &[Row]) {
    let wide = rows.iter().map(|row| row.what.chars().count()).max().unwrap_or_default();
    println!("\n{:<wide$} {:>10} {:>10}", "", "goal", "seen");
    for row in rows {
        let sign = if row.at_least { ">=" } else { "<=" };
        let digits = if row.goal.is_some_and(|goal| goal < 0.1) { 4 } else { 2 };
        let goal = row.goal.map(|goal| format!("{sign} {goal}")).unwrap_or_default();
        println!("{:<wide$} {goal:>10} {:>10.digits$}  {}", row.what, row.seen, row.verdict());
    }
}
