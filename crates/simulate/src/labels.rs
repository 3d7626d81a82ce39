//! Label selectors as text, read as an API server reads them: the same words are understood, and the same complaint is
//! made of what is not.

use super::{
    kinds::Causes,
    kinds::words,
    selector::{Rule, Term},
};

const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";
const SPECIAL: &str = "=!(),<>";

/// The words of a selector; an empty one is the end.
fn words_of(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let two = rest.get(..2).filter(|two| ["==", "!="].contains(two));
        let end = match two {
            Some(_) => 2,
            None if SPECIAL.contains(first) => 1,
            None => rest.find(|letter: char| SPECIAL.contains(letter) || letter.is_whitespace()).unwrap_or(rest.len()),
        };
        let (word, after) = rest.split_at(end);
        words.push(word);
        rest = after.trim_start();
    }
    words
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && !word.starts_with(|first| SPECIAL.contains(first))
}

struct Reader<'a> {
    words: std::vec::IntoIter<&'a str>,
}

pub fn parse(text: &str) -> Result<Vec<Term>, String> {
    let mut reader = Reader { words: words_of(text).into_iter() };
    let mut terms = Vec::new();
    loop {
        match reader.ahead() {
            "" => return Ok(terms),
            word if is_name(word) || word == "!" => {
                terms.push(reader.term().map_err(|problem| format!("unable to parse requirement: {problem}"))?);
            }
            word => return Err(format!("found '{word}', expected: !, identifier, or 'end of string'")),
        }
        match reader.next() {
            "" => return Ok(terms),
            "," if is_name(reader.ahead()) || reader.ahead() == "!" => {}
            "," => return Err(format!("found '{}', expected: identifier after ','", reader.ahead())),
            word => return Err(format!("found '{word}', expected: ',' or 'end of string'")),
        }
    }
}

impl<'a> Reader<'a> {
    fn ahead(&self) -> &'a str {
        self.words.as_slice().first().copied().unwrap_or_default()
    }

    fn next(&mut self) -> &'a str {
        self.words.next().unwrap_or_default()
    }

    fn term(&mut self) -> Result<Term, String> {
        let absent = self.ahead() == "!";
        if absent {
            self.next();
        }
        let key = self.next();
        if !is_name(key) {
            return Err(format!("found '{key}', expected: identifier"));
        }
        check("<nil>", key, &words::qualified(key))?;
        let new = |rule| Ok(Term { key: key.to_owned(), rule });
        if absent {
            return new(Rule::Absent);
        }
        if ["", ","].contains(&self.ahead()) {
            return new(Rule::Exists);
        }
        let operator = self.next();
        let rule = match operator {
            "in" => Rule::In(self.values(key)?),
            "notin" => Rule::NotIn(self.values(key)?),
            "=" | "==" => Rule::In(vec![self.value(key)?]),
            "!=" => Rule::NotIn(vec![self.value(key)?]),
            ">" => Rule::Greater(self.bound(key, "Gt")?),
            "<" => Rule::Less(self.bound(key, "Lt")?),
            word => return Err(format!("found '{word}', expected: {OPERATORS}")),
        };
        new(rule)
    }

    fn value(&mut self, key: &str) -> Result<String, String> {
        if ["", ","].contains(&self.ahead()) {
            return Ok(String::new());
        }
        let value = self.next();
        if !is_name(value) {
            return Err(format!("found '{value}', expected: identifier"));
        }
        check(&format!("values[0][{key}]"), value, &words::label_value(value))?;
        Ok(value.to_owned())
    }

    fn bound(&mut self, key: &str, operator: &str) -> Result<i64, String> {
        let value = self.value(key)?;
        let detail = format!("for '{operator}' operators, the value must be an integer");
        value.parse().map_err(|_| format!("values[0]: Invalid value: \"{value}\": {detail}"))
    }

    /// What stands in brackets; nothing there is one empty value.
    fn values(&mut self, key: &str) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != "(" {
            return Err(format!("found '{open}' expected: '('"));
        }
        let mut values = vec![String::new()];
        loop {
            match (self.next(), self.ahead()) {
                (")", _) => break,
                (",", _) => values.push(String::new()),
                (word, after) if is_name(word) && [",", ")"].contains(&after) => {
                    values.last_mut().into_iter().for_each(|last| word.clone_into(last));
                }
                (word, after) if is_name(word) => return Err(format!("found '{after}', expected: ',' or ')'")),
                (word, _) => return Err(format!("found '{word}', expected: ',', ')' or identifier")),
            }
        }
        for (index, value) in values.iter().enumerate() {
            check(&format!("values[{index}][{key}]"), value, &words::label_value(value))?;
        }
        Ok(values)
    }
}

fn check(field: &str, value: &str, problems: &[String]) -> Result<(), String> {
    let mut causes = Causes::default();
    causes.all(field, value, problems);
    causes.first().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_selector_is_told_as_the_api_server_tells_it() {
        for (text, told) in [
            ("a in red", "unable to parse requirement: found 'red' expected: '('"),
            ("a b c", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("=x", "found '=', expected: !, identifier, or 'end of string'"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("a=b,", "found '', expected: identifier after ','"),
            ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ] {
            assert_eq!(parse(text).unwrap_err(), told, "{text}");
        }
        assert_eq!(parse("a, !b,c in (x,y) ,d notin (),e!=f,g>1").unwrap().len(), 6);
    }
}
