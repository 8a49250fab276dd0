// C[b0, b1, m, n] = epilogue(sum over k of A[b0, b1, m, k] * B[b0, b1, k, n])
//
// The matmul for adapters that run shaders on a CPU: register-tiled, no
// workgroup memory, no barrier, every load and store a vec4. One invocation
// computes 4 * ROW_BLOCKS rows by 4 * COL_BLOCKS columns of C as 4x4 blocks; a
// step reads four consecutive k.
//
// The source is an epilogue text (see shared/epilogue_identity.wgsl),
// shared/matmul_uniforms.wgsl and this file.
//
// Bindings, group 0:
//   0  MatmulUniforms
//   1  A, [B0, B1, M, K]: contiguous along K, or along M if A_TRANSPOSED
//   2  B, [B0, B1, K, N]: contiguous along N, or along K if B_TRANSPOSED
//   3  C, [B0, B1, M, N]: contiguous along N
//
// Requires:
//   k % 4 == 0 and n % 4 == 0; m % 4 == 0 if A_TRANSPOSED;
//   every offset and every stride but that of a contiguous axis is a multiple of
//   4; the stride of a batch axis of length 1 does not matter;
//   the contiguous axis has stride 1: a_col (a_row if A_TRANSPOSED), b_col
//   (b_row if B_TRANSPOSED).
//
// Grid: with R = ceil(m / (4 * ROW_BLOCKS)), S = ceil(n / (4 * COL_BLOCKS)),
//   W = ceil(batch0 * batch1 * R * S / WORKGROUP_SIZE) workgroups, dispatched as
//   y = ceil(W / 65535), x = ceil(W / y), z = 1.
//
// The sum over k runs in steps of four in a fixed order that depends on k
// alone: neither the tile size nor the grid changes a bit of the result.

@group(0) @binding(1) var<storage, read_write> a: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> b: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> c: array<vec4<f32>>;

// A is contiguous along M (stored as [K, M]) instead of along K.
override A_TRANSPOSED: bool = false;
// B is contiguous along K (stored as [N, K]) instead of along N.
override B_TRANSPOSED: bool = false;
// 4x4 blocks of C one invocation computes: 1 or 2 down, 1, 2 or 4 across.
override ROW_BLOCKS: u32 = 2u;
override COL_BLOCKS: u32 = 4u;
// Row tiles that are walked before the next column tile.
override GROUP_TILES: u32 = 4u;
// A multiple of 8: the lanes of a CPU adapter lie along x.
override WORKGROUP_SIZE: u32 = 16u;

const CORNERS = vec4<u32>(0u, 1u, 2u, 3u);

// Where the four vec4 of a 4x4 block of A start, at k = 0. Rows past the edge
// repeat the last one: they are computed and never stored.
fn a_start(base: u32, row: u32) -> vec4<u32> {
    if (A_TRANSPOSED) {
        return vec4<u32>(base + min(row, u.m - 4u) / 4u) + CORNERS * (u.a_col / 4u);
    }
    return vec4<u32>(base) + min(vec4<u32>(row) + CORNERS, vec4<u32>(u.m - 1u)) * (u.a_row / 4u);
}

fn b_start(base: u32, col: u32) -> vec4<u32> {
    if (B_TRANSPOSED) {
        return vec4<u32>(base) + min(vec4<u32>(col) + CORNERS, vec4<u32>(u.n - 1u)) * (u.b_col / 4u);
    }
    return vec4<u32>(base + min(col, u.n - 4u) / 4u) + CORNERS * (u.b_row / 4u);
}

// A 4x4 block of A: column r of the matrix is row r of A, four k long.
fn a_block(at: vec4<u32>) -> mat4x4<f32> {
    var block = mat4x4<f32>(a[at.x], a[at.y], a[at.z], a[at.w]);
    if (A_TRANSPOSED) {
        block = transpose(block);
    }
    return block;
}

