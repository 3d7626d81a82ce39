//! A flame graph of what `perf script` tells: who has called whom, each as wide as its share of all samples.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use anyhow::{Context, Result};

/// Of the picture, and of a function in it.
const WIDE: f64 = 1600.0;
const HIGH: usize = 17;
/// What is less wide is left out, and what is no wider has no room for its name, at so much for a letter.
const LEAST: f64 = 0.3;
const NAMED: f64 = 30.0;
const LETTER: f64 = 6.5;
const COLOURS: [&str; 5] = ["#e8a13a", "#e2793f", "#d95f4b", "#e0b64c", "#cf8a56"];

/// A function where it was called from those above it, and what it has called.
#[derive(Debug, Default)]
pub struct Flame {
    samples: usize,
    called: BTreeMap<String, Flame>,
}

impl Flame {
    /// Of each sample there is a line for each function, the innermost one first, each after its address; and an empty line.
    pub fn of(told: &str) -> Self {
        let (mut flame, mut stack) = (Self::default(), Vec::new());
        for line in told.lines().chain([""]) {
            match line.trim().split_once(' ') {
                Some((_, function)) => stack.push(function.trim()),
                None => flame.add(std::mem::take(&mut stack)),
            }
        }
        flame
    }

    fn add(&mut self, stack: Vec<&str>) {
        self.samples += usize::from(!stack.is_empty());
        let mut at = self;
        for function in stack.into_iter().rev() {
            at = at.called.entry(function.to_owned()).or_default();
            at.samples += 1;
        }
    }

    fn deep(&self) -> usize {
        self.called.values().map(|called| 1 + called.deep()).max().unwrap_or_default()
    }

    /// As SVG, the outermost on top.
    pub fn picture(&self) -> String {
        let mut rows = String::new();
        self.draw(0.0, 0, self.samples, &mut rows);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDE}\" height=\"{}\" font-family=\"monospace\" \
             font-size=\"11\">\n{rows}</svg>\n",
            self.deep() * HIGH
        )
    }

    fn draw(&self, mut left: f64, depth: usize, all: usize, into: &mut String) {
        for (number, (function, called)) in self.called.iter().enumerate() {
            let wide = called.samples as f64 / all as f64 * WIDE;
            if wide >= LEAST {
                let (top, colour) = (depth * HIGH, COLOURS[(depth + number) % COLOURS.len()]);
                let share = called.samples as f64 / all as f64 * 100.0;
                let letters = if wide > NAMED { (wide / LETTER) as usize } else { 0 };
                let name = escaped(&function.chars().take(letters).collect::<String>());
                let row = format!(
                    "<g><title>{}: {share:.1} %</title><rect x=\"{left:.1}\" y=\"{top}\" width=\"{wide:.1}\" height=\"{}\" \
                     fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{}\">{name}</text></g>",
                    escaped(function),
                    HIGH - 1,
                    left + 2.0,
                    top + HIGH - 5
                );
                // A text can be written to.
                writeln!(into, "{row}").ok();
                called.draw(left, depth + 1, all, into);
            }
            left += wide;
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Of samples in a file.
pub fn draw(samples: &Path, picture: &Path) -> Result<()> {
    let told = fs::read(samples).with_context(|| format!("read {}", samples.display()))?;
    let flame = Flame::of(&String::from_utf8_lossy(&told));
    fs::write(picture, flame.picture()).with_context(|| format!("write {}", picture.display()))
}
