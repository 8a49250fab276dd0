// Cross-entropy of each row of x [N, V] with a class:
//
//     lse[n]  = log(sum exp(x[n, :]))
//     loss[n] = lse[n] - (1 - smoothing) * x[n, targets[n]] - smoothing * sum(x[n, :]) / V
//
// loss is 0 where targets[n] is IGNORE (if HAS_IGNORE is 1), and NaN where
// targets[n] is no class: a fault of the data that shows itself.
// x  [N, V / lanes] of Blocks: four neighbours, or one where the aliases are
// narrowed because V is no multiple of 4. targets [N], 32-bit integers as they
// lie in memory. loss, lse [N]. One invocation per row.
// Grid: N invocations, 64 a workgroup, linear over x, y, z.

alias Element = f32;
alias Block = vec4<f32>;
alias BlockBits = vec4<u32>;

const LANES: u32 = 4u;

struct CrossEntropy {
    // N.
    rows: u32,
    // V in blocks.
    blocks: u32,
    // V.
    classes: u32,
    // 1 if a class is ignored.
    has_ignore: u32,
    // The class that is ignored, as it lies in memory.
    ignore: u32,
    // The bits of an f32.
    smoothing: u32,
    // The bits of 1 / V.
    per_class: u32,
    // The bits of a NaN, which WGSL refuses as a constant.
    nan: u32,
}

@group(0) @binding(0) var<uniform> u: CrossEntropy;
@group(0) @binding(1) var<storage, read_write> x: array<Block>;
@group(0) @binding(2) var<storage, read_write> targets: array<u32>;
@group(0) @binding(3) var<storage, read_write> loss: array<f32>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;

fn total(v: Block) -> f32 { return (v.x + v.y) + (v.z + v.w); }
fn largest(v: Block) -> f32 { return max(max(v.x, v.y), max(v.z, v.w)); }
fn lane(v: Block, i: u32) -> f32 { return v[i]; }

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (row >= u.rows) {
        return;
    }
    let first = row * u.blocks;
    let end = first + u.blocks;
    let quads = first + u.blocks / 4u * 4u;
    var top = x[first];
    for (var at = first; at < quads; at += 4u) {
        top = max(top, max(max(x[at], x[at + 1u]), max(x[at + 2u], x[at + 3u])));
    }
    for (var at = quads; at < end; at += 1u) {
        top = max(top, x[at]);
    }
    var m = largest(top);
    // -infinity - -infinity would be NaN.
    m = select(m, 0.0, bitcast<u32>(m) == 0xff800000u);
    let shift = Block(m);
    var sum = Block(0.0);
    for (var at = first; at < end; at += 1u) {
        sum += exp(x[at] - shift);
    }
    let l = m + log(total(sum));
    lse[row] = l;
    let wanted = targets[row];
    var result = bitcast<f32>(u.nan);
    if (u.has_ignore == 1u && wanted == u.ignore) {
        result = 0.0;
    } else if (wanted < u.classes) {
        let smoothing = bitcast<f32>(u.smoothing);
        result = l - (1.0 - smoothing) * lane(x[first + wanted / LANES], wanted % LANES);
        if (smoothing != 0.0) {
            // Around the largest, which keeps the sum small.
            var away = Block(0.0);
            for (var at = first; at < end; at += 1u) {
                away += x[at] - shift;
            }
            result -= smoothing * (m + total(away) * bitcast<f32>(u.per_class));
        }
    }
    loss[row] = result;
}
