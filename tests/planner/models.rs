//! Small and large programs that the tests share.

use remat::dtype::DType;
use remat::fuse::program::{Category, Operand, Phase, Program, StorageId};

use crate::builder::Tape;

/// Blocks of linear, ReLU, linear with an interior `ratio` times the boundary,
/// each a segment if asked for.
pub fn mlp(blocks: usize, width: u64, ratio: u64, rows: u64, segments: bool) -> Program {
    let mut tape = Tape::default();
    let mut h = tape.input("x", rows * width, DType::F32);
    for block in 0..blocks {
        let up = tape.parameter(&format!("{block}.up"), width * width * ratio);
        let down = tape.parameter(&format!("{block}.down"), width * width * ratio);
        let body = |tape: &mut Tape| {
            let wide = tape.linear(h, up, rows * width * ratio);
            let wide = tape.op("relu", &[wide], rows * width * ratio, (false, true), 1.0);
            tape.linear(wide, down, rows * width)
        };
        h = if segments { tape.checkpoint(&format!("block{block}"), body) } else { body(&mut tape) };
    }
    tape.train(h)
}

/// The size of [`gpt`].
#[derive(Clone, Copy)]
pub struct Gpt {
    pub layers: usize,
    pub width: u64,
    pub heads: u64,
    pub context: u64,
    pub batch: u64,
    pub nested: bool,
    pub segments: bool,
}

impl Gpt {
    pub const SMALL: Self =
        Self { layers: 4, width: 32, heads: 2, context: 32, batch: 2, nested: false, segments: true };
    pub const TWELVE: Self =
        Self { layers: 12, width: 128, heads: 4, context: 128, batch: 8, nested: false, segments: true };
}

/// A transformer with composed attention, digests of gradients and AdamW:
/// about as many passes per layer as the real one.
pub fn gpt(size: Gpt) -> Program {
    let mut tape = Tape::default();
    let rows = size.batch * size.context;
    let ids = tape.input("ids", rows, DType::I32);
    let targets = tape.input("targets", rows, DType::I32);
    let vocabulary = 96;
    let table = tape.parameter("embedding", vocabulary * size.width);
    let mut h = tape.op("embedding", &[ids, table], rows * size.width, (true, false), 1.0);
    for layer in 0..size.layers {
        let parameters = layer_parameters(&mut tape, layer, size.width);
        let body = |tape: &mut Tape| layer_body(tape, h, &parameters, size);
        h = if size.segments { tape.checkpoint(&format!("layer{layer}"), body) } else { body(&mut tape) };
    }
    let head = tape.parameter("head", vocabulary * size.width);
    let logits = tape.linear(h, head, rows * vocabulary);
    let nll = tape.op("cross_entropy", &[logits, targets], rows, (true, false), 1.0);
    let loss = tape.op("mean", &[nll], 1, (false, false), 1.0);
    let gradients = tape.backward(loss);
    digests(&mut tape, &gradients);
    tape.adam(&gradients);
    tape.output("loss", loss);
    tape.program.validate().expect("a valid program");
    tape.program
}

fn layer_parameters(tape: &mut Tape, layer: usize, width: u64) -> Vec<StorageId> {
    let sizes = [
        ("ln1.g", width),
        ("ln1.b", width),
        ("qkv.w", 3 * width * width),
        ("qkv.b", 3 * width),
        ("proj.w", width * width),
        ("proj.b", width),
        ("ln2.g", width),
        ("ln2.b", width),
        ("fc.w", 4 * width * width),
        ("fc.b", 4 * width),
        ("out.w", 4 * width * width),
        ("out.b", width),
    ];
    sizes.iter().map(|(name, elements)| tape.parameter(&format!("{layer}.{name}"), *elements)).collect()
}

fn layer_body(tape: &mut Tape, h: StorageId, p: &[StorageId], size: Gpt) -> StorageId {
    let rows = size.batch * size.context;
    let values = rows * size.width;
    let scores = size.batch * size.heads * size.context * size.context;
    let attention = |tape: &mut Tape| {
        let n = tape.op("layer_norm", &[h, p[0], p[1]], values, (true, false), 1.0);
        let qkv = tape.linear(n, p[2], 3 * values);
        let qkv = tape.op("bias", &[qkv, p[3]], 3 * values, (false, false), 1.0);
        let s = tape.op("scores", &[qkv], scores, (true, false), (scores * size.width) as f64);
        let a = tape.op("softmax", &[s], scores, (false, true), scores as f64);
        let d = tape.op("dropout", &[a], scores, (false, false), scores as f64);
        let y = tape.op("attend", &[d, qkv], values, (true, false), (scores * size.width) as f64);
        let y = tape.linear(y, p[4], values);
        tape.op("bias", &[y, p[5]], values, (false, false), 1.0)
    };
    let y = if size.nested { tape.checkpoint("attention", attention) } else { attention(tape) };
    let h = tape.op("add", &[h, y], values, (false, false), 1.0);
    let feed_forward = |tape: &mut Tape| {
        let n = tape.op("layer_norm", &[h, p[6], p[7]], values, (true, false), 1.0);
        let f = tape.linear(n, p[8], 4 * values);
        let f = tape.op("bias", &[f, p[9]], 4 * values, (false, false), 1.0);
        let f = tape.op("gelu", &[f], 4 * values, (true, false), 8.0);
        let f = tape.linear(f, p[10], values);
        tape.op("bias", &[f, p[11]], values, (false, false), 1.0)
    };
    let f = if size.nested { tape.checkpoint("mlp", feed_forward) } else { feed_forward(tape) };
    tape.op("add", &[h, f], values, (false, false), 1.0)
}

/// Two passes per gradient, recorded after backward, joined to one output.
fn digests(tape: &mut Tape, gradients: &[(StorageId, StorageId)]) {
    let mut parts = Vec::new();
    for &(_, gradient) in gradients {
        let partial = tape.value("digest.part", 64, Category::Workspace);
        tape.pass(
            "digest",
            Phase::Backward,
            None,
            vec![Operand::Read(gradient), Operand::Write(partial)],
            tape.elements(gradient) as f64,
        );
        let digest = tape.value("digest", 4, Category::Workspace);
        tape.pass("digest2", Phase::Backward, None, vec![Operand::Read(partial), Operand::Write(digest)], 64.0);
        parts.push(digest);
    }
    while parts.len() > 1 {
        let mut joined = Vec::new();
        for few in parts.chunks(4) {
            let digest = tape.value("digest", 4, Category::Workspace);
            let mut operands: Vec<Operand> = few.iter().map(|&d| Operand::Read(d)).collect();
            operands.push(Operand::Write(digest));
            tape.pass("join", Phase::Backward, None, operands, 4.0);
            joined.push(digest);
        }
        parts = joined;
    }
    tape.output("fingerprint", parts[0]);
}
