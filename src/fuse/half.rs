//! 16-bit storage under kernels that are written for `f32`.
//!
//! A kernel's text names each storage once, as `array<f32>` or `array<vec4<f32>>`
//! (or an alias of them), and reads and writes it as `name[index]`. For a value of
//! halves the declaration becomes one of words, a read goes through a function
//! that unpacks, and the store of four neighbours is packed. All arithmetic stays
//! `f32`, sums too. A single half cannot be stored, for its word belongs to two
//! invocations: such a kernel stores `f32` to scratch that another pass packs.

use super::finish::{binding_name, declaration};

/// What unpacks and packs.
pub(crate) const HALF: &str = include_str!("../../shaders/shared/half.wgsl");

/// `source` with the functions of [`HALF`], once.
pub(super) fn with_functions(source: String) -> String {
    if source.contains("fn half_to_float(") { source } else { format!("{HALF}\n{source}") }
}

/// The text for halves in binding `binding`, or `None` if the kernel does not
/// read and write it as the module says.
pub(super) fn narrowed(source: &str, binding: usize) -> Option<String> {
    let source = without_comments(source);
    let name = binding_name(&source, binding)?;
    let (start, end) = declaration(&source, binding)?;
    let (_, ty) = source[start..end].split_once("array<")?;
    let element = resolved(&source, ty.trim_end().strip_suffix(">;")?);
    let wide = match element.as_str() {
        "vec4<f32>" => true,
        "f32" => false,
        _ => return None,
    };
    let rewriter = Rewriter { name: &name, wide };
    let (before, after) = (rewriter.rewrite(&source[..start])?, rewriter.rewrite(&source[end..])?);
    let (words, value, load) = if wide {
        ("vec2<u32>", "vec4<f32>", format!("unpack_halves({name}[i])"))
    } else {
        ("u32", "f32", format!("half_in({name}[i >> 1u], i)"))
    };
    Some(format!(
        "{before}@group(0) @binding({binding}) var<storage, read_write> {name}: array<{words}>;\n\
         fn {name}_half(i: u32) -> {value} {{\n    return {load};\n}}\n{after}"
    ))
}

/// A type's name with aliases replaced by what they stand for.
fn resolved(source: &str, name: &str) -> String {
    let mut name = name.trim().to_owned();
    // Aliases are not circular, but a text may be anything.
    for _ in 0..4 {
        let Some((_, rest)) = source.split_once(&format!("alias {name} = ")) else { break };
        let Some((stands_for, _)) = rest.split_once(';') else { break };
        name = stands_for.trim().to_owned();
    }
    name
}

fn without_comments(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    for line in source.lines() {
        text.push_str(line.split_once("//").map_or(line, |(code, _)| code));
        text.push('\n');
    }
    text
}

struct Rewriter<'a> {
    name: &'a str,
    wide: bool,
}

impl Rewriter<'_> {
    /// Replaces every `name[index]` in `text`.
    fn rewrite(&self, text: &str) -> Option<String> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(self.name) {
            let after = &rest[at + self.name.len()..];
            let before = rest[..at].chars().next_back().or(out.chars().next_back());
            let whole = !before.is_some_and(|c| is_word(c) || c == '.') && !after.starts_with(is_word);
            // A variable of the same name hides the binding where it is not indexed.
            if !whole || !after.starts_with('[') {
                if whole && before == Some('&') {
                    return None;
                }
                out.push_str(&rest[..at + self.name.len()]);
                rest = after;
                continue;
            }
            out.push_str(&rest[..at]);
            let end = closing(after)?;
            let index = self.rewrite(&after[1..end])?;
            let tail = after[end + 1..].trim_start();
            rest = &after[end + 1..];
            if tail.starts_with('=') && !tail.starts_with("==") {
                let (value, next) = tail[1..].split_once(';')?;
                let value = self.rewrite(value.trim())?;
                if !self.wide {
                    return None;
                }
                out.push_str(&format!("{}[{index}] = pack_halves({value});", self.name));
                rest = next;
            } else if ["+=", "-=", "*=", "/=", "++", "--", "."].iter().any(|op| tail.starts_with(op)) {
                // `x[i].y` may be read or written; no kernel does either.
                return None;
            } else {
                out.push_str(&format!("{}_half(u32({index}))", self.name));
            }
        }
        out.push_str(rest);
        Some(out)
    }
}

/// Where the bracket closes that `text` begins with.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth == 1 => return Some(at),
            ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::narrowed;

    const TEXT: &str = "alias Block = vec4<f32>;\n\
        @group(0) @binding(1) var<storage, read_write> x: array<Block>;\n\
        @group(0) @binding(2) var<storage, read_write> y: array<f32>;\n\
        // x[i] = y[i];\n\
        fn f(x: f32) -> f32 { return x; }\n\
        fn main() { x[y_at[0]] = x[i + x[0].x] * 2.0; let a = y[u[1]] == y[2]; y[3] = 1.0; }\n";

    #[test]
    fn single_stores_and_components_are_refused() {
        assert!(narrowed(TEXT, 1).is_none());
        assert!(narrowed(TEXT, 2).is_none());
        assert!(narrowed(TEXT, 3).is_none());
    }

    #[test]
    fn loads_and_vector_stores_are_rewritten() {
        let text = narrowed(&TEXT.replace("[0].x", "[0]"), 1).expect("a text");
        assert!(text.contains("x[y_at[0]] = pack_halves(x_half(u32(i + x_half(u32(0)))) * 2.0);"), "{text}");
        assert!(text.contains("x: array<vec2<u32>>;") && text.contains("fn f(x: f32)"), "{text}");
        let text = narrowed(&TEXT.replace("y[3] = 1.0;", ""), 2).expect("a text");
        assert!(text.contains("y_half(u32(u[1])) == y_half(u32(2))") && text.contains("y: array<u32>;"), "{text}");
    }
}
