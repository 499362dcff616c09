//! Finds the containers and scalars of a message by reading its text and its decoded value in parallel.

use pyo3::{
    prelude::*,
    types::{PyDict, PyList, PyString},
};

use super::{Container, Location, MAX_CONTAINERS, MAX_SCALARS, Pattern, Scalar, scalar_length};

/// A pass over a text that is known to be valid JSON.
pub(super) struct Survey<'a> {
    text: &'a [u8],
    at: usize,
    pub(super) containers: Vec<Container>,
    pub(super) scalars: Vec<Scalar>,
}

impl<'a> Survey<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, containers: Vec::new(), scalars: Vec::new() }
    }

    /// Records a value and everything in it. `None` if there is too much, or if text and value can't be matched.
    pub(super) fn value(&mut self, value: &Bound<'_, PyAny>, parent: Option<(usize, Location)>) -> Option<()> {
        match self.next()? {
            b'{' => self.dict(value.cast::<PyDict>().ok()?, parent),
            b'[' => self.list(value.cast::<PyList>().ok()?, parent),
            _ => {
                let (holder, location) = parent?;
                let start = self.at;
                self.at += scalar_length(&self.text[start..])?;
                self.scalars.push(Scalar { start, end: self.at, holder, location });
                (self.scalars.len() <= MAX_SCALARS).then_some(())
            }
        }
    }

    fn dict(&mut self, dict: &Bound<'_, PyDict>, parent: Option<(usize, Location)>) -> Option<()> {
        let outermost = parent.is_none();
        let holder = self.container(Pattern::Dict(dict.copy().ok()?.unbind()), parent)?;
        let mut entries = 0;
        while self.item(b'}')? {
            let start = self.at;
            self.at += scalar_length(&self.text[start..])?;
            let key = std::str::from_utf8(&self.text[start + 1..self.at - 1]).ok()?;
            let key = match (dict.contains(key).ok()?, key) {
                (false, "type") if outermost => "t",
                (false, "payload") if outermost => "p",
                _ => key,
            };
            let value = dict.get_item(key).ok()??;
            let key = PyString::intern(dict.py(), key).unbind();
            self.next()?;
            self.at += 1;
            self.value(&value, Some((holder, Location::Key(key))))?;
            entries += 1;
        }
        // A key that occurs twice has two positions in the text but one value.
        (entries == dict.len()).then_some(())
    }

    fn list(&mut self, list: &Bound<'_, PyList>, parent: Option<(usize, Location)>) -> Option<()> {
        let holder = self.container(Pattern::List(list.get_slice(0, list.len()).unbind()), parent)?;
        let mut index = 0;
        while self.item(b']')? {
            self.value(&list.get_item(index).ok()?, Some((holder, Location::Index(index))))?;
            index += 1;
        }
        Some(())
    }

    fn container(&mut self, pattern: Pattern, parent: Option<(usize, Location)>) -> Option<usize> {
        self.at += 1;
        self.containers.push(Container { pattern, parent });
        (self.containers.len() <= MAX_CONTAINERS).then_some(self.containers.len() - 1)
    }

    /// Whether another item follows. Skips the comma before it, or the bracket that closes the container.
    fn item(&mut self, close: u8) -> Option<bool> {
        let byte = self.next()?;
        self.at += usize::from(byte == b',' || byte == close);
        if byte != close {
            self.next()?;
        }
        Some(byte != close)
    }

    /// The next byte that isn't white space.
    fn next(&mut self) -> Option<u8> {
        self.at += self.text[self.at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.text.get(self.at).copied()
    }
}
