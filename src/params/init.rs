//! First values of a state, made on the host by a counter-based generator.

use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::random::Stream;
use crate::shared::Shared;

/// Elements made at once; even, since normal numbers come in pairs.
const PIECE: usize = 1 << 20;

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
            Self::Data(v) => data(DType::F32, ty.dtype.is_float(), v.len()),
            Self::DataU32(v) => data(DType::U32, matches!(ty.dtype, DType::U32 | DType::Bool), v.len()),
            Self::DataI32(v) => data(DType::I32, ty.dtype == DType::I32, v.len()),
        }
    }

    /// True if all values are 0, which the device can write by itself.
    pub(super) fn is_zero(&self) -> bool {
        matches!(self, Self::Zeros)
    }

    /// Hands over the values as the device holds them, in order, a few MiB at
    /// a time: a large state does not need its size again on the host.
    pub(super) fn pieces(&self, seed: u64, name: &str, ty: &TensorType, mut take: impl FnMut(&[u8])) {
        let data: Option<&[u8]> = match self {
            Self::Data(v) => Some(bytemuck::cast_slice(v)),
            Self::DataU32(v) => Some(bytemuck::cast_slice(v)),
            Self::DataI32(v) => Some(bytemuck::cast_slice(v)),
            _ => None,
        };
        if let (Self::Data(values), DType::F16) = (self, ty.dtype) {
            return values.chunks(PIECE).for_each(|piece| take(&narrowed(piece)));
        }
        if let Some(data) = data {
            return take(data);
        }
        let count = ty.shape.element_count() as usize;
        let mut stream = Stream::new(seed, name);
        let mut done = 0;
        while done < count {
            let now = PIECE.min(count - done);
            take(&self.piece(&mut stream, ty.dtype, now));
            done += now;
        }
    }

    fn piece(&self, stream: &mut Stream, dtype: DType, count: usize) -> Vec<u8> {
        let floats = |values: Vec<f32>| match dtype {
            DType::F16 => narrowed(&values),
            _ => bytemuck::cast_slice(&values).to_vec(),
        };
        match self {
            Self::Uniform { low, high } => floats((0..count).map(|_| low + (high - low) * stream.uniform()).collect()),
            Self::Normal { mean, std } => {
                let pairs = (0..count.div_ceil(2)).flat_map(|_| stream.normal_pair());
                floats(pairs.take(count).map(|x| mean + std * x).collect())
            }
            Self::Ones | Self::Constant(_) if dtype == DType::F16 => {
                floats(vec![if let Self::Constant(value) = self { *value } else { 1.0 }; count])
            }
            Self::Ones => constant(1.0, dtype).repeat(count),
            Self::Constant(value) => constant(*value, dtype).repeat(count),
            Self::Zeros | Self::Data(_) | Self::DataU32(_) | Self::DataI32(_) => vec![0; 4 * count],
        }
    }
}

/// Bytes of the nearest halves.
fn narrowed(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| half::f16::from_f32(*v).to_ne_bytes()).collect()
}

fn constant(value: f32, dtype: DType) -> [u8; 4] {
    match dtype {
        DType::F32 | DType::F16 => value.to_ne_bytes(),
        DType::I32 => (value as i32).to_ne_bytes(),
        DType::U32 => (value as u32).to_ne_bytes(),
        DType::Bool => u32::from(value != 0.0).to_ne_bytes(),
    }
}
