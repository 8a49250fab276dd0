//! The handle that users compute with.

use super::{Recorder, ValueId};
use crate::dtype::{DType, Shape, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Mark;
use crate::ops::Op;
use crate::shared::Shared;

/// A value of a recording: a cheap handle (recording and index).
///
/// Every operation returns a `Result` whose error names the operation and the
/// shapes. Operations stand in the files of [`crate::ops`].
#[derive(Debug, Clone)]
pub struct Tensor {
    recorder: Recorder,
    id: ValueId,
    ty: TensorType,
}

impl Tensor {
    pub(crate) fn new(recorder: Recorder, id: ValueId, ty: TensorType) -> Self {
        Self { recorder, id, ty }
    }

    /// The recording that it belongs to.
    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Its index in the recording.
    #[must_use]
    pub fn id(&self) -> ValueId {
        self.id
    }

    /// Data type and shape.
    #[must_use]
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// The extents.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.ty.shape
    }

    /// The extents as a slice.
    #[must_use]
    pub fn dims(&self) -> &[usize] {
        self.ty.shape.dims()
    }

    /// The number of axes.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.ty.shape.rank()
    }

    /// The data type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// The number of elements.
    #[must_use]
    pub fn element_count(&self) -> u64 {
        self.ty.shape.element_count()
    }

    /// Gives it a name for reports and policies. A named value is always
    /// written to memory, under every policy alike.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        self.recorder.set_name(self.id, name);
        self
    }

    /// Has every policy keep it from forward to backward, if backward needs it.
    /// It is written to memory, under every policy alike.
    #[must_use]
    pub fn must_save(self) -> Self {
        self.recorder.set_mark(self.id, Mark::Save);
        self
    }

    /// Has every policy drop it after its last reader of the forward pass and
    /// replay it for backward, where it can be made again. It is written to
    /// memory, under every policy alike.
    #[must_use]
    pub fn must_recompute(self) -> Self {
        self.recorder.set_mark(self.id, Mark::Recompute);
        self
    }

    /// Records an op on this tensor alone and returns its first output.
    pub(crate) fn apply(&self, op: impl Op + 'static) -> Result<Self> {
        self.apply_with(op, &[])
    }

    /// Records an op on this tensor and `others` and returns its first output.
    pub(crate) fn apply_with(&self, op: impl Op + 'static, others: &[&Self]) -> Result<Self> {
        let name = op.name();
        let mut operands = vec![self];
        operands.extend_from_slice(others);
        let mut outputs = self.recorder.record(Shared::new(op), &operands)?;
        if outputs.is_empty() {
            return Err(Error::Argument {
                op: name,
                argument: "output",
                value: "none".into(),
                detail: "this operation hands nothing back".into(),
            });
        }
        Ok(outputs.swap_remove(0))
    }

    /// An axis counted from the end when negative, as an index.
    pub(crate) fn axis(&self, op: &'static str, axis: isize) -> Result<usize> {
        let rank = self.rank() as isize;
        let from_start = if axis < 0 { axis + rank } else { axis };
        if (0..rank).contains(&from_start) {
            Ok(from_start as usize)
        } else {
            Err(Error::Argument {
                op,
                argument: "axis",
                value: axis.to_string(),
                detail: format!("a tensor of shape {} has the axes {}..{}", self.shape(), -rank, rank),
            })
        }
    }

    /// Fails unless this is a tensor of floats.
    pub(crate) fn expect_float(&self, op: &'static str, operand: usize) -> Result<()> {
        if self.dtype().is_float() {
            Ok(())
        } else {
            Err(Error::DType { op, operand, found: self.dtype(), expected: "f32 or f16" })
        }
    }
}
