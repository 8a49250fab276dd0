//! Data types, shapes and strided layouts: pure data, no tensors.

use std::fmt;

pub use half::f16;

/// The type of a tensor's elements.
///
/// WebGPU has no storage type for `bool`, which is kept as a `u32` of 0 or 1. An
/// element of `f16` takes two bytes, every other four; see `docs/precision.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DType {
    /// 32-bit IEEE float.
    F32,
    /// 16-bit IEEE float in memory, two in a word; arithmetic on it is in `f32`.
    F16,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// Truth value, stored as a `u32` of 0 or 1.
    Bool,
}

impl DType {
    /// Bytes of one element in device memory.
    #[must_use]
    pub const fn size_bytes(self) -> u64 {
        match self {
            Self::F16 => 2,
            Self::F32 | Self::I32 | Self::U32 | Self::Bool => 4,
        }
    }

    /// The WGSL type that a storage buffer of this data type holds; for `f16` a
    /// word of two elements, the first in its lower half.
    #[must_use]
    pub const fn wgsl_storage(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::I32 => "i32",
            Self::U32 | Self::Bool | Self::F16 => "u32",
        }
    }

    /// The WGSL type that expressions of this data type have.
    #[must_use]
    pub const fn wgsl_value(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::F16 => "f32",
            other => other.wgsl_storage(),
        }
    }

    /// True for types that have gradients.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::Bool => "bool",
        })
    }
}

/// A host type that tensors can be made from and read into.
pub trait Element: bytemuck::Pod + fmt::Debug + Send + Sync + 'static {
    /// The data type that it corresponds to.
    const DTYPE: DType;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
impl Element for f16 {
    const DTYPE: DType = DType::F16;
}
impl Element for i32 {
    const DTYPE: DType = DType::I32;
}
impl Element for u32 {
    const DTYPE: DType = DType::U32;
}

/// The extents of a tensor, outermost first. `[]` is a scalar.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(pub Vec<usize>);

/// The number of elements of `dims`; saturates, so that what is too large to
/// count is refused as too large, not wrapped to something small.
pub(crate) fn count(dims: &[usize]) -> usize {
    dims.iter().fold(1, |n: usize, &d| n.saturating_mul(d))
}

impl Shape {
    /// A scalar's shape.
    #[must_use]
    pub fn scalar() -> Self {
        Self(Vec::new())
    }

    /// The extents.
    #[must_use]
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// The number of axes.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The number of elements; saturates instead of wrapping.
    #[must_use]
    pub fn element_count(&self) -> u64 {
        if self.0.contains(&0) {
            return 0;
        }
        self.0.iter().fold(1_u64, |n, &d| n.saturating_mul(d as u64))
    }

    /// Row-major strides in elements.
    #[must_use]
    pub fn contiguous_strides(&self) -> Vec<u64> {
        let mut strides = vec![1_u64; self.0.len()];
        for axis in (0..self.0.len().saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1].saturating_mul(self.0[axis + 1].max(1) as u64);
        }
        strides
    }

    /// The shape that two operands broadcast to (NumPy's rule), if they do.
    #[must_use]
    pub fn broadcast(&self, other: &Self) -> Option<Self> {
        let rank = self.rank().max(other.rank());
        let mut dims = vec![0; rank];
        for (i, dim) in dims.iter_mut().enumerate() {
            let from_end = rank - i;
            let a = if from_end <= self.rank() { self.0[self.rank() - from_end] } else { 1 };
            let b = if from_end <= other.rank() { other.0[other.rank() - from_end] } else { 1 };
            *dim = match (a, b) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => return None,
            };
        }
        Some(Self(dims))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Self {
        Self(dims.to_vec())
    }
}
impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        Self(dims)
    }
}
impl From<&Vec<usize>> for Shape {
    fn from(dims: &Vec<usize>) -> Self {
        Self(dims.clone())
    }
}
impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Self(dims.to_vec())
    }
}
impl From<&Self> for Shape {
    fn from(shape: &Self) -> Self {
        shape.clone()
    }
}

/// Data type and shape: everything that a shape rule sees of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// The element type.
    pub dtype: DType,
    /// The extents.
    pub shape: Shape,
}

impl TensorType {
    /// A type from its parts.
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> Self {
        Self { dtype, shape: shape.into() }
    }

    /// Bytes that a contiguous value of this type takes, in whole words of four;
    /// saturates.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let bytes = self.data_bytes();
        bytes.checked_next_multiple_of(4).unwrap_or(bytes)
    }

    /// Bytes of its elements alone: two less than [`Self::size_bytes`] for an odd
    /// number of `f16`.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.shape.element_count().saturating_mul(self.dtype.size_bytes())
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.dtype, self.shape)
    }
}

/// How a value lies in its storage: element `index` is found at
/// `offset + sum(index[axis] * strides[axis])`, all counted in elements.
/// A stride of 0 repeats (broadcast).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layout {
    /// The extents.
    pub shape: Shape,
    /// The stride of each axis, in elements.
    pub strides: Vec<u64>,
    /// The first element's place, in elements.
    pub offset: u64,
}

