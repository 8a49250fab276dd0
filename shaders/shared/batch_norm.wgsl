// What the kernels of batch norm share: sizes, and how a channel is cut into chunks.
// x [N, C, S / lanes] of Blocks: four neighbours, or one where the aliases are
// narrowed because S is no multiple of 4. A chunk of a channel is chunk_samples
// samples by chunk_width blocks; each channel has `chunks`, `parts` to a sample.

alias Element = f32;
alias Block = vec4<f32>;
alias BlockBits = vec4<u32>;

struct BatchNorm {
    // Invocations.
    count: u32,
    samples: u32,
    channels: u32,
    // S in blocks.
    width: u32,
    // Elements of a block.
    lanes: u32,
    chunk_samples: u32,
    chunk_width: u32,
    parts: u32,
    chunks: u32,
    // The bits of 1 / (N S), of eps.
    per_element: u32,
    eps: u32,
    pad0: u32,
}

struct Chunk {
    channel: u32,
    sample: u32,
    sample_end: u32,
    block: u32,
    block_end: u32,
}

fn total(v: Block) -> f32 { return (v.x + v.y) + (v.z + v.w); }

// The chunk of an index into [C, chunks].
fn chunk_at(index: u32) -> Chunk {
    let channel = index / u.chunks;
    let chunk = index - channel * u.chunks;
    let row = chunk / u.parts;
    let part = chunk - row * u.parts;
    let sample = row * u.chunk_samples;
    let block = part * u.chunk_width;
    return Chunk(channel, sample, min(sample + u.chunk_samples, u.samples), block, min(block + u.chunk_width, u.width));
}

fn elements_of(chunk: Chunk) -> f32 {
    return f32((chunk.sample_end - chunk.sample) * (chunk.block_end - chunk.block) * u.lanes);
}

fn linear_index(id: vec3<u32>, groups: vec3<u32>) -> u32 {
    return (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
}
