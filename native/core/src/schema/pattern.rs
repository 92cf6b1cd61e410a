//! What it costs to match a regular expression, as far as its text shows.

/// What a pattern costs for each byte that it is matched against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    /// How many parts it has once its repetitions are written out.
    pub parts: u64,
    /// Whether it needs the engine that backtracks: it looks around, or refers back.
    pub backtracks: bool,
    /// How deeply what looks around is nested: each level goes over the text anew.
    pub looks: u32,
}

impl Weight {
    pub const NONE: Self = Self {
        parts: 1,
        backtracks: false,
        looks: 0,
    };

    /// The weight of a pattern.
    pub fn of(pattern: &str) -> Self {
        let mut groups: Vec<(u64, bool)> = Vec::new();
        let (mut parts, mut last, mut looks) = (0_u64, 0_u64, 0_u32);
        let (mut deepest, mut backtracks) = (0, false);
        let mut rest = pattern;
        while let Some(char) = rest.chars().next() {
            rest = &rest[char.len_utf8()..];
            match char {
                '\\' => {
                    let escaped = rest.chars().next().unwrap_or('\\');
                    backtracks |= escaped.is_ascii_digit() || "kgKG".contains(escaped);
                    rest = rest.get(escaped.len_utf8()..).unwrap_or("");
                    (parts, last) = (parts.saturating_add(1), 1);
                }
                '[' => {
                    rest = after_class(rest);
                    (parts, last) = (parts.saturating_add(1), 1);
                }
                '(' => {
                    let is_look = ["?=", "?!", "?<=", "?<!"]
                        .iter()
                        .any(|s| rest.starts_with(s));
                    backtracks |= is_look || ["?>", "?("].iter().any(|s| rest.starts_with(s));
                    looks += u32::from(is_look);
                    deepest = deepest.max(looks);
                    groups.push((parts, is_look));
                    (parts, last) = (0, 0);
                }
                ')' => {
                    if let Some((before, is_look)) = groups.pop() {
                        looks -= u32::from(is_look);
                        last = parts.max(1);
                        parts = before.saturating_add(last);
                    }
                }
                '{' => {
                    if let Some((times, after)) = repetition(rest) {
                        let more = last.saturating_mul(times.max(1) - 1);
                        (parts, last) = (parts.saturating_add(more), last.saturating_add(more));
                        rest = after;
                        backtracks |= rest.starts_with('+');
                    }
                }
                '*' | '+' | '?' => backtracks |= rest.starts_with('+'),
                _ => (parts, last) = (parts.saturating_add(1), 1),
            }
        }
        for (before, _) in groups {
            parts = parts.saturating_add(before);
        }
        Self {
            parts: parts.max(1),
            backtracks,
            looks: deepest,
        }
    }

    /// The weight of what is at least as heavy as both.
    pub fn max(self, other: Self) -> Self {
        Self {
            parts: self.parts.max(other.parts),
            backtracks: self.backtracks || other.backtracks,
            looks: self.looks.max(other.looks),
        }
    }

    /// How many steps a text of so many bytes costs.
    pub fn steps(self, bytes: usize) -> u64 {
        let bytes = bytes as u64;
        let passes = bytes.saturating_pow(self.looks);
        1 + bytes.saturating_mul(self.parts).saturating_mul(passes) / 64
    }
}

fn after_class(text: &str) -> &str {
    let mut depth = 1_u32;
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => drop(chars.next()),
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[at + 1..];
        }
    }
    ""
}

/// How often `3}`, `3,}` or `3,5}` repeats at most, and what follows it.
fn repetition(text: &str) -> Option<(u64, &str)> {
    let (inside, after) = text.split_once('}')?;
    let most = inside
        .split(',')
        .filter(|part| !part.is_empty())
        .map(|part| part.trim().parse::<u64>().ok())
        .collect::<Option<Vec<_>>>()?;
    Some((most.into_iter().max()?, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_written_out() {
        for (pattern, parts) in [
            ("", 1),
            ("abc", 3),
            (r"^[\]a-z]{2,8}\d$", 11),
            ("(ab){1000}{1000}", 2_000_000),
            ("((a{10}){10}){10}", 1000),
            ("a{,}", 4),
            ("(((", 1),
            ("a)}{b}{9999999999999999999999}", 30),
            ("[", 1),
            ("é{3}", 3),
        ] {
            let weight = Weight::of(pattern);
            let near = weight.parts.abs_diff(parts) <= parts / 10 + 2;
            assert!(near && !weight.backtracks, "{pattern}: {weight:?}");
        }
    }

    #[test]
    fn what_looks_around_or_back_backtracks() {
        for (pattern, looks) in [
            ("^(?!a)(?=b)", 1),
            ("(?=(?<!b)c)", 2),
            (r"(a)\1", 0),
            ("a++", 0),
            ("(?>a)", 0),
        ] {
            let weight = Weight::of(pattern);
            assert!(weight.backtracks, "{pattern}");
            assert_eq!(weight.looks, looks, "{pattern}");
        }
    }
}
