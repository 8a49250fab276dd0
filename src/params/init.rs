//! First values of a state, made on the host by a counter-based generator.

use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::random::Stream;
use crate::shared::Shared;

/// How a state gets its first values.
///
/// Random values depend on the seed of the [`super::Params`], the state's name
/// and the element's index, on nothing else.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Init {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// All this value (rounded towards zero for integers).
    Constant(f32),
    /// Uniform in `[low, high)`; f32 only.
    Uniform {
        /// The least value.
        low: f32,
        /// The bound above.
        high: f32,
    },
    /// Normal; f32 only.
    Normal {
        /// The mean.
        mean: f32,
        /// The standard deviation.
        std: f32,
    },
    /// These f32 values, row-major.
    Data(Shared<[f32]>),
    /// These u32 values (or truth values of 0 and 1), row-major.
    DataU32(Shared<[u32]>),
    /// These i32 values, row-major.
    DataI32(Shared<[i32]>),
}

impl From<Vec<f32>> for Init {
    fn from(values: Vec<f32>) -> Self {
        Self::Data(values.into())
    }
}

impl Init {
    /// Proves that it can make values of this type.
    pub(super) fn check(&self, name: &str, ty: &TensorType) -> Result<()> {
        let wrong = |found: String| {
            let (name, dtype, shape) = (name.to_owned(), ty.dtype, ty.shape.clone());
            Err(Error::Data { op: "create", name, dtype, shape, found })
        };
        let data = |dtype: DType, fits: bool, count: usize| {
            if fits && count as u64 == ty.shape.element_count() {
                Ok(())
            } else {
                wrong(format!("{count} values of {dtype}"))
            }
        };
        match self {
            Self::Zeros | Self::Ones | Self::Constant(_) => Ok(()),
            Self::Uniform { .. } | Self::Normal { .. } if ty.dtype.is_float() => Ok(()),
            Self::Uniform { .. } | Self::Normal { .. } => wrong("a distribution of f32".into()),
            Self::Data(v) => data(DType::F32, ty.dtype == DType::F32, v.len()),
            Self::DataU32(v) => data(DType::U32, matches!(ty.dtype, DType::U32 | DType::Bool), v.len()),
            Self::DataI32(v) => data(DType::I32, ty.dtype == DType::I32, v.len()),
        }
    }

    /// The values as the device holds them.
    pub(super) fn bytes(&self, seed: u64, name: &str, ty: &TensorType) -> Vec<u8> {
        let count = ty.shape.element_count() as usize;
        let floats = |values: Vec<f32>| bytemuck::cast_slice(&values).to_vec();
        let mut stream = Stream::new(seed, name);
        match self {
            Self::Zeros => vec![0; 4 * count],
            Self::Ones => constant(1.0, ty.dtype).repeat(count),
            Self::Constant(value) => constant(*value, ty.dtype).repeat(count),
            Self::Uniform { low, high } => floats((0..count).map(|_| low + (high - low) * stream.uniform()).collect()),
            Self::Normal { mean, std } => {
                let mut values: Vec<f32> =
                    (0..count.div_ceil(2)).flat_map(|_| stream.normal_pair()).map(|x| mean + std * x).collect();
                values.truncate(count);
                floats(values)
            }
            Self::Data(v) => bytemuck::cast_slice(v).to_vec(),
            Self::DataU32(v) => bytemuck::cast_slice(v).to_vec(),
            Self::DataI32(v) => bytemuck::cast_slice(v).to_vec(),
        }
    }
}

fn constant(value: f32, dtype: DType) -> [u8; 4] {
    match dtype {
        DType::F32 => value.to_ne_bytes(),
        DType::I32 => (value as i32).to_ne_bytes(),
        DType::U32 => (value as u32).to_ne_bytes(),
        DType::Bool => u32::from(value != 0.0).to_ne_bytes(),
    }
}
