//! State to and from the safetensors format: parameters and moments by name.

use std::collections::HashMap;

use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::dtype::{DType, Shape, TensorType};
use crate::error::{Error, Result};
use crate::params::{Params, StateData};

const MEMORY: &str = "safetensors";

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

impl Params {
    /// Every state that exists on the device or has data waiting, as one
    /// safetensors file in memory.
    ///
    /// # Errors
    /// As [`Params::read_all`]; [`Error::File`] if the format refuses it.
    pub async fn to_safetensors(&self) -> Result<Vec<u8>> {
        let states = self.read_all().await?;
        let mut views = Vec::with_capacity(states.len());
        for state in &states {
            let view = TensorView::new(file_type(state.ty.dtype), state.ty.shape.0.clone(), &state.bytes)
                .map_err(|e| fail(MEMORY, format!("{}: {e}", state.name)))?;
            views.push((state.name.as_str(), view));
        }
        let about = HashMap::from([("format".to_owned(), "remat".to_owned())]);
        safetensors::serialize(views, Some(about)).map_err(|e| fail(MEMORY, e))
    }

    /// Loads every tensor of a safetensors file in memory into the state of its
    /// name: all of them, or none.
    ///
    /// # Errors
    /// [`Error::File`] for a file that is broken or holds other number types;
    /// [`Error::UnknownState`] and [`Error::Data`] for tensors that do not fit.
    pub async fn load_safetensors(&self, bytes: &[u8]) -> Result<()> {
        self.load_named(bytes, MEMORY).await
    }

    async fn load_named(&self, bytes: &[u8], path: &str) -> Result<()> {
        let file = SafeTensors::deserialize(bytes).map_err(|e| fail(path, e))?;
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
            let known = self.get(name).map(|p| (p.ty().dtype, p.category()));
            // A truth value is stored as a word.
            let dtype =
                if dtype == DType::U32 && known.is_some_and(|(d, _)| d == DType::Bool) { DType::Bool } else { dtype };
            let category = known.map_or(crate::fuse::program::Category::Parameter, |(_, c)| c);
            states.push(StateData {
                name: name.to_owned(),
                ty: TensorType::new(dtype, Shape(view.shape().to_vec())),
                category,
                bytes: view.data().to_vec(),
            });
        }
        self.load_all(&states).await
    }

    /// Writes [`Params::to_safetensors`] to a file, which is replaced only once
    /// the new one is complete. Natively only.
    ///
    /// # Errors
    /// As [`Params::to_safetensors`]; [`Error::File`].
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn save_file(&self, path: impl AsRef<std::path::Path>) -> Result<()> {
        let path = path.as_ref();
        let text = path.display().to_string();
        let bytes = self.to_safetensors().await?;
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        std::fs::write(&part, bytes).map_err(|e| fail(&text, e))?;
        std::fs::rename(&part, path).map_err(|e| fail(&text, e))
    }

    /// [`Params::load_safetensors`] from a file. Natively only.
    ///
    /// # Errors
    /// As [`Params::load_safetensors`]; [`Error::File`].
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn load_file(&self, path: impl AsRef<std::path::Path>) -> Result<()> {
        let path = path.as_ref();
        let text = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|e| fail(&text, e))?;
        self.load_named(&bytes, &text).await
    }
}
