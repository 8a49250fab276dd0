//! Sums of products written with letters, and other products, all composed of
//! `matmul`, views and sums.

use crate::dtype::{Shape, count};
use crate::error::{Error, Result};
use crate::graph::Tensor;

const OP: &str = "einsum";

/// One operand: its axes' letters, in order.
type Letters = Vec<char>;

/// The equation's operands and result.
struct Equation {
    operands: Vec<Letters>,
    result: Letters,
}

fn wrong(equation: &str, detail: String) -> Error {
    Error::Argument { op: OP, argument: "equation", value: format!("{equation:?}"), detail }
}

fn letters(equation: &str, part: &str) -> Result<Letters> {
    let all: Letters = part.chars().filter(|c| !c.is_whitespace()).collect();
    for (i, c) in all.iter().enumerate() {
        if !c.is_ascii_alphabetic() {
            return Err(wrong(equation, format!("{c:?} is no letter; axes are named by letters, `...` is not known")));
        }
        if all[..i].contains(c) {
            return Err(wrong(equation, format!("{c:?} stands twice in {part:?}; diagonals are not known")));
        }
    }
    Ok(all)
}

impl Equation {
    /// `"ij,jk->ik"`; without an arrow the result has the letters that stand once, in alphabetical order.
    fn parse(equation: &str) -> Result<Self> {
        let (left, right) = equation.split_once("->").map_or((equation, None), |(l, r)| (l, Some(r)));
        let operands = left.split(',').map(|part| letters(equation, part)).collect::<Result<Vec<_>>>()?;
        let all: Letters = operands.iter().flatten().copied().collect();
        let result = match right {
            Some(right) => letters(equation, right)?,
            None => {
                let mut once: Letters =
                    all.iter().copied().filter(|c| all.iter().filter(|d| *d == c).count() == 1).collect();
                once.sort_unstable();
                once
            }
        };
        if let Some(c) = result.iter().find(|c| !all.contains(c)) {
            return Err(wrong(equation, format!("{c:?} stands in the result but in no operand")));
        }
        Ok(Self { operands, result })
    }
}

/// The tensor with its axes in the order of `to`, which are the same letters.
fn ordered(x: &Tensor, from: &[char], to: &[char]) -> Result<Tensor> {
    let axes: Vec<isize> = to.iter().filter_map(|c| from.iter().position(|d| d == c)).map(|a| a as isize).collect();
    x.permute(&axes)
}

/// The sum over the axes whose letters are not in `kept`, and the letters left.
fn summed(x: &Tensor, from: &[char], kept: impl Fn(char) -> bool) -> Result<(Tensor, Letters)> {
    let axes: Vec<isize> = (0..from.len()).filter(|&a| !kept(from[a])).map(|a| a as isize).collect();
    let left = from.iter().copied().filter(|&c| kept(c)).collect();
    Ok((if axes.is_empty() { x.clone() } else { x.sum(&axes, false)? }, left))
}

