// C[b0, b1, m, n] = epilogue(sum over k of A[b0, b1, m, k] * B[b0, b1, k, n])
//
// The matmul for GPUs, any shape and strides: a workgroup of 16x16 invocations
// computes 64 * BLOCKS rows by 64 * BLOCKS columns of C; A and B pass through
// workgroup memory, TILE_K values of k at a time, and each invocation holds
// BLOCKS x BLOCKS 4x4 blocks of C in registers.
//
// The source is an epilogue text (see shared/epilogue_identity.wgsl),
// shared/matmul_uniforms.wgsl and this file.
//
// Bindings, group 0:
//   0  MatmulUniforms
//   1  A, [B0, B1, M, K], any strides; fast when contiguous along K, or along M
//      with A_TRANSPOSED
//   2  B, [B0, B1, K, N], any strides; fast when contiguous along N, or along K
//      with B_TRANSPOSED
//   3  C, [B0, B1, M, N], contiguous along N
//
// Grid: with R = ceil(m / (64 * BLOCKS)), S = ceil(n / (64 * BLOCKS)),
//   W = batch0 * batch1 * R * S workgroups, dispatched as
//   y = ceil(W / 65535), x = ceil(W / y), z = 1.
//
// Workgroup memory: 2 * BLOCKS * 64 * TILE_K * 4 bytes: 8 KiB with BLOCKS 1,
// 16 KiB with BLOCKS 2.
//
// The sum over k runs upwards, one k at a time, then adds zeros up to a multiple
// of TILE_K: neither the tile size nor the grid changes its order.

@group(0) @binding(1) var<storage, read_write> a: array<f32>;
@group(0) @binding(2) var<storage, read_write> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

// A is contiguous along M (stored as [K, M]) instead of along K.
override A_TRANSPOSED: bool = false;
// B is contiguous along K (stored as [N, K]) instead of along N.
override B_TRANSPOSED: bool = false;
// 4x4 blocks of C an invocation computes in each direction: 1 or 2.
override BLOCKS: u32 = 1u;

const TILE_K = 16u;
// Invocations along each side of the workgroup.
const SIDE = 16u;
// Row tiles that are walked before the next column tile.
const GROUP_TILES = 8u;

override TILE_VECS: u32 = SIDE * BLOCKS; // vec4 along one side of a tile

// Value k of four neighbouring rows of A (columns of B) is one vec4, at
// tile_at(k, rows / 4).
var<workgroup> a_tile: array<vec4<f32>, TILE_VECS * TILE_K>;
var<workgroup> b_tile: array<vec4<f32>, TILE_VECS * TILE_K>;

// The exclusive or spreads neighbouring k over the banks, which serves the
// writes that walk along k; a read at one k sees a permutation, without conflict
// either way.
fn tile_at(k: u32, quad: u32) -> u32 {
    return k * TILE_VECS + (quad ^ (k & 7u));
}

fn load_a(base: u32, row: u32, k: u32) -> f32 {
    if (row < u.m && k < u.k) {
        return a[base + row * u.a_row + k * u.a_col];
    }
    return 0.0;
}

fn load_b(base: u32, k: u32, col: u32) -> f32 {
    if (k < u.k && col < u.n) {
        return b[base + k * u.b_row + col * u.b_col];
    }
    return 0.0;
}

// Copies A[row.., k..] into a_tile and B[k.., col..] into b_tile. Neighbouring
// lanes walk along the contiguous axis.
fn load_tiles(a_base: u32, b_base: u32, row: u32, col: u32, k: u32, lane: u32) {
    for (var part = 0u; part < BLOCKS; part++) {
        let low = lane % SIDE;
        let high = lane / SIDE;
        var a_k = low;
        var a_quad = high;
        if (A_TRANSPOSED) {
            a_k = high;
            a_quad = low;
        }
        a_quad += part * SIDE;
        let r = row + 4u * a_quad;
        a_tile[tile_at(a_k, a_quad)] = vec4<f32>(
            load_a(a_base, r, k + a_k),
            load_a(a_base, r + 1u, k + a_k),
            load_a(a_base, r + 2u, k + a_k),
            load_a(a_base, r + 3u, k + a_k),
        );
        var b_k = high;
        var b_quad = low;
        if (B_TRANSPOSED) {
            b_k = low;
            b_quad = high;
        }
        b_quad += part * SIDE;
        let s = col + 4u * b_quad;
        b_tile[tile_at(b_k, b_quad)] = vec4<f32>(
            load_b(b_base, k + b_k, s),
            load_b(b_base, k + b_k, s + 1u),
            load_b(b_base, k + b_k, s + 2u),
            load_b(b_base, k + b_k, s + 3u),
        );
    }
}

