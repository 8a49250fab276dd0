//! The shaders that browsers are to compile, as a native test dumped them.
//!
//! The library assembles its shaders, so their final text is known only to the
//! program. A test writes each as `NAME.wgsl` into the folder that the
//! environment variable `REMAT_SHADER_DUMP` names, and beside it `NAME.json`:
//!
//! ```json
//! { "features": ["shader-f16"],
//!   "pipelines": [ { "entry": "main", "constants": { "TILE": 8 } } ] }
//! ```
//!
//! Both keys may be missing, and so may the file: the module then gets one
//! pipeline, of its only entry point, without constants.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// All shaders in `dump`, in the order of their names.
///
/// # Errors
/// A file cannot be read, or its neighbour is not JSON.
pub(crate) fn collect(dump: &Path) -> Result<Vec<Value>, String> {
    let mut files: Vec<_> =
        fs::read_dir(dump).map(|entries| entries.flatten().map(|entry| entry.path()).collect()).unwrap_or_default();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "wgsl"));
    files.sort();
    files.iter().map(|path| one(path)).collect()
}

fn one(path: &Path) -> Result<Value, String> {
    let at = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let source = fs::read_to_string(path).map_err(|error| at(&error))?;
    let about = match fs::read(path.with_extension("json")) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| at(&error))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => json!({}),
        Err(error) => return Err(at(&error)),
    };
    let or = |key: &str, default: Value| match &about[key] {
        Value::Null => default,
        value => value.clone(),
    };
    Ok(json!({
        "name": path.file_stem().map(|stem| stem.to_string_lossy()),
        "source": source,
        "features": or("features", json!([])),
        "pipelines": or("pipelines", json!([{}])),
    }))
}

/// How many shader files the repository has below `folder`.
pub(crate) fn count_sources(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .map(|path| {
            if path.is_dir() {
                count_sources(&path)
            } else {
                usize::from(path.extension().is_some_and(|extension| extension == "wgsl"))
            }
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_is_read_with_and_without_notes() -> Result<(), Box<dyn std::error::Error>> {
        let folder = std::env::temp_dir().join(format!("remat dump {}", std::process::id()));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("b.wgsl"), "// b")?;
        fs::write(folder.join("a.wgsl"), "// a")?;
        fs::write(folder.join("a.json"), r#"{"pipelines":[{"entry":"m"}]}"#)?;
        let shaders = collect(&folder)?;
        assert_eq!(shaders.len(), 2);
        assert_eq!(shaders[0]["pipelines"][0]["entry"], "m");
        assert_eq!(shaders[1]["name"], "b");
        assert_eq!(shaders[1]["pipelines"], json!([{}]));
        assert_eq!(count_sources(&folder), 2);
        fs::write(folder.join("b.json"), "{")?;
        assert!(collect(&folder).is_err());
        fs::remove_dir_all(&folder)?;
        assert!(collect(&folder)?.is_empty());
        Ok(())
    }
}