impl Tensor {
    /// Einstein's sum of products of one or two operands, as PyTorch's `einsum`:
    /// `"bij,bkj->bik"` is a batched product with a transposed right operand,
    /// `"ij->ji"` a transpose, `"ij->"` a sum, `"i,j->ij"` an outer product. A letter
    /// that is not in the result is summed over. Two operands become one
    /// `matmul`, so nothing larger than operands and result is made.
    ///
    /// # Errors
    /// [`Error::Argument`] for an equation that is not understood (`...`, a
    /// letter twice in one operand, more than two operands) or does not fit the
    /// number of operands; [`Error::Shape`] where letters and extents do not
    /// fit; [`Error::DType`] unless the operands are f32.
    pub fn einsum(equation: &str, operands: &[&Self]) -> Result<Self> {
        let parsed = Equation::parse(equation)?;
        if parsed.operands.len() != operands.len() || !(1..=2).contains(&operands.len()) {
            return Err(wrong(
                equation,
                format!(
                    "it names {} operands and {} were given; one or two are known",
                    parsed.operands.len(),
                    operands.len()
                ),
            ));
        }
        let misfit = |detail: String| Error::Shape {
            op: OP,
            shapes: operands.iter().map(|t| t.shape().clone()).collect(),
            detail: format!("{equation:?}: {detail}"),
        };
        let mut extents: Vec<(char, usize)> = Vec::new();
        for (i, (operand, names)) in operands.iter().zip(&parsed.operands).enumerate() {
            operand.expect_float(OP, i)?;
            if operand.rank() != names.len() {
                return Err(misfit(format!("operand {i} has {} letters and {} axes", names.len(), operand.rank())));
            }
            for (&c, &extent) in names.iter().zip(operand.dims()) {
                match extents.iter().find(|(d, _)| *d == c) {
                    Some((_, other)) if *other != extent => {
                        return Err(misfit(format!("{c:?} is {other} in one operand and {extent} in the other")));
                    }
                    Some(_) => {}
                    None => extents.push((c, extent)),
                }
            }
        }
        let result = &parsed.result;
        if let [x] = operands {
            let (x, left) = summed(x, &parsed.operands[0], |c| result.contains(&c))?;
            return ordered(&x, &left, result);
        }
        let names = [&parsed.operands[0], &parsed.operands[1]];
        let (a, a_names) = summed(operands[0], names[0], |c| result.contains(&c) || names[1].contains(&c))?;
        let (b, b_names) = summed(operands[1], names[1], |c| result.contains(&c) || names[0].contains(&c))?;
        let of = |from: &Letters, keep: &dyn Fn(char) -> bool| {
            from.iter().copied().filter(|&c| keep(c)).collect::<Letters>()
        };
        let batch = of(&a_names, &|c| b_names.contains(&c) && result.contains(&c));
        let inner = of(&a_names, &|c| b_names.contains(&c) && !result.contains(&c));
        let rows = of(&a_names, &|c| !b_names.contains(&c));
        let columns = of(&b_names, &|c| !a_names.contains(&c));
        let size = |of: &Letters| -> Vec<usize> {
            of.iter().filter_map(|c| extents.iter().find(|(d, _)| d == c)).map(|(_, extent)| *extent).collect()
        };
        let joined = [&batch, &rows, &columns, &inner].map(|l| count(&size(l)));
        let [n, m, k, depth] = joined;
        let matrix = |x: &Self, from: &Letters, free: &Letters, extent: usize| {
            let order = [batch.as_slice(), free, &inner].concat();
            let lead: &[usize] = if batch.is_empty() { &[] } else { &[n] };
            ordered(x, from, &order)?.reshape([lead, &[extent, depth]].concat())
        };
        let product = matrix(&a, &a_names, &rows, m)?.matmul_t(&matrix(&b, &b_names, &columns, k)?)?;
        let order = [batch.as_slice(), &rows, &columns].concat();
        ordered(&product.reshape(Shape(size(&order)))?, &order, result)
    }

    /// The outer product of vectors, `[M], [N] -> [M, N]`.
    ///
    /// # Errors
    /// [`Error::Shape`] unless both are vectors; [`Error::DType`] if their types differ.
    pub fn outer(&self, other: &Self) -> Result<Self> {
        self.expect_vectors("outer", other)?;
        self.unsqueeze(1)?.mul(&other.unsqueeze(0)?)
    }

    /// The inner product of vectors, `[K], [K] -> []`.
    ///
    /// # Errors
    /// [`Error::Shape`] unless both are vectors of one length; [`Error::DType`] unless f32.
    pub fn dot(&self, other: &Self) -> Result<Self> {
        self.expect_vectors("dot", other)?;
        self.matmul(other)
    }

    fn expect_vectors(&self, op: &'static str, other: &Self) -> Result<()> {
        if self.rank() == 1 && other.rank() == 1 {
            return Ok(());
        }
        let shapes = vec![self.shape().clone(), other.shape().clone()];
        Err(Error::Shape { op, shapes, detail: "both must be vectors".into() })
    }

    /// `beta * self + alpha * (a b)`, the first broadcast to the product: PyTorch's
    /// `addmm` for matrices and `baddbmm` for batches of them.
    ///
    /// # Errors
    /// As [`Tensor::matmul`] and [`Tensor::add`].
    pub fn addmm(&self, a: &Self, b: &Self, beta: f32, alpha: f32) -> Result<Self> {
        let product = a.matmul(b)?;
        let product = if alpha == 1.0 { product } else { product.mul_scalar(alpha)? };
        let bias = if beta == 1.0 { self.clone() } else { self.mul_scalar(beta)? };
        product.add(&bias)
    }
}
