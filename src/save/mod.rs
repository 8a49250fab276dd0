//! State to and from the safetensors format: parameters, moments, running
//! statistics and counters by name, with texts that say what they belong to.
//!
//! Whatever an optimiser, an average or a loss scaler remembers is a state, so a
//! file of all states is all that a training needs to go on with the same bits,
//! besides what the caller feeds it: the number of the step, learning rate, seed,
//! batches. Those belong into the texts.

use std::collections::{BTreeMap, BTreeSet};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::dtype::{DType, Shape, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Category;
use crate::params::{Params, StateData};

const MEMORY: &str = "safetensors";
/// The key under which the format keeps texts.
const METADATA: &str = "__metadata__";
/// What headers are padded to, so that the data behind them is aligned.
const HEADER_ALIGNMENT: usize = 8;

fn fail(path: &str, detail: impl std::fmt::Display) -> Error {
    Error::File { path: path.to_owned(), detail: detail.to_string() }
}

const fn file_type(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::I32 => Dtype::I32,
        // Truth values lie as words of 0 and 1, on the device and here.
        DType::U32 | DType::Bool => Dtype::U32,
    }
}

/// What a file holds: states, and texts by key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SavedState {
    /// The states. Read from a file, truth values are `u32` and every category is
    /// `Parameter`: the format knows neither.
    pub states: Vec<StateData>,
    /// Texts, as the number of the step.
    pub metadata: BTreeMap<String, String>,
}

impl SavedState {
    /// Reads a safetensors file in memory.
    ///
    /// # Errors
    /// [`Error::File`] for a file that is broken, cut off or no safetensors, or that
    /// holds other number types than F32, F16, I32 and U32.
    pub fn from_safetensors(bytes: &[u8]) -> Result<Self> {
        Self::parse(bytes, MEMORY)
    }

    fn parse(bytes: &[u8], path: &str) -> Result<Self> {
        let file = SafeTensors::deserialize(bytes).map_err(|e| fail(path, e))?;
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| fail(path, e))?;
        let texts = header.metadata().iter().flatten();
        let metadata = texts.map(|(key, text)| (key.clone(), text.clone())).collect();
        let mut states = Vec::new();
        for (name, view) in file.iter() {
            let dtype = match view.dtype() {
                Dtype::F32 => DType::F32,
                Dtype::F16 => DType::F16,
                Dtype::I32 => DType::I32,
                Dtype::U32 => DType::U32,
                other => {
                    return Err(fail(path, format!("{name} is {other:?}; this library reads F32, F16, I32 and U32")));
                }
            };
            states.push(StateData {
                name: name.to_owned(),
                ty: TensorType::new(dtype, Shape(view.shape().to_vec())),
                category: Category::Parameter,
                bytes: view.data().to_vec(),
            });
        }
        Ok(Self { states, metadata })
    }

    /// Reads a safetensors file. Natively only.
    ///
    /// # Errors
    /// As [`Self::from_safetensors`]; [`Error::File`] also if it cannot be read.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn from_file(path: impl AsRef<std::path::Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = path.display().to_string();
        Self::parse(&std::fs::read(path).map_err(|e| fail(&text, e))?, &text)
    }

    /// One safetensors file in memory. The same state gives the same bytes.
    ///
    /// # Errors
    /// [`Error::File`] if the format refuses it.
    pub fn to_safetensors(&self) -> Result<Vec<u8>> {
        let mut views = Vec::with_capacity(self.states.len());
        for state in &self.states {
            let view = TensorView::new(file_type(state.ty.dtype), state.ty.shape.0.clone(), &state.bytes)
                .map_err(|e| fail(MEMORY, format!("{}: {e}", state.name)))?;
            views.push((state.name.as_str(), view));
        }
        let file = safetensors::serialize(views, None).map_err(|e| fail(MEMORY, e))?;
        self.with_metadata(file)
    }

    /// The file with the texts put into its header, in the order of their keys: the
    /// format's own writer takes them in no order.
    fn with_metadata(&self, mut file: Vec<u8>) -> Result<Vec<u8>> {
        let broken = || fail(MEMORY, "a header without an end");
        let length = file.first_chunk().map(|word| u64::from_le_bytes(*word) as usize).ok_or_else(broken)?;
        let header = file.get(8..8 + length).ok_or_else(broken)?;
        let entries = std::str::from_utf8(header).map_err(|e| fail(MEMORY, e))?.trim_end();
        let entries = entries.strip_prefix('{').ok_or_else(broken)?;
        let mut texts = BTreeMap::from([("format", "remat")]);
        texts.extend(self.metadata.iter().map(|(key, text)| (key.as_str(), text.as_str())));
        let texts = serde_json::to_string(&texts).map_err(|e| fail(MEMORY, e))?;
        let comma = if entries == "}" { "" } else { "," };
        let mut made = format!("{{\"{METADATA}\":{texts}{comma}{entries}").into_bytes();
        made.resize(made.len().next_multiple_of(HEADER_ALIGNMENT), b' ');
        let start = [&(made.len() as u64).to_le_bytes()[..], &made].concat();
        file.splice(..8 + length, start);
        Ok(file)
    }

    /// Writes [`Self::to_safetensors`] to a file, which is replaced only once the
    /// new one is complete. Natively only.
    ///
    /// # Errors
    /// As [`Self::to_safetensors`]; [`Error::File`] also if it cannot be written.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn to_file(&self, path: impl AsRef<std::path::Path>) -> Result<()> {
        let path = path.as_ref();
        let text = path.display().to_string();
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        std::fs::write(&part, self.to_safetensors()?).map_err(|e| fail(&text, e))?;
        std::fs::rename(&part, path).map_err(|e| fail(&text, e))
    }

    /// The text under `key`, read as another type; `None` where there is none.
    ///
    /// # Errors
    /// [`Error::File`] for a text that does not read so.
    pub fn value<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>> {
        let Some(text) = self.metadata.get(key) else { return Ok(None) };
        let value = text.parse().map_err(|_| fail(MEMORY, format!("its metadata has {key} = {text:?}")))?;
        Ok(Some(value))
    }
}

