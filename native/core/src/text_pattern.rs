//! Regular expressions whose search takes linear time, for texts that strangers write.

use regex::{Regex, RegexBuilder};

use crate::error::{Error, Result};
use crate::schema::Weight;

const MAX_COMPILED_BYTES: usize = 10 * 1024 * 1024;
const MAX_NESTING: u32 = 50;
const MAX_PARTS: u64 = 10_000;

/// A compiled regular expression, without look-around and backreferences.
#[derive(Debug)]
pub struct TextPattern {
    regex: Regex,
    weight: Weight,
}

impl TextPattern {
    /// Compile a pattern in the syntax of the crate `regex`.
    ///
    /// What it can't do, or what is too large once compiled, is an error of one line.
    pub fn new(pattern: &str) -> Result<Self> {
        let weight = Weight::of(pattern);
        if weight.parts > MAX_PARTS {
            return Err(Error::Invalid(format!(
                "it repeats its parts more than {MAX_PARTS} times"
            )));
        }
        let regex = RegexBuilder::new(pattern)
            .size_limit(MAX_COMPILED_BYTES)
            .dfa_size_limit(MAX_COMPILED_BYTES)
            .nest_limit(MAX_NESTING)
            .build()
            .map_err(|problem| Error::Invalid(reason(&problem)))?;
        Ok(Self { regex, weight })
    }

    /// Whether the pattern is found anywhere in a text.
    ///
    /// None where the text's length times the pattern's parts come to more than `max_steps`, of
    /// 64 bytes each: nothing was searched then.
    pub fn is_match(&self, text: &str, max_steps: u64) -> Option<bool> {
        (self.weight.steps(text.len()) <= max_steps).then(|| self.regex.is_match(text))
    }
}

/// The crate's message without the drawing that points into the pattern.
fn reason(problem: &regex::Error) -> String {
    match problem {
        regex::Error::CompiledTooBig(_) => "it is too large once compiled".to_owned(),
        _ => {
            let text = problem.to_string();
            let last = text.lines().last().unwrap_or_default();
            last.trim_start_matches("error: ").to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_searched_everywhere_and_lines_alone_where_asked() {
        for (pattern, text, expected) in [
            ("b+", "abc", true),
            ("^b", "abc", false),
            ("(?m)^b", "a\nb", true),
            ("(?i)É", "é", true),
            (r"^\d+\z", "12\n", false),
        ] {
            let found = TextPattern::new(pattern).unwrap().is_match(text, 1000);
            assert_eq!(found, Some(expected), "{pattern}");
        }
    }

    #[test]
    fn what_could_take_long_is_refused_in_one_line() {
        let deep = "(".repeat(60) + &")".repeat(60);
        for (pattern, message) in [
            ("(?=a)", "look-around"),
            (r"(a)\1", "backreferences"),
            ("(", "unclosed group"),
            (r"(a{1,500}){1,500}", "repeats its parts"),
            (r"\w{1,5000}", "too large"),
            (&deep, "nest"),
        ] {
            match TextPattern::new(pattern) {
                Err(Error::Invalid(said)) => {
                    assert!(said.contains(message) && !said.contains('\n'), "{said}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_text_that_is_too_long_for_its_pattern_is_not_searched() {
        let pattern = TextPattern::new("(a?){100}b").unwrap();
        assert_eq!(pattern.is_match(&"a".repeat(640), 1001), None);
        assert_eq!(pattern.is_match(&"a".repeat(64), 1001), Some(false));
    }
}
