//! Every kernel that the engine makes is valid WGSL for naga, can be written out
//! for Metal, DX12, Vulkan and GL, and has the bindings that Rust believes.
//!
//! With `REMAT_SHADER_DUMP` set, the kernels are written to that folder too, so
//! that browsers compile them with their own compilers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;

use common::catalogue;
use naga::back::{glsl, hlsl, msl, pipeline_constants::process_overrides, spv};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ShaderStage, TypeInner};
use remat::fuse::program::Kernel;
use remat::profile::{AdapterClass, DeviceProfile};

/// Kernels of every catalogue program on every class of adapter, each once.
fn kernels() -> BTreeMap<String, Kernel> {
    let mut all: Vec<Kernel> = Vec::new();
    for class in [AdapterClass::Cpu, AdapterClass::Discrete] {
        for (_, program) in catalogue::programs(&DeviceProfile::webgpu_defaults(class)) {
            for kernel in program.kernels {
                if !all.iter().any(|k| k.source == kernel.source && k.constants == kernel.constants) {
                    all.push(kernel);
                }
            }
        }
    }
    let named = |(i, k): (usize, Kernel)| {
        let short: String =
            k.name.chars().filter(|c| c.is_ascii_alphanumeric() || "+_.".contains(*c)).take(40).collect();
        (format!("{i:03}_{}", short.replace('+', "-")), k)
    };
    all.into_iter().enumerate().map(named).collect()
}

fn validated(name: &str, kernel: &Kernel) -> (Module, ModuleInfo) {
    let module = naga::front::wgsl::parse_str(&kernel.source)
        .unwrap_or_else(|e| panic!("{name}: {}\n{}", e.emit_to_string(&kernel.source), kernel.source));
    // No capability: what WebGPU guarantees without any feature.
    let info = Validator::new(ValidationFlags::all(), Capabilities::empty())
        .validate(&module)
        .unwrap_or_else(|e| panic!("{name}: {}\n{}", e.emit_to_string(&kernel.source), kernel.source));
    (module, info)
}

fn write_everywhere(name: &str, kernel: &Kernel, module: &Module, info: &ModuleInfo) {
    let entry = kernel.entry.to_owned();
    let constants = kernel.constants.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
    let stage = ShaderStage::Compute;
    let (module, info) = process_overrides(module, info, Some((stage, &entry)), &constants)
        .unwrap_or_else(|e| panic!("{name}: overrides: {e}"));
    let options = msl::Options { fake_missing_bindings: true, lang_version: (2, 0), ..Default::default() };
    let pipeline = msl::PipelineOptions { entry_point: Some((stage, entry.clone())), ..Default::default() };
    msl::write_string(&module, &info, &options, &pipeline).unwrap_or_else(|e| panic!("{name}: MSL: {e}"));

    let options = hlsl::Options { fake_missing_bindings: true, ..Default::default() };
    let pipeline = hlsl::PipelineOptions { entry_point: Some((stage, entry.clone())) };
    let mut text = String::new();
    hlsl::Writer::new(&mut text, &options, &pipeline)
        .write(&module, &info, None)
        .unwrap_or_else(|e| panic!("{name}: HLSL: {e}"));

    let pipeline = spv::PipelineOptions { shader_stage: stage, entry_point: entry.clone() };
    let words = spv::write_vec(&module, &info, &spv::Options::default(), Some(&pipeline))
        .unwrap_or_else(|e| panic!("{name}: SPIR-V: {e}"));
    assert!(words.len() > 5, "{name}: SPIR-V is empty");

    let options = glsl::Options { version: glsl::Version::Desktop(430), ..Default::default() };
    let pipeline = glsl::PipelineOptions { shader_stage: stage, entry_point: entry, multiview: None };
    let mut text = String::new();
    glsl::Writer::new(&mut text, &module, &info, &options, &pipeline, naga::proc::BoundsCheckPolicies::default())
        .and_then(|mut writer| writer.write())
        .unwrap_or_else(|e| panic!("{name}: GLSL: {e}"));
}

/// Bindings as the shader declares them against what Rust binds.
fn check_bindings(name: &str, kernel: &Kernel, module: &Module) {
    let mut storage = Vec::new();
    let mut uniform_bytes = None;
    for (_, variable) in module.global_variables.iter() {
        let Some(binding) = &variable.binding else { continue };
        assert_eq!(binding.group, 0, "{name}: every binding is in group 0");
        match variable.space {
            AddressSpace::Storage { access } => {
                assert!(access.contains(naga::StorageAccess::STORE), "{name}: {:?} is not read_write", variable.name);
                storage.push(binding.binding);
            }
            AddressSpace::Uniform => {
                assert_eq!(binding.binding, 0, "{name}: uniform words are binding 0");
                let TypeInner::Struct { span, .. } = module.types[variable.ty].inner else {
                    panic!("{name}: uniform words are a struct");
                };
                uniform_bytes = Some(span as usize);
            }
            ref other => panic!("{name}: unexpected address space {other:?}"),
        }
    }
    storage.sort_unstable();
    let expected: Vec<u32> = (1..=kernel.operand_count as u32).collect();
    assert_eq!(storage, expected, "{name}: storage bindings\n{}", kernel.source);
    assert_eq!(uniform_bytes.unwrap_or(0), kernel.uniform_words * 4, "{name}: uniform struct\n{}", kernel.source);
    assert!(kernel.operand_count <= 7, "{name}: one storage binding is left spare for Metal");
    let entry = module.entry_points.iter().find(|e| e.name == kernel.entry).unwrap();
    let [x, y, z] = entry.workgroup_size;
    assert!(x * y * z <= 256, "{name}: {x}x{y}x{z} invocations");
}

#[test]
fn every_kernel_is_portable() {
    let kernels = kernels();
    assert!(kernels.len() > 40, "only {} kernels: the catalogue lost programs", kernels.len());
    let dump = std::env::var_os("REMAT_SHADER_DUMP").map(std::path::PathBuf::from);
    for (name, kernel) in &kernels {
        let (module, info) = validated(name, kernel);
        check_bindings(name, kernel, &module);
        // Sums in an order that changes from run to run would not be the same bits twice.
        assert!(!kernel.source.contains("atomic"), "{name} uses atomics");
        write_everywhere(name, kernel, &module, &info);
        if let Some(dump) = &dump {
            std::fs::create_dir_all(dump).unwrap();
            std::fs::write(dump.join(format!("{name}.wgsl")), kernel.source.as_bytes()).unwrap();
            let constants: BTreeMap<&str, f64> = kernel.constants.iter().copied().collect();
            let about = serde_json::json!({ "pipelines": [{ "entry": kernel.entry, "constants": constants }] });
            std::fs::write(dump.join(format!("{name}.json")), about.to_string()).unwrap();
        }
    }
    println!("{} kernels", kernels.len());
}

/// Files in `shaders/` that no catalogue program reaches would go unchecked.
#[test]
fn every_shader_file_is_reached() {
    let kernels = kernels();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "wgsl") {
            let text = std::fs::read_to_string(&path).unwrap();
            // Bindings may have been renumbered; the main function is unchanged.
            let main = &text[text.find("@compute").unwrap()..];
            assert!(kernels.values().any(|k| k.source.contains(main)), "{} is in no catalogue program", path.display());
        }
    }
}
