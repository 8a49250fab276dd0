//! Tensors in the shapes that closures take and return.

use super::Tensor;

/// A tensor, a tuple, an array or a `Vec` of tensors: what `checkpoint` and a
/// step's closure take and return.
pub trait TensorTree {
    /// The same tree with something else in the place of each tensor.
    type With<H>;

    /// The tensors, in order.
    fn tensors(&self) -> Vec<&Tensor>;

    /// The tree with `items` in the tensors' places; `items` has as many as
    /// [`TensorTree::tensors`] gave. Returns `None` if it has fewer.
    fn with<H>(&self, items: &mut dyn Iterator<Item = H>) -> Option<Self::With<H>>;
}

impl TensorTree for Tensor {
    type With<H> = H;
    fn tensors(&self) -> Vec<&Tensor> {
        vec![self]
    }
    fn with<H>(&self, items: &mut dyn Iterator<Item = H>) -> Option<H> {
        items.next()
    }
}

impl TensorTree for () {
    type With<H> = ();
    fn tensors(&self) -> Vec<&Tensor> {
        Vec::new()
    }
    fn with<H>(&self, _: &mut dyn Iterator<Item = H>) -> Option<()> {
        Some(())
    }
}

impl<T: TensorTree> TensorTree for Vec<T> {
    type With<H> = Vec<T::With<H>>;
    fn tensors(&self) -> Vec<&Tensor> {
        self.iter().flat_map(TensorTree::tensors).collect()
    }
    fn with<H>(&self, items: &mut dyn Iterator<Item = H>) -> Option<Self::With<H>> {
        self.iter().map(|t| t.with(items)).collect()
    }
}

macro_rules! tuple {
    ($($letter:ident),+) => {
        impl<$($letter: TensorTree),+> TensorTree for ($($letter,)+) {
            type With<Item> = ($($letter::With<Item>,)+);
            fn tensors(&self) -> Vec<&Tensor> {
                #[expect(non_snake_case, reason = "the type parameters name the fields")]
                let ($($letter,)+) = self;
                let mut all = Vec::new();
                $(all.extend($letter.tensors());)+
                all
            }
            fn with<Item>(&self, items: &mut dyn Iterator<Item = Item>) -> Option<Self::With<Item>> {
                #[expect(non_snake_case, reason = "the type parameters name the fields")]
                let ($($letter,)+) = self;
                Some(($($letter.with(items)?,)+))
            }
        }
    };
}
tuple!(A);
tuple!(A, B);
tuple!(A, B, C);
tuple!(A, B, C, D);
tuple!(A, B, C, D, E);
tuple!(A, B, C, D, E, F);
