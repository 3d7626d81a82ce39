//! What a command lists, in each form in which people and programs read it.

use serde_json::{Map, Value, json};

use super::table::Table;

/// Of what programs read. What it holds is in `docs/commands.md`.
pub const API: &str = "cli.kosmos.csi.io/v1alpha1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Table,
    /// With columns for who looks closer.
    Wide,
    Json,
    Yaml,
    /// Names alone, a line each.
    Name,
}

#[derive(Debug)]
pub struct Listing {
    /// Of one item.
    kind: &'static str,
    head: Vec<&'static str>,
    wide: Vec<&'static str>,
    items: Vec<Item>,
    /// What is said of all of them, for programs.
    besides: Map<String, Value>,
}

#[derive(Debug)]
pub struct Item {
    /// As it is typed elsewhere.
    pub name: String,
    pub cells: Vec<String>,
    pub wide: Vec<String>,
    pub object: Value,
}

impl Listing {
    pub fn new(kind: &'static str, head: &[&'static str], wide: &[&'static str]) -> Self {
        Self { kind, head: head.to_vec(), wide: wide.to_vec(), items: Vec::new(), besides: Map::new() }
    }

    pub fn add(&mut self, item: Item) {
        self.items.push(item);
    }

    pub fn say(&mut self, key: &str, value: Value) {
        self.besides.insert(key.to_owned(), value);
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn print(&self, form: Form) -> String {
        match form {
            Form::Table => self.table(false),
            Form::Wide => self.table(true),
            Form::Json => format!("{:#}\n", self.object()),
            Form::Yaml => serde_saphyr::to_string(&self.object()).unwrap_or_default(),
            Form::Name => {
                let names = self.items.iter().map(|item| item.name.as_str()).filter(|name| !name.is_empty());
                names.flat_map(|name| [name, "\n"]).collect()
            }
        }
    }

    /// Of what was asked for by its name: as JSON and YAML it is itself, as with kubectl.
    pub fn print_one(&self, form: Form) -> String {
        match (form, self.items.as_slice()) {
            (Form::Json, [one]) => format!("{:#}\n", one.object),
            (Form::Yaml, [one]) => serde_saphyr::to_string(&one.object).unwrap_or_default(),
            _ => self.print(form),
        }
    }

    /// Without a head where there is nothing below it.
    fn table(&self, is_wide: bool) -> String {
        if self.items.is_empty() {
            return String::new();
        }
        let wide = |columns: usize| if is_wide { columns } else { 0 };
        let mut table = Table::new(&[&self.head[..], &self.wide[..wide(self.wide.len())]].concat());
        for item in &self.items {
            table.row([&item.cells[..], &item.wide[..wide(item.wide.len())]].concat());
        }
        table.to_string()
    }

    fn object(&self) -> Value {
        let items: Value = self.items.iter().map(|item| item.object.clone()).collect();
        let mut object = json!({"apiVersion": API, "kind": format!("{}List", self.kind), "items": items});
        object.as_object_mut().into_iter().for_each(|object| object.extend(self.besides.clone()));
        object
    }
}

#[cfg(test)]
impl Listing {
    pub(crate) fn has_rows(&self, rows: &[&str]) {
        let told = self.print(Form::Table);
        for row in rows {
            assert!(told.lines().any(|line| line == *row), "{row}: {told}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_listing_has_the_same_in_each_form() {
        let mut listing = Listing::new("Member", &["NAME", "UP"], &["SERVER"]);
        assert!(listing.is_empty() && [Form::Name, Form::Table].map(|form| listing.print(form)) == ["", ""]);
        listing.add(Item {
            name: "m0".to_owned(),
            cells: vec!["m0".to_owned(), "yes".to_owned()],
            wide: vec!["https://m0".to_owned()],
            object: json!({"name": "m0", "up": true}),
        });
        listing.say("asked", json!(1));
        assert_eq!(listing.print(Form::Name), "m0\n");
        assert_eq!(listing.print(Form::Table), "NAME   UP\nm0     yes\n");
        assert_eq!(listing.print(Form::Wide), "NAME   UP    SERVER\nm0     yes   https://m0\n");
        let expected =
            json!({"apiVersion": API, "kind": "MemberList", "items": [{"name": "m0", "up": true}], "asked": 1});
        assert_eq!(serde_json::from_str::<Value>(&listing.print(Form::Json)).unwrap(), expected);
        assert_eq!(serde_saphyr::from_str::<Value>(&listing.print(Form::Yaml)).unwrap(), expected);
        let one = json!({"name": "m0", "up": true});
        assert_eq!(serde_json::from_str::<Value>(&listing.print_one(Form::Json)).unwrap(), one);
        assert_eq!(serde_saphyr::from_str::<Value>(&listing.print_one(Form::Yaml)).unwrap(), one);
        for form in [Form::Table, Form::Wide, Form::Name] {
            assert_eq!(listing.print_one(form), listing.print(form));
        }
    }
}
