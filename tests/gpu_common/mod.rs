//! Small programs and plans, built by hand.
#![allow(
    clippy::allow_attributes,
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "shared by several tests, none of which uses all of it"
)]

use std::sync::{Mutex, MutexGuard, OnceLock};

use remat::dtype::{DType, TensorType};
use remat::fuse::program::*;
use remat::gpu::Gpu;
use remat::plan::*;
use remat::shared::Shared;

/// One device per process, one test at a time on it.
pub fn shared_gpu() -> (MutexGuard<'static, ()>, Gpu) {
    static TURN: Mutex<()> = Mutex::new(());
    static GPU: OnceLock<Gpu> = OnceLock::new();
    let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let gpu = GPU.get_or_init(|| Gpu::test_builder().build_blocking().unwrap()).clone();
    (turn, gpu)
}

/// Builds a program and the naive plan of it: every value at a place of its own.
#[derive(Default)]
pub struct Builder {
    pub program: Program,
}

impl Builder {
    pub fn storage(&mut self, name: &str, bytes: u64, kind: StorageKind) -> StorageId {
        let category = match kind {
            StorageKind::State(_) => Category::Parameter,
            StorageKind::Input(_) => Category::Input,
            _ => Category::Activation,
        };
        self.program.storages.push(Storage { name: name.into(), bytes, kind, category, named: false, mark: None });
        StorageId(self.program.storages.len() as u32 - 1)
    }

    pub fn transient(&mut self, name: &str, elements: usize) -> StorageId {
        self.storage(name, 4 * elements as u64, StorageKind::Transient)
    }

    pub fn input(&mut self, name: &str, dtype: DType, elements: usize) -> StorageId {
        self.program.inputs.push(InputInfo { name: name.into(), ty: TensorType::new(dtype, [elements]) });
        self.storage(name, 4 * elements as u64, StorageKind::Input(self.program.inputs.len() as u32 - 1))
    }

    pub fn state(&mut self, name: &str, elements: usize) -> StorageId {
        let ty = TensorType::new(DType::F32, [elements]);
        self.program.states.push(StateInfo { name: name.into(), ty, category: Category::Parameter });
        self.storage(name, 4 * elements as u64, StorageKind::State(self.program.states.len() as u32 - 1))
    }

    pub fn constant(&mut self, values: &[f32]) -> StorageId {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        self.program.constants.push(Shared::from(bytes));
        let index = self.program.constants.len() as u32 - 1;
        self.storage("constant", 4 * values.len() as u64, StorageKind::Constant(index))
    }

    pub fn output(&mut self, name: &str, storage: StorageId) {
        let elements = self.program.storage(storage).bytes as usize / 4;
        let ty = TensorType::new(DType::F32, [elements]);
        self.program.outputs.push(OutputInfo { name: name.into(), ty, storage: Some(storage) });
    }

    /// A pass whose body computes with `a`, `b`, `c` (bindings 1, 2, 3), `i` and `u.words`.
    pub fn pass(&mut self, name: &str, body: &str, operands: &[Operand], uniforms: &[u32], elements: usize) {
        let names = ["a", "b", "c", "d"];
        let mut source = String::new();
        if !uniforms.is_empty() {
            source += &format!(
                "struct U {{ words: array<vec4<u32>, {}> }}\n@group(0) @binding(0) var<uniform> u: U;\n",
                uniforms.len().div_ceil(4)
            );
        }
        for (i, _) in operands.iter().enumerate() {
            source += &format!("@group(0) @binding({}) var<storage, read_write> {}: array<f32>;\n", i + 1, names[i]);
        }
        source += &format!(
            "override scale: f32 = 1.0;\n@compute @workgroup_size(64) fn main(@builtin(workgroup_id) g: vec3<u32>, \
             @builtin(num_workgroups) n: vec3<u32>, @builtin(local_invocation_index) l: u32) {{\n\
             let i = ((g.z * n.y + g.y) * n.x + g.x) * 64u + l;\nif i < arrayLength(&{}) {{ {body} }} }}",
            names[operands.len() - 1]
        );
        self.program.kernels.push(Kernel {
            name: name.into(),
            source: source.into(),
            entry: "main",
            constants: Vec::new(),
            operand_count: operands.len(),
            uniform_words: uniforms.len(),
        });
        let profile = remat::profile::DeviceProfile::default();
        let update = operands.iter().any(|o| matches!(o, Operand::StateWrite(_)));
        self.program.passes.push(Pass {
            name: name.into(),
            kernel: KernelId(self.program.kernels.len() as u32 - 1),
            operands: operands.to_vec(),
            uniforms: uniforms.to_vec(),
            grid: profile.split_grid(elements.div_ceil(64).max(1) as u64),
            cost: Cost { flops: elements as f64, bytes: 8.0 * elements as f64 },
            kind: "elementwise",
            segment: None,
            phase: if update { Phase::Update } else { Phase::Forward },
        });
    }