impl Params {
    /// Every state as of one moment, with these texts.
    ///
    /// # Errors
    /// As [`Params::read_all`].
    pub async fn saved_state(&self, metadata: BTreeMap<String, String>) -> Result<SavedState> {
        Ok(SavedState { states: self.read_all().await?, metadata })
    }

    /// Writes every state from what was saved: the way to go on with a training.
    /// Record its step first, since that is what registers the optimiser's states.
    ///
    /// # Errors
    /// [`Error::File`] naming a state that was not saved, or a tensor that is none of
    /// these states; [`Error::Data`] for another shape or type. Nothing is written then.
    pub async fn restore(&self, saved: &SavedState) -> Result<()> {
        let have: BTreeSet<&str> = saved.states.iter().map(|state| state.name.as_str()).collect();
        let all = self.all();
        let missing: Vec<_> = all.iter().filter(|param| !have.contains(param.name())).collect();
        if let Some(first) = missing.first() {
            let (name, dtype, shape) = (first.name(), first.ty().dtype, &first.ty().shape);
            let detail = format!(
                "it has no tensor {name:?} ({dtype} {shape}), {} of {} are missing; is it of this model and optimiser?",
                missing.len(),
                all.len()
            );
            return Err(fail(MEMORY, detail));
        }
        if let Some(extra) = saved.states.iter().find(|state| self.get(&state.name).is_none()) {
            let (name, dtype, shape) = (&extra.name, extra.ty.dtype, &extra.ty.shape);
            let detail = format!("its tensor {name:?} ({dtype} {shape}) is no state here; is it of this model?");
            return Err(fail(MEMORY, detail));
        }
        self.load_all(&saved.states).await
    }

    /// Every state as one safetensors file in memory.
    ///
    /// # Errors
    /// As [`Params::read_all`] and [`SavedState::to_safetensors`].
    pub async fn to_safetensors(&self) -> Result<Vec<u8>> {
        self.saved_state(BTreeMap::new()).await?.to_safetensors()
    }

    /// Loads every tensor of a safetensors file in memory into the state of its
    /// name: all of them, or none. States that the file has not stay as they are;
    /// [`Params::restore`] insists on all.
    ///
    /// # Errors
    /// As [`SavedState::from_safetensors`]; [`Error::UnknownState`] and
    /// [`Error::Data`] for tensors that do not fit.
    pub async fn load_safetensors(&self, bytes: &[u8]) -> Result<()> {
        self.load_all(&SavedState::from_safetensors(bytes)?.states).await
    }

    /// Writes [`Params::to_safetensors`] to a file, which is replaced only once
    /// the new one is complete. Natively only.
    ///
    /// # Errors
    /// As [`Params::read_all`] and [`SavedState::to_file`].
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn save_file(&self, path: impl AsRef<std::path::Path>) -> Result<()> {
        self.saved_state(BTreeMap::new()).await?.to_file(path)
    }

    /// [`Params::load_safetensors`] from a file. Natively only.
    ///
    /// # Errors
    /// As [`Params::load_safetensors`] and [`SavedState::from_file`].
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn load_file(&self, path: impl AsRef<std::path::Path>) -> Result<()> {
        self.load_all(&SavedState::from_file(path)?.states).await
    }
}