// A 4x4 block of B: column i of the matrix is row k + i of B, four n long.
fn b_block(at: vec4<u32>) -> mat4x4<f32> {
    var block = mat4x4<f32>(b[at.x], b[at.y], b[at.z], b[at.w]);
    if (B_TRANSPOSED) {
        block = transpose(block);
    }
    return block;
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let tile_rows = 4u * ROW_BLOCKS;
    let tile_cols = 4u * COL_BLOCKS;
    let row_tiles = (u.m + tile_rows - 1u) / tile_rows;
    let col_tiles = (u.n + tile_cols - 1u) / tile_cols;
    let tiles = row_tiles * col_tiles;
    let index = (workgroup.x + workgroups.x * (workgroup.y + workgroups.y * workgroup.z))
        * WORKGROUP_SIZE + lane;
    if (index >= u.batch0 * u.batch1 * tiles) {
        return;
    }

    // Consecutive lanes take the GROUP_TILES row tiles of one column tile, then
    // the next column tile: few distinct cache lines per load, B read once per group.
    let batch = index / tiles;
    let tile = index % tiles;
    let group = tile / (GROUP_TILES * col_tiles);
    let first_row_tile = group * GROUP_TILES;
    let group_rows = min(GROUP_TILES, row_tiles - first_row_tile);
    let in_group = tile - first_row_tile * col_tiles;
    let row = (first_row_tile + in_group % group_rows) * tile_rows;
    let col = (in_group / group_rows) * tile_cols;

    let outer = batch / u.batch1;
    let inner = batch % u.batch1;
    let a_base = (u.a_offset + outer * u.a_batch0 + inner * u.a_batch1) / 4u;
    let b_base = (u.b_offset + outer * u.b_batch0 + inner * u.b_batch1) / 4u;
    let c_base = (u.c_offset + outer * u.c_batch0 + inner * u.c_batch1) / 4u;

    var a_at0 = a_start(a_base, row);
    var a_at1 = a_start(a_base, row + 4u);
    var b_at0 = b_start(b_base, col);
    var b_at1 = b_start(b_base, col + 4u);
    var b_at2 = b_start(b_base, col + 8u);
    var b_at3 = b_start(b_base, col + 12u);
    // Four k further on: one vec4 along K, or four rows of a matrix that is
    // contiguous along its other axis.
    let a_step = vec4<u32>(select(1u, u.a_col, A_TRANSPOSED));
    let b_step = vec4<u32>(select(u.b_row, 1u, B_TRANSPOSED));

    var c00 = mat4x4<f32>();
    var c01 = mat4x4<f32>();
    var c02 = mat4x4<f32>();
    var c03 = mat4x4<f32>();
    var c10 = mat4x4<f32>();
    var c11 = mat4x4<f32>();
    var c12 = mat4x4<f32>();
    var c13 = mat4x4<f32>();

    let steps = u.k / 4u;
    for (var step = 0u; step < steps; step++) {
        let a0 = a_block(a_at0);
        a_at0 += a_step;
        var a1 = a0;
        if (ROW_BLOCKS > 1u) {
            a1 = a_block(a_at1);
            a_at1 += a_step;
        }
        let b0 = b_block(b_at0);
        b_at0 += b_step;
        c00 += b0 * a0;
        if (ROW_BLOCKS > 1u) {
            c10 += b0 * a1;
        }
        if (COL_BLOCKS > 1u) {
            let b1 = b_block(b_at1);
            b_at1 += b_step;
            c01 += b1 * a0;
            if (ROW_BLOCKS > 1u) {
                c11 += b1 * a1;
            }
        }
        if (COL_BLOCKS > 2u) {
            let b2 = b_block(b_at2);
            b_at2 += b_step;
            c02 += b2 * a0;
            if (ROW_BLOCKS > 1u) {
                c12 += b2 * a1;
            }
            let b3 = b_block(b_at3);
            b_at3 += b_step;
            c03 += b3 * a0;
            if (ROW_BLOCKS > 1u) {
                c13 += b3 * a1;
            }
        }
    }

    // The rows move up through c00..c03, their quads through q0, so that there is
    // one copy of the epilogue: with 32 of them a CPU adapter compiles four
    // times as long. Indexing the blocks by a variable is worse still.
    let row_end = min(row + tile_rows, u.m);
    let col_end = min(col + tile_cols, u.n);
    for (var r = row; r < row_end; r++) {
        var q0 = c00[0];
        var q1 = c01[0];
        var q2 = c02[0];
        var q3 = c03[0];
        c00 = mat4x4<f32>(c00[1], c00[2], c00[3], c10[0]);
        c01 = mat4x4<f32>(c01[1], c01[2], c01[3], c11[0]);
        c02 = mat4x4<f32>(c02[1], c02[2], c02[3], c12[0]);
        c03 = mat4x4<f32>(c03[1], c03[2], c03[3], c13[0]);
        c10 = mat4x4<f32>(c10[1], c10[2], c10[3], c10[3]);
        c11 = mat4x4<f32>(c11[1], c11[2], c11[3], c11[3]);
        c12 = mat4x4<f32>(c12[1], c12[2], c12[3], c12[3]);
        c13 = mat4x4<f32>(c13[1], c13[2], c13[3], c13[3]);
        let c_at = c_base + r * (u.c_row / 4u);
        for (var s = col; s < col_end; s += 4u) {
            c[c_at + s / 4u] = epilogue_vec4(q0, batch, r, s);
            q0 = q1;
            q1 = q2;
            q2 = q3;
        }
    }
}
