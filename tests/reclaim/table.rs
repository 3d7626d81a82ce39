//! The table of `docs/reclaim.md`, as it is written.

const PAGE: &str = include_str!("../../docs/reclaim.md");

/// A row of the table, with one leaf class.
#[derive(Clone, Debug)]
pub struct Cell {
    pub policy: String,
    pub patched: String,
    pub leaf_class: String,
    pub first: String,
    pub ends: [String; 4],
}

pub fn cells() -> Vec<Cell> {
    let rows = PAGE.lines().skip_while(|line| !line.starts_with("| Host's policy |")).skip(2);
    let cells: Vec<Cell> = rows.take_while(|line| line.starts_with('|')).flat_map(cells_of).collect();
    assert_eq!(cells.len(), 32, "two policies, patched or not, two leaf classes, and four that go first");
    cells
}

fn cells_of(line: &str) -> Vec<Cell> {
    let cells: Vec<String> = line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
    let [policy, patched, leaf_class, first, ends @ ..]: [String; 8] = cells.try_into().unwrap();
    let classes = if leaf_class == "any" { vec!["Delete".to_owned(), "Retain".to_owned()] } else { vec![leaf_class] };
    let of = |leaf_class| Cell {
        policy: policy.clone(),
        patched: patched.clone(),
        leaf_class,
        first: first.clone(),
        ends: ends.clone(),
    };
    classes.into_iter().map(of).collect()
}
