// Sizes and strides of a product, the same for every matmul kernel. Stands
// between the epilogue's text, which declares Epilogue, and the kernel's.

// Strides and offsets count f32 elements. A batch stride of 0 broadcasts.
struct MatmulUniforms {
    batch0: u32,
    batch1: u32,
    m: u32,
    n: u32,
    k: u32,
    a_batch0: u32,
    a_batch1: u32,
    a_row: u32, // from m to m + 1
    a_col: u32, // from k to k + 1
    b_batch0: u32,
    b_batch1: u32,
    b_row: u32, // from k to k + 1
    b_col: u32, // from n to n + 1
    c_batch0: u32,
    c_batch1: u32,
    c_row: u32, // from m to m + 1; from n to n + 1 it is 1
    a_offset: u32,
    b_offset: u32,
    c_offset: u32,
    padding: u32,
    epilogue: Epilogue, // words of the fused epilogue
}

@group(0) @binding(0) var<uniform> u: MatmulUniforms;
