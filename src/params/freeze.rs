//! Freezing: parameters that steps read and do not train.
//!
//! What is frozen is asked when a step is recorded. A frozen parameter has no
//! gradient, so that no pass computes one, and an optimiser makes no moments for
//! it. Steps recorded before go on as they were.

use std::sync::atomic::Ordering;

use super::{Param, Params};
use crate::error::{Error, Result};
use crate::fuse::program::Category;
use crate::shared::lock;

impl Param {
    /// Keeps steps recorded from now on from training it: PyTorch's
    /// `requires_grad_(False)`. Every handle of this state sees it.
    pub fn freeze(&self) {
        self.slot.frozen.store(true, Ordering::Relaxed);
    }

    /// Undoes [`Self::freeze`].
    pub fn unfreeze(&self) {
        self.slot.frozen.store(false, Ordering::Relaxed);
    }

    /// True if steps recorded now do not train it.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.slot.frozen.load(Ordering::Relaxed)
    }
}

impl Params {
    /// [`Param::freeze`] for every parameter whose name fits `pattern`, in which
    /// each `*` stands for any characters: `"embed_tokens.weight"`, `"layers.0.*"`,
    /// `"*.bias"`, `"*"`. Hands them back.
    ///
    /// # Errors
    /// [`Error::UnknownState`] if no parameter fits, with names that look like it.
    pub fn freeze(&self, pattern: &str) -> Result<Vec<Param>> {
        let found = self.matching("freeze", pattern)?;
        found.iter().for_each(Param::freeze);
        Ok(found)
    }

    /// [`Param::unfreeze`] for every parameter whose name fits `pattern`.
    ///
    /// # Errors
    /// As [`Self::freeze`].
    pub fn unfreeze(&self, pattern: &str) -> Result<Vec<Param>> {
        let found = self.matching("unfreeze", pattern)?;
        found.iter().for_each(Param::unfreeze);
        Ok(found)
    }

    fn matching(&self, op: &'static str, pattern: &str) -> Result<Vec<Param>> {
        let parameters = self.all().into_iter().filter(|p| p.category() == Category::Parameter);
        let found: Vec<Param> = parameters.filter(|p| fits(pattern, p.name())).collect();
        if found.is_empty() {
            let similar = lock(&self.inner.table).similar(pattern);
            return Err(Error::UnknownState { op, name: pattern.to_owned(), similar });
        }
        Ok(found)
    }
}

/// Whether `name` is `pattern` with characters in the place of each `*`.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // The last star, and how far its characters reach so far.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, n));
            p += 1;
        } else if pattern.get(p) == Some(&name[n]) {
            (p, n) = (p + 1, n + 1);
        } else if let Some((at, reach)) = star {
            star = Some((at, reach + 1));
            (p, n) = (at + 1, reach + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn stars_stand_for_any_characters() {
        for (pattern, name) in
            [("a.b", "a.b"), ("*", ""), ("*", "a.b"), ("a.*", "a.b.c"), ("*.b", "a.b.b"), ("a*b*c", "aXbbYc")]
        {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("a", "a.b"), ("a.*", "ab"), ("*.b", "a.bb"), ("", "a"), ("a*b*c", "acb"), ("a.b*", "a")]
        {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
