//! Stub until the device room lands.
use crate::dtype::TensorType;
use crate::fuse::program::Category;

/// State by name.
#[derive(Debug, Clone)]
pub struct Params;
/// A handle to one state.
#[derive(Debug, Clone)]
pub struct Param {
    name: String,
    ty: TensorType,
    params: Params,
}
impl Params {
    /// True if both are the same.
    #[must_use]
    pub fn is_same(&self, _other: &Self) -> bool {
        true
    }
}
impl Param {
    /// Dotted name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Type.
    #[must_use]
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }
    /// The owner.
    #[must_use]
    pub fn params(&self) -> &Params {
        &self.params
    }
    /// What it counts as.
    #[must_use]
    pub fn category(&self) -> Category {
        Category::Parameter
    }
}
