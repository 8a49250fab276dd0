//! Programs built by hand: a tape with segments and a differentiation that
//! knows nothing of shapes, only of sizes and of who reads what.

use remat::dtype::{DType, TensorType};
use remat::fuse::program::{
    Category, Cost, InputInfo, Kernel, KernelId, Operand, OutputInfo, Pass, Phase, Program, Segment, SegmentId,
    StateInfo, Storage, StorageId, StorageKind,
};

/// One forward op as its gradient sees it.
struct Taped {
    name: String,
    inputs: Vec<StorageId>,
    output: StorageId,
    segment: Option<SegmentId>,
    /// What its gradient reads besides the incoming gradient.
    saved: Vec<StorageId>,
    flops: f64,
}

/// Records passes and derives gradients.
#[derive(Default)]
pub struct Tape {
    pub program: Program,
    open: Vec<SegmentId>,
    taped: Vec<Taped>,
    trainable: Vec<StorageId>,
}

pub fn bytes_of(elements: u64) -> u64 {
    elements * 4
}

impl Tape {
    fn storage(&mut self, name: String, elements: u64, kind: StorageKind, category: Category) -> StorageId {
        let id = StorageId(self.program.storages.len() as u32);
        self.program.storages.push(Storage {
            name,
            bytes: bytes_of(elements),
            kind,
            category,
            named: false,
            mark: None,
        });
        id
    }

    pub fn input(&mut self, name: &str, elements: u64, dtype: DType) -> StorageId {
        let index = self.program.inputs.len() as u32;
        self.program.inputs.push(InputInfo { name: name.to_owned(), ty: TensorType::new(dtype, [elements as usize]) });
        self.storage(name.to_owned(), elements, StorageKind::Input(index), Category::Input)
    }

    pub fn constant(&mut self, elements: u64) -> StorageId {
        let index = self.program.constants.len() as u32;
        self.program.constants.push(vec![0; bytes_of(elements) as usize].into());
        self.storage(format!("constant{index}"), elements, StorageKind::Constant(index), Category::Other)
    }

    pub fn state(&mut self, name: &str, elements: u64, category: Category) -> StorageId {
        let index = self.program.states.len() as u32;
        let ty = TensorType::new(DType::F32, [elements as usize]);
        self.program.states.push(StateInfo { name: name.to_owned(), ty, category });
        self.storage(name.to_owned(), elements, StorageKind::State(index), category)
    }

    pub fn parameter(&mut self, name: &str, elements: u64) -> StorageId {
        let id = self.state(name, elements, Category::Parameter);
        self.trainable.push(id);
        id
    }

    pub fn value(&mut self, name: &str, elements: u64, category: Category) -> StorageId {
        let id = self.program.storages.len();
        self.storage(format!("{name}.{id}"), elements, StorageKind::Transient, category)
    }

    pub fn elements(&self, id: StorageId) -> u64 {
        self.program.storage(id).bytes / 4
    }

    /// Adds a pass as it is.
    pub fn pass(&mut self, name: &str, phase: Phase, segment: Option<SegmentId>, operands: Vec<Operand>, flops: f64) {
        let words = if operands.len() > 1 { vec![operands.len() as u32, name.len() as u32] } else { Vec::new() };
        let kernel = self
            .program
            .kernels
            .iter()
            .position(|k| k.operand_count == operands.len())
            .map_or_else(|| self.kernel(operands.len(), words.len()), |k| KernelId(k as u32));
        let bytes = operands
            .iter()
            .flat_map(|o| [o.read(), o.made()].into_iter().flatten())
            .map(|s| self.program.storage(s).bytes as f64)
            .sum();
        self.program.passes.push(Pass {
            name: name.to_owned(),
            kernel,
            operands,
            uniforms: words,
            grid: [1, 1, 1],
            cost: Cost { flops, bytes },
            kind: if ["matmul", "scores", "attend"].contains(&name) { "matmul" } else { "elementwise" },
            segment,
            phase,
        });
    }

    fn kernel(&mut self, operand_count: usize, uniform_words: usize) -> KernelId {
        self.program.kernels.push(Kernel {
            name: format!("kernel{operand_count}"),
            source: "".into(),
            entry: "main",
            constants: Vec::new(),
            operand_count,
            uniform_words,
        });
        KernelId(self.program.kernels.len() as u32 - 1)
    }

    pub fn segment(&self) -> Option<SegmentId> {
        self.open.last().copied()
    }

    /// Records inside of a segment.
    pub fn checkpoint<T>(&mut self, name: &str, record: impl FnOnce(&mut Self) -> T) -> T {
        let id = SegmentId(self.program.segments.len() as u32);
        self.program.segments.push(Segment { name: name.to_owned(), parent: self.segment(), mark: None });
        self.open.push(id);
        let result = record(self);
        self.open.pop();
        result
    }

    /// A forward op; its gradient reads the inputs if `saves_inputs` and the
    /// output if `saves_output`.
    pub fn op(
        &mut self,
        name: &str,
        inputs: &[StorageId],
        elements: u64,
        (saves_inputs, saves_output): (bool, bool),
        flops: f64,
    ) -> StorageId {
        let output = self.value(name, elements, Category::Activation);
        let mut operands: Vec<Operand> = inputs.iter().map(|&i| Operand::Read(i)).collect();
        operands.push(Operand::Write(output));
        self.pass(name, Phase::Forward, self.segment(), operands, flops);
        let mut saved = if saves_inputs { inputs.to_vec() } else { Vec::new() };
        saved.extend(saves_output.then_some(output));
        self.tape(name, inputs, output, saved, flops);
        output
    }