// acc + a b^T: column r of the matrix is row r of C, four n long.
fn accumulate(acc: mat4x4<f32>, a_value: vec4<f32>, b_value: vec4<f32>) -> mat4x4<f32> {
    return mat4x4<f32>(
        acc[0] + a_value.x * b_value,
        acc[1] + a_value.y * b_value,
        acc[2] + a_value.z * b_value,
        acc[3] + a_value.w * b_value,
    );
}

// One loop per axis, the values moving through the first place: one copy of the
// epilogue to compile instead of sixteen.
fn store_block(base: u32, block: mat4x4<f32>, batch: u32, row: u32, col: u32) {
    var rows = block;
    let row_end = min(row + 4u, u.m);
    let col_end = min(col + 4u, u.n);
    for (var r = row; r < row_end; r++) {
        var values = rows[0];
        rows = mat4x4<f32>(rows[1], rows[2], rows[3], rows[3]);
        for (var s = col; s < col_end; s++) {
            c[base + r * u.c_row + s] = epilogue_scalar(values.x, batch, r, s);
            values = values.yzww;
        }
    }
}

@compute @workgroup_size(SIDE * SIDE)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let tile_size = 4u * TILE_VECS;
    let row_tiles = (u.m + tile_size - 1u) / tile_size;
    let col_tiles = (u.n + tile_size - 1u) / tile_size;
    let tiles = row_tiles * col_tiles;
    let index = workgroup.x + workgroups.x * (workgroup.y + workgroups.y * workgroup.z);
    // The same for the whole workgroup, so the barriers below stay uniform.
    if (index >= u.batch0 * u.batch1 * tiles) {
        return;
    }

    let batch = index / tiles;
    let tile = index % tiles;
    let group = tile / (GROUP_TILES * col_tiles);
    let first_row_tile = group * GROUP_TILES;
    let group_rows = min(GROUP_TILES, row_tiles - first_row_tile);
    let in_group = tile - first_row_tile * col_tiles;
    let tile_row = (first_row_tile + in_group % group_rows) * tile_size;
    let tile_col = (in_group / group_rows) * tile_size;

    let outer = batch / u.batch1;
    let inner = batch % u.batch1;
    let a_base = u.a_offset + outer * u.a_batch0 + inner * u.a_batch1;
    let b_base = u.b_offset + outer * u.b_batch0 + inner * u.b_batch1;
    let c_base = u.c_offset + outer * u.c_batch0 + inner * u.c_batch1;

    let quad_col = lane % SIDE;
    let quad_row = lane / SIDE;
    var c00 = mat4x4<f32>();
    var c01 = mat4x4<f32>();
    var c10 = mat4x4<f32>();
    var c11 = mat4x4<f32>();
    for (var k = 0u; k < u.k; k += TILE_K) {
        load_tiles(a_base, b_base, tile_row, tile_col, k, lane);
        workgroupBarrier();
        for (var i = 0u; i < TILE_K; i++) {
            let a0 = a_tile[tile_at(i, quad_row)];
            let b0 = b_tile[tile_at(i, quad_col)];
            c00 = accumulate(c00, a0, b0);
            if (BLOCKS > 1u) {
                let a1 = a_tile[tile_at(i, quad_row + SIDE)];
                let b1 = b_tile[tile_at(i, quad_col + SIDE)];
                c01 = accumulate(c01, a0, b1);
                c10 = accumulate(c10, a1, b0);
                c11 = accumulate(c11, a1, b1);
            }
        }
        workgroupBarrier();
    }

    let row = tile_row + 4u * quad_row;
    let col = tile_col + 4u * quad_col;
    store_block(c_base, c00, batch, row, col);
    if (BLOCKS > 1u) {
        store_block(c_base, c01, batch, row, col + 4u * SIDE);
        store_block(c_base, c10, batch, row + 4u * SIDE, col);
        store_block(c_base, c11, batch, row + 4u * SIDE, col + 4u * SIDE);
    }
}
