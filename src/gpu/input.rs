//! Data of a run, typed: never silently converted.

use crate::dtype::{DType, Element};

/// What one input of a run is given: a slice, an array, a vector or a single
/// value of `f32`, `i32`, `u32` or `bool`.
///
/// ```
/// use remat::gpu::InputData;
/// let values = vec![1.0_f32, 2.0];
/// let _: [(&str, InputData<'_>); 2] = [("x", (&values).into()), ("lr", 1e-3_f32.into())];
/// ```
#[derive(Debug, Clone)]
pub struct InputData<'a> {
    pub(super) dtype: DType,
    bytes: Bytes<'a>,
}

#[derive(Debug, Clone)]
enum Bytes<'a> {
    Borrowed(&'a [u8]),
    Word([u8; 4]),
    Owned(Vec<u8>),
}

impl InputData<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Borrowed(bytes) => bytes,
            Bytes::Word(bytes) => bytes,
            Bytes::Owned(bytes) => bytes,
        }
    }

    /// Its type and length, in words.
    pub(super) fn describe(&self) -> String {
        format!("{} values of {}", self.bytes().len() as u64 / self.dtype.size_bytes(), self.dtype)
    }
}

impl<'a, T: Element> From<&'a [T]> for InputData<'a> {
    fn from(values: &'a [T]) -> Self {
        Self { dtype: T::DTYPE, bytes: Bytes::Borrowed(bytemuck::cast_slice(values)) }
    }
}
impl<'a, T: Element> From<&'a Vec<T>> for InputData<'a> {
    fn from(values: &'a Vec<T>) -> Self {
        values.as_slice().into()
    }
}
impl<'a, T: Element, const N: usize> From<&'a [T; N]> for InputData<'a> {
    fn from(values: &'a [T; N]) -> Self {
        values.as_slice().into()
    }
}
impl<T: Element> From<Vec<T>> for InputData<'_> {
    fn from(values: Vec<T>) -> Self {
        Self { dtype: T::DTYPE, bytes: Bytes::Owned(bytemuck::cast_slice(&values).to_vec()) }
    }
}
impl<'a> From<&'a [bool]> for InputData<'a> {
    /// One word of 0 or 1 per value, as the device holds it.
    fn from(values: &'a [bool]) -> Self {
        let bytes = values.iter().flat_map(|&v| u32::from(v).to_ne_bytes()).collect();
        Self { dtype: DType::Bool, bytes: Bytes::Owned(bytes) }
    }
}
impl<'a> From<&'a Vec<bool>> for InputData<'a> {
    fn from(values: &'a Vec<bool>) -> Self {
        values.as_slice().into()
    }
}

macro_rules! scalars {
    ($($ty:ty),*) => {$(
        impl From<$ty> for InputData<'_> {
            fn from(value: $ty) -> Self {
                Self { dtype: <$ty as Element>::DTYPE, bytes: Bytes::Word(value.to_ne_bytes()) }
            }
        }
        impl From<&$ty> for InputData<'_> {
            fn from(value: &$ty) -> Self {
                (*value).into()
            }
        }
    )*};
}
scalars!(f32, i32, u32);

impl From<half::f16> for InputData<'_> {
    fn from(value: half::f16) -> Self {
        vec![value].into()
    }
}