impl Layout {
    /// The row-major layout at offset 0.
    #[must_use]
    pub fn contiguous(shape: &Shape) -> Self {
        Self { shape: shape.clone(), strides: shape.contiguous_strides(), offset: 0 }
    }

    /// True if elements lie row-major without gaps (at any offset).
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1_u64;
        for (&dim, &stride) in self.shape.0.iter().zip(&self.strides).rev() {
            if dim != 1 && stride != expected {
                return self.shape.element_count() == 0;
            }
            expected = expected.saturating_mul(dim as u64);
        }
        true
    }

    /// Drops axes of extent 1 and joins neighbours that lie one after the
    /// other, so that `shape` and `strides` are as short as possible while the
    /// row-major order of elements stays. Several layouts over one shape are
    /// joined alike by [`collapse_together`].
    #[must_use]
    pub fn collapsed(&self) -> Self {
        let (shape, mut strides) = collapse_together(&self.shape, &[&self.strides]);
        Self { shape, strides: strides.pop().unwrap_or_default(), offset: self.offset }
    }
}

/// Joins neighbouring axes wherever every one of the stride sets allows it.
#[must_use]
pub fn collapse_together(shape: &Shape, strides: &[&[u64]]) -> (Shape, Vec<Vec<u64>>) {
    let mut dims: Vec<usize> = Vec::new();
    let mut out: Vec<Vec<u64>> = vec![Vec::new(); strides.len()];
    for (axis, &dim) in shape.0.iter().enumerate() {
        if dim == 1 {
            continue;
        }
        let joins = !dims.is_empty()
            && out
                .iter()
                .zip(strides)
                .all(|(kept, full)| kept.last().is_some_and(|&outer| outer == full[axis].saturating_mul(dim as u64)));
        if joins {
            if let Some(last) = dims.last_mut() {
                *last = last.saturating_mul(dim);
            }
            for (kept, full) in out.iter_mut().zip(strides) {
                if let Some(last) = kept.last_mut() {
                    *last = full[axis];
                }
            }
        } else {
            dims.push(dim);
            for (kept, full) in out.iter_mut().zip(strides) {
                kept.push(full[axis]);
            }
        }
    }
    (Shape(dims), out)
}

impl Layout {
    /// This layout seen in another shape with as many elements in the same
    /// row-major order, or `None` if strides do not suffice (NumPy's rule).
    #[must_use]
    pub fn reshaped(&self, shape: &Shape) -> Option<Self> {
        if self.shape.element_count() != shape.element_count() {
            return None;
        }
        if shape.element_count() == 0 {
            return Some(Self { offset: self.offset, ..Self::contiguous(shape) });
        }
        let flat = self.collapsed();
        let mut strides = vec![0_u64; shape.rank()];
        // Each joined axis of the source must be filled exactly by neighbouring axes of the target.
        let mut source = flat.shape.0.iter().zip(&flat.strides).rev();
        let mut current: Option<(u64, u64)> = None;
        for axis in (0..shape.rank()).rev() {
            let dim = shape.0[axis] as u64;
            if dim == 1 {
                strides[axis] = 0;
                continue;
            }
            let (left, stride) = match current {
                Some(state) => state,
                None => source.next().map(|(&d, &s)| (d as u64, s))?,
            };
            if left % dim != 0 {
                return None;
            }
            strides[axis] = stride;
            current = (left != dim).then(|| (left / dim, stride.saturating_mul(dim)));
        }
        Some(Self { shape: shape.clone(), strides, offset: self.offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshaping_follows_strides() {
        let base = Layout::contiguous(&[2, 3, 4].into());
        assert_eq!(base.reshaped(&[6, 4].into()).map(|l| l.strides), Some(vec![4, 1]));
        assert_eq!(base.reshaped(&[3, 8].into()).map(|l| l.strides), Some(vec![8, 1]));
        let permuted = Layout { shape: [3, 2, 4].into(), strides: vec![4, 12, 1], offset: 0 };
        assert_eq!(permuted.reshaped(&[6, 4].into()), None);
        assert_eq!(permuted.reshaped(&[3, 2, 2, 2].into()).map(|l| l.strides), Some(vec![4, 12, 2, 1]));
        let broadcast = Layout { shape: [5, 6].into(), strides: vec![0, 1], offset: 0 };
        assert_eq!(broadcast.reshaped(&[5, 2, 3].into()).map(|l| l.strides), Some(vec![0, 3, 1]));
        assert_eq!(broadcast.reshaped(&[30].into()), None);
    }

    #[test]
    fn broadcasting_follows_numpy() {
        let shape = |d: &[usize]| Shape(d.to_vec());
        assert_eq!(shape(&[4, 1, 3]).broadcast(&shape(&[2, 1])), Some(shape(&[4, 2, 3])));
        assert_eq!(shape(&[2]).broadcast(&shape(&[3])), None);
        assert_eq!(shape(&[0]).broadcast(&shape(&[1])), Some(shape(&[0])));
    }

    #[test]
    fn contiguity_ignores_unit_axes() {
        assert!(Layout { shape: [1, 3].into(), strides: vec![77, 1], offset: 5 }.is_contiguous());
        assert!(!Layout { shape: [2, 3].into(), strides: vec![1, 2], offset: 0 }.is_contiguous());
    }
}