    /// The program with its naive plan.
    pub fn finish(self) -> (Shared<Program>, Plan) {
        let program = self.program;
        program.validate().unwrap();
        let mut plan = empty_plan();
        let mut at = [0_u64; 3];
        let end = program.passes.len() as u32;
        let mut in_place: Vec<Option<StorageId>> = vec![None; program.storages.len()];
        for operand in program.passes.iter().flat_map(|p| &p.operands) {
            if let Operand::InPlace { input, output } = operand {
                in_place[output.index()] = Some(*input);
            }
        }
        for (index, storage) in program.storages.iter().enumerate() {
            let mut place = |which: usize, space: Space| {
                let offset = at[which];
                at[which] += storage.bytes.next_multiple_of(256);
                Location { space, offset, bytes: storage.bytes }
            };
            let location = match storage.kind {
                StorageKind::Transient => match in_place[index] {
                    Some(input) => plan.instances[input.index()].location,
                    None => place(0, Space::Arena(0)),
                },
                StorageKind::Input(_) => place(1, Space::Upload(0)),
                StorageKind::Constant(_) => place(2, Space::Constant(0)),
                StorageKind::State(i) => Location { space: Space::State(i), offset: 0, bytes: storage.bytes },
            };
            plan.instances.push(Instance { storage: StorageId(index as u32), location, first: 0, last: end });
        }
        let id = |s: StorageId| InstanceId(s.0);
        for (index, pass) in program.passes.iter().enumerate() {
            plan.dispatches.push(Dispatch {
                pass: PassId(index as u32),
                replay: false,
                instances: pass.operands.iter().map(|o| id(o.read().or(o.made()).unwrap())).collect(),
                made: pass.operands.iter().map(|o| o.made().map(id)).collect(),
                uniform_offset: plan.uniform_bytes,
            });
            plan.uniform_bytes += 4 * (pass.uniforms.len() as u64).next_multiple_of(64);
        }
        fill_spaces(&program, &mut plan, at);
        (Shared::new(program), plan)
    }
}

fn fill_spaces(program: &Program, plan: &mut Plan, at: [u64; 3]) {
    let block = |n: u64| if n > 0 { vec![n] } else { vec![] };
    (plan.arena_blocks, plan.upload_blocks, plan.constant_blocks) = (block(at[0]), block(at[1]), block(at[2]));
    for (instance, storage) in plan.instances.iter().zip(&program.storages) {
        match storage.kind {
            StorageKind::Input(_) => plan.inputs.push(Some(instance.location)),
            StorageKind::Constant(_) => plan.constants.push(Some(instance.location)),
            _ => {}
        }
    }
    let mut slot = 0;
    for (index, output) in program.outputs.iter().enumerate() {
        let Some(storage) = output.storage else { continue };
        let bytes = program.storage(storage).bytes;
        let instance = InstanceId(storage.0);
        plan.outputs.push(OutputPlacement { output: index as u32, instance, slot_offset: slot, bytes });
        slot += bytes;
    }
    plan.slot_bytes = slot.next_multiple_of(256);
    plan.peak = PeakBytes {
        state: program.states.iter().map(|s| s.ty.size_bytes()).sum(),
        arena: at[0],
        upload: at[1],
        constant: at[2],
        uniform: plan.uniform_bytes,
        output: OUTPUT_SLOTS * plan.slot_bytes,
        readback: plan.slot_bytes,
    };
}

fn empty_plan() -> Plan {
    Plan {
        policy: "by hand".into(),
        live_peak_bytes: 0,
        notes: vec![],
        offset_alignment_bytes: 256,
        dispatches: vec![],
        instances: vec![],
        arena_blocks: vec![],
        upload_blocks: vec![],
        constant_blocks: vec![],
        inputs: vec![],
        constants: vec![],
        uniform_bytes: 0,
        outputs: vec![],
        slot_bytes: 0,
        peak: PeakBytes::default(),
        activation_peak_bytes: 0,
        replayed_passes: 0,
        cost_ns: 0.0,
        replay_cost_ns: 0.0,
    }
}

/// y = 2 x; z = y + p; p -= lr z; the output is z. `n` elements; lr is 0.5, a uniform word.
pub fn small(n: usize) -> (Shared<Program>, Plan) {
    small_of(n, "p")
}

/// [`small`] with a state of this name.
pub fn small_of(n: usize, state: &str) -> (Shared<Program>, Plan) {
    let mut b = Builder::default();
    let x = b.input("x", DType::F32, n);
    let p = b.state(state, n);
    let (y, z) = (b.transient("y", n), b.transient("z", n));
    b.pass("double", "b[i] = 2.0 * a[i];", &[Operand::Read(x), Operand::Write(y)], &[], n);
    b.pass("add", "c[i] = a[i] + b[i];", &[Operand::Read(y), Operand::Read(p), Operand::Write(z)], &[], n);
    let half = 0.5_f32.to_bits();
    b.pass(
        "update",
        "b[i] = b[i] - bitcast<f32>(u.words[0].x) * a[i];",
        &[Operand::Read(z), Operand::StateWrite(p)],
        &[half],
        n,
    );
    b.output("z", z);
    b.finish()
}

/// Resident bytes of this process.
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
