//! Sees to it, as far as a built module shows, that nothing in it can block the page.
//!
//! A WebAssembly module blocks by `memory.atomic.wait`, which traps unless its
//! memory is shared, or by a function that it imports. So: no shared memory, no
//! import and no line of the glue that waits, and no executor that blocks.

use std::fs;
use std::path::Path;

/// What a page could be blocked by, in the glue or in the name of an import.
const BLOCKING: [&str; 7] =
    ["Atomics.wait", "SharedArrayBuffer", "XMLHttpRequest", "FileReaderSync", "alert(", "confirm(", "prompt("];
/// Crates whose only purpose is to block on a future; the development profile
/// keeps the names of functions.
const EXECUTORS: [&str; 2] = ["pollster", "futures_executor"];

const IMPORTS: u8 = 2;
const MEMORIES: u8 = 5;

/// Refuses a module that could block.
///
/// # Errors
/// What was found, or the module is none.
pub(crate) fn check(folder: &Path, module: &str) -> Result<(), String> {
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let wasm = read(&format!("{module}_bg.wasm"))?;
    check_module(&wasm).map_err(|why| format!("{module}_bg.wasm: {why}"))?;
    let glue = read(&format!("{module}.js"))?;
    check_glue(&String::from_utf8_lossy(&glue)).map_err(|why| format!("{module}.js: {why}"))
}

fn check_glue(glue: &str) -> Result<(), String> {
    match BLOCKING.iter().find(|word| glue.contains(*word)) {
        Some(word) => Err(format!("it says {word}, which blocks the page")),
        None => Ok(()),
    }
}

fn check_module(wasm: &[u8]) -> Result<(), String> {
    let mut input = wasm.strip_prefix(b"\0asm\x01\0\0\0").map(Reader).ok_or("not a WebAssembly module")?;
    let mut memories = 0;
    while !input.0.is_empty() {
        let id = input.byte()?;
        let length = input.number()?;
        let mut section = Reader(input.take(length)?);
        match id {
            IMPORTS => memories += imports(&mut section)?,
            MEMORIES => {
                let count = section.number()?;
                for _ in 0..count {
                    section.memory()?;
                }
                memories += count;
            }
            _ => {}
        }
    }
    if memories == 0 {
        return Err("it has no memory".to_owned());
    }
    let found = |name: &&&str| wasm.windows(name.len()).any(|window| window == name.as_bytes());
    match EXECUTORS.iter().find(found) {
        Some(name) => Err(format!("{name} is linked in, which blocks on futures")),
        None => Ok(()),
    }
}

/// Goes through the imports; returns how many memories are among them.
fn imports(section: &mut Reader<'_>) -> Result<usize, String> {
    let mut memories = 0;
    for _ in 0..section.number()? {
        let module = section.name()?;
        let name = section.name()?;
        if ["atomics_wait", "atomic_wait", "block_on"].iter().any(|word| name.contains(word)) {
            return Err(format!("it imports {module} {name}"));
        }
        match section.byte()? {
            // A function's type.
            0 => drop(section.number()?),
            // A table: the type of its elements, its limits.
            1 => {
                section.byte()?;
                section.limits()?;
            }
            2 => {
                section.memory()?;
                memories += 1;
            }
            // A global: its type, whether it may change.
            3 => drop(section.take(2)?),
            // A tag: an attribute, its type.
            4 => {
                section.byte()?;
                section.number()?;
            }
            other => return Err(format!("an import of unknown kind {other}")),
        }
    }
    Ok(memories)
}

/// The module's bytes that are still to be read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (head, rest) = self.0.split_at_checked(length).ok_or("it is cut short")?;
        self.0 = rest;
        Ok(head)
    }

    fn byte(&mut self) -> Result<u8, String> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// An unsigned number, LEB128.
    fn number(&mut self) -> Result<usize, String> {
        let (mut value, mut shift) = (0_u64, 0);
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return usize::try_from(value).map_err(|error| error.to_string());
            }
            shift += 7;
            if shift > 56 {
                return Err("a number is too long".to_owned());
            }
        }
    }

    fn name(&mut self) -> Result<&'a str, String> {
        let length = self.number()?;
        std::str::from_utf8(self.take(length)?).map_err(|error| error.to_string())
    }

    /// Returns the flags.
    fn limits(&mut self) -> Result<u8, String> {
        let flags = self.byte()?;
        self.number()?;
        if flags & 1 != 0 {
            self.number()?;
        }
        Ok(flags)
    }

    fn memory(&mut self) -> Result<(), String> {
        let flags = self.limits()?;
        if flags & 2 != 0 {
            return Err("its memory is shared, so that it could wait".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"\0asm\x01\0\0\0";

    #[test]
    fn a_plain_module_passes() {
        let memory = [MEMORIES, 3, 1, 0, 16];
        assert_eq!(check_module(&[HEAD, &memory].concat()), Ok(()));
        let import = [IMPORTS, 7, 1, 1, b'e', 1, b'f', 0, 0];
        assert_eq!(check_module(&[HEAD, &import, &memory].concat()), Ok(()));
        assert_eq!(check_glue("imports.wbg = {}"), Ok(()));
    }

    #[test]
    fn what_could_block_is_found() {
        for tail in [
            &[MEMORIES, 4, 1, 3, 16, 32][..],
            &[MEMORIES, 3, 1, 0],
            &[],
            &[MEMORIES, 3, 1, 0, 16, 0, 9, 8, b'p', b'o', b'l', b'l', b's', b't', b'e', b'r'],
            &[IMPORTS, 9, 1, 1, b'e', 1, b'm', 2, 3, 1, 2],
        ] {
            assert!(check_module(&[HEAD, tail].concat()).is_err(), "{tail:?}");
        }
        let wait = b"\x02\x12\x01\x01e\x0catomics_wait\x00\x00";
        let memory = [MEMORIES, 3, 1, 0, 16];
        assert!(check_module(&[HEAD, wait, &memory].concat()).is_err());
        assert!(check_module(b"").is_err());
        assert!(check_glue("Atomics.wait(x, 0, 0)").is_err());
    }
}