    /// As `op` with one input, written over that input.
    pub fn in_place(&mut self, name: &str, input: StorageId, saves_output: bool) -> StorageId {
        let elements = self.elements(input);
        let output = self.value(name, elements, Category::Activation);
        self.pass(name, Phase::Forward, self.segment(), vec![Operand::InPlace { input, output }], elements as f64);
        let saved = if saves_output { vec![output] } else { Vec::new() };
        self.tape(name, &[input], output, saved, elements as f64);
        output
    }

    fn tape(&mut self, name: &str, inputs: &[StorageId], output: StorageId, saved: Vec<StorageId>, flops: f64) {
        let segment = self.segment();
        self.taped.push(Taped { name: name.to_owned(), inputs: inputs.to_vec(), output, segment, saved, flops });
    }

    /// Matrix product with a parameter: its gradients read both.
    pub fn linear(&mut self, x: StorageId, weight: StorageId, elements: u64) -> StorageId {
        let flops = (self.elements(weight) * self.elements(x)) as f64;
        self.op("matmul", &[x, weight], elements, (true, false), flops)
    }

    fn needs_gradient(&self) -> Vec<bool> {
        let mut needs = vec![false; self.program.storages.len()];
        for &parameter in &self.trainable {
            needs[parameter.index()] = true;
        }
        for op in &self.taped {
            if op.inputs.iter().any(|i| needs[i.index()]) {
                needs[op.output.index()] = true;
            }
        }
        needs
    }

    /// Derives gradients of `loss`; gives each parameter's.
    pub fn backward(&mut self, loss: StorageId) -> Vec<(StorageId, StorageId)> {
        let needs = self.needs_gradient();
        let mut gradients: Vec<Option<StorageId>> = vec![None; self.program.storages.len()];
        let seed = self.value("ones", self.elements(loss), Category::Gradient);
        self.pass("fill", Phase::Backward, None, vec![Operand::Write(seed)], 1.0);
        gradients[loss.index()] = Some(seed);
        for op in std::mem::take(&mut self.taped).into_iter().rev() {
            let Some(incoming) = gradients[op.output.index()] else { continue };
            for &input in op.inputs.iter().filter(|i| needs[i.index()]) {
                let parameter = matches!(self.program.storage(input).kind, StorageKind::State(_));
                let category = if parameter { Category::ParameterGradient } else { Category::Gradient };
                let made = self.value(&format!("d{}", op.name), self.elements(input), category);
                let mut operands = vec![Operand::Read(incoming)];
                // The gradient of one factor reads the other one.
                let reads = op.saved.iter().filter(|&&s| s != input || op.inputs.len() == 1);
                operands.extend(reads.map(|&s| Operand::Read(s)));
                operands.push(Operand::Write(made));
                self.pass(&format!("d{}", op.name), Phase::Backward, op.segment, operands, op.flops);
                gradients[input.index()] = Some(match gradients[input.index()] {
                    None => made,
                    Some(before) => {
                        let sum = self.value("sum", self.elements(input), category);
                        let operands = vec![Operand::InPlace { input: before, output: sum }, Operand::Read(made)];
                        let segment = op.segment;
                        if self.made_in(before) == segment {
                            self.pass("add", Phase::Backward, segment, operands, 1.0);
                        } else {
                            let operands = vec![Operand::Read(before), Operand::Read(made), Operand::Write(sum)];
                            self.pass("add", Phase::Backward, segment, operands, 1.0);
                        }
                        sum
                    }
                });
            }
        }
        self.trainable.clone().into_iter().filter_map(|p| gradients[p.index()].map(|g| (p, g))).collect()
    }

    fn made_in(&self, storage: StorageId) -> Option<SegmentId> {
        let producer = self.program.passes.iter().find(|p| p.operands.iter().any(|o| o.made() == Some(storage)));
        producer.and_then(|p| p.segment)
    }

    /// A pass per parameter that reads its gradient and writes it and two moments.
    pub fn adam(&mut self, gradients: &[(StorageId, StorageId)]) {
        for &(parameter, gradient) in gradients {
            let name = self.program.storage(parameter).name.clone();
            let elements = self.elements(parameter);
            let m = self.state(&format!("{name}.m"), elements, Category::Optimizer);
            let v = self.state(&format!("{name}.v"), elements, Category::Optimizer);
            let operands = vec![
                Operand::Read(gradient),
                Operand::StateWrite(parameter),
                Operand::StateWrite(m),
                Operand::StateWrite(v),
            ];
            self.pass("adam", Phase::Update, None, operands, elements as f64);
        }
    }

    pub fn output(&mut self, name: &str, storage: StorageId) {
        let ty = TensorType::new(DType::F32, [self.elements(storage) as usize]);
        self.program.outputs.push(OutputInfo { name: name.to_owned(), ty, storage: Some(storage) });
    }

    /// Loss, gradients, updates: the rest of a training step.
    pub fn train(mut self, last: StorageId) -> Program {
        let loss = self.op("loss", &[last], 1, (true, false), 1.0);
        let gradients = self.backward(loss);
        self.adam(&gradients);
        self.output("loss", loss);
        self.program.validate().expect("the builder keeps the rules");
        self.program
    }
}
