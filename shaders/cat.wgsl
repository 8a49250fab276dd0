// Joins up to six operands along one axis, seen as rows of words:
//
//     y[row, start_k + c] = xk[row, c]
//
// xk [ROWS, width_k], y [ROWS, WIDTH] of Blocks: four words, or one where the
// alias is narrowed because a width is no multiple of 4. Words are copied as
// they are, whatever their type. With fewer operands the lines of the others are
// left out. One invocation per Block of y.
// Grid: ROWS * WIDTH / lanes invocations, 64 a workgroup, linear over x, y, z.

alias Element = u32;
alias Block = vec4<u32>;

struct Cat {
    // Blocks of y.
    count: u32,
    // WIDTH in blocks.
    width: u32,
    pad0: u32,
    pad1: u32,
    // Of each operand: where it starts in a row of y, and its width, in blocks.
    parts: array<vec4<u32>, 6>,
}

@group(0) @binding(0) var<uniform> u: Cat;
@group(0) @binding(1) var<storage, read_write> y: array<Block>;
@group(0) @binding(2) var<storage, read_write> x0: array<Block>;
@group(0) @binding(3) var<storage, read_write> x1: array<Block>;
@group(0) @binding(4) var<storage, read_write> x2: array<Block>;
@group(0) @binding(5) var<storage, read_write> x3: array<Block>;
@group(0) @binding(6) var<storage, read_write> x4: array<Block>;
@group(0) @binding(7) var<storage, read_write> x5: array<Block>;

// Where column `column` of row `row` of y lies in operand `k`.
fn source(row: u32, column: u32, k: u32) -> u32 {
    return row * u.parts[k].y + column - u.parts[k].x;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let place = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (place >= u.count) {
        return;
    }
    let row = place / u.width;
    let column = place - row * u.width;
    if (column >= u.parts[5].x) { y[place] = x5[source(row, column, 5u)]; return; }
    if (column >= u.parts[4].x) { y[place] = x4[source(row, column, 4u)]; return; }
    if (column >= u.parts[3].x) { y[place] = x3[source(row, column, 3u)]; return; }
    if (column >= u.parts[2].x) { y[place] = x2[source(row, column, 2u)]; return; }
    if (column >= u.parts[1].x) { y[place] = x1[source(row, column, 1u)]; return; }
    y[place] = x0[source(row, column, 0u)];
}
