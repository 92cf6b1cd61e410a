use std::fmt::Write as _;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

/// Deeper values are left to Python, which refuses those that contain themselves.
const MAX_DEPTH: usize = 64;

/// The text between names, values and brackets.
struct Layout {
    between: &'static str,
    after_name: &'static str,
    is_indented: bool,
}

/// Writes values of exactly JSON's types as `json.dumps` does.
#[pyclass(frozen, module = "ryecore._native")]
struct JsonWriter {
    ascii_only: bool,
    sort_keys: bool,
    layout: Layout,
}

#[pymethods]
impl JsonWriter {
    #[new]
    #[pyo3(signature = (*, ascii_only, sort_keys, spaced, indented))]
    fn new(ascii_only: bool, sort_keys: bool, spaced: bool, indented: bool) -> Self {
        Self {
            ascii_only,
            sort_keys,
            layout: Layout {
                between: if spaced { ", " } else { "," },
                after_name: if spaced || indented { ": " } else { ":" },
                is_indented: indented,
            },
        }
    }

    #[pyo3(signature = (value, /))]
    fn write(&self, value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
        let mut text = String::with_capacity(1024);
        Ok(self.value(&mut text, value, 0)?.then_some(text))
    }
}

impl JsonWriter {
    /// Writes a value. A value that JSON lacks, or of a subclass, is left unfinished: false.
    fn value(&self, text: &mut String, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<bool> {
        if let Ok(string) = value.cast_exact::<PyString>() {
            return Ok(self.string(text, string));
        }
        if let Ok(dict) = value.cast_exact::<PyDict>() {
            return self.object(text, dict, depth + 1);
        }
        if let Ok(list) = value.cast_exact::<PyList>() {
            return self.array(text, list.iter(), depth + 1);
        }
        if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            return self.array(text, tuple.iter(), depth + 1);
        }
        if value.is_none() {
            text.push_str("null");
        } else if let Ok(flag) = value.cast_exact::<PyBool>() {
            text.push_str(if flag.is_true() { "true" } else { "false" });
        } else if value.is_exact_instance_of::<PyInt>() {
            match value.extract::<i64>() {
                Ok(number) => write!(text, "{number}").unwrap_or_default(),
                Err(_) => text.push_str(value.repr()?.to_str()?),
            }
        } else if let Ok(number) = value.cast_exact::<PyFloat>()
            && number.value().is_finite()
        {
            text.push_str(value.repr()?.to_str()?);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn object(&self, text: &mut String, dict: &Bound<'_, PyDict>, depth: usize) -> PyResult<bool> {
        if dict.is_empty() {
            text.push_str("{}");
            return Ok(true);
        }
        if depth > MAX_DEPTH {
            return Ok(false);
        }
        text.push('{');
        if self.sort_keys {
            let mut items: Vec<(String, Bound<'_, PyAny>)> = Vec::with_capacity(dict.len());
            for (name, value) in dict {
                match name.cast_exact::<PyString>().map(|name| name.to_str()) {
                    Ok(Ok(name)) => items.push((name.to_owned(), value)),
                    _ => return Ok(false),
                }
            }
            items.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            for (index, (name, value)) in items.iter().enumerate() {
                self.begin(text, index, depth);
                self.quote(text, name);
                text.push_str(self.layout.after_name);
                if !self.value(text, value, depth)? {
                    return Ok(false);
                }
            }
        } else {
            for (index, (name, value)) in dict.iter().enumerate() {
                self.begin(text, index, depth);
                match name.cast_exact::<PyString>() {
                    Ok(name) if self.string(text, name) => text.push_str(self.layout.after_name),
                    _ => return Ok(false),
                }
                if !self.value(text, &value, depth)? {
                    return Ok(false);
                }
            }
        }
        self.line(text, depth - 1);
        text.push('}');
        Ok(true)
    }

    fn array<'py>(
        &self,
        text: &mut String,
        values: impl ExactSizeIterator<Item = Bound<'py, PyAny>>,
        depth: usize,
    ) -> PyResult<bool> {
        if values.len() == 0 {
            text.push_str("[]");
            return Ok(true);
        }
        if depth > MAX_DEPTH {
            return Ok(false);
        }
        text.push('[');
        for (index, value) in values.enumerate() {
            self.begin(text, index, depth);
            if !self.value(text, &value, depth)? {
                return Ok(false);
            }
        }
        self.line(text, depth - 1);
        text.push(']');
        Ok(true)
    }

    fn begin(&self, text: &mut String, index: usize, depth: usize) {
        if index > 0 {
            text.push_str(self.layout.between);
        }
        self.line(text, depth);
    }

    fn line(&self, text: &mut String, depth: usize) {
        if self.layout.is_indented {
            text.push('\n');
            for _ in 0..depth {
                text.push_str("  ");
            }
        }
    }

    /// Writes a string; one with a lone surrogate is left: false.
    fn string(&self, text: &mut String, string: &Bound<'_, PyString>) -> bool {
        string.to_str().is_ok_and(|string| {
            self.quote(text, string);
            true
        })
    }

    fn quote(&self, text: &mut String, string: &str) {
        text.push('"');
        let mut rest = string;
        while let Some(at) = rest.bytes().position(|byte| self.is_escaped(byte)) {
            text.push_str(&rest[..at]);
            let mut chars = rest[at..].chars();
            if let Some(char) = chars.next() {
                escape(text, char);
            }
            rest = chars.as_str();
        }
        text.push_str(rest);
        text.push('"');
    }

    fn is_escaped(&self, byte: u8) -> bool {
        byte < b' ' || byte == b'"' || byte == b'\\' || self.ascii_only && byte > b'~'
    }
}

fn escape(text: &mut String, char: char) {
    match char {
        '"' => text.push_str("\\\""),
        '\\' => text.push_str("\\\\"),
        '\n' => text.push_str("\\n"),
        '\r' => text.push_str("\\r"),
        '\t' => text.push_str("\\t"),
        '\u{8}' => text.push_str("\\b"),
        '\u{c}' => text.push_str("\\f"),
        _ => {
            for unit in char.encode_utf16(&mut [0; 2]) {
                write!(text, "\\u{unit:04x}").unwrap_or_default();
            }
        }
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<JsonWriter>()
}
