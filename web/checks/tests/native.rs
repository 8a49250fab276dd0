//! The browsers' trainings, natively. With `REMAT_NATIVE_RUNS` set, the losses
//! are written to that file, for the page to compare its own with.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use remat::gpu::Gpu;
use remat_web_checks::training::{self, MLPS, agree, deviation, every_policy, summary};
use serde_json::{Map, json};

#[test]
fn trainings_agree_under_every_policy() {
    let gpu = pollster::block_on(Gpu::for_tests()).unwrap();
    let mut all = Map::new();
    for mlp in &MLPS {
        let runs = pollster::block_on(every_policy(&gpu, mlp)).unwrap();
        agree(&runs).unwrap();
        println!("{}: {}", mlp.name, summary(&runs, 0.0));
        all.insert(mlp.name.to_owned(), json!(runs[0].losses));
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/reference");
    let description = std::fs::read_to_string(format!("{folder}/training.json")).unwrap();
    let fixture =
        training::gpt(&description, &std::fs::read(format!("{folder}/training.safetensors")).unwrap()).unwrap();
    let runs = pollster::block_on(every_policy(&gpu, &fixture)).unwrap();
    agree(&runs).unwrap();
    let off = deviation(&runs[0].losses, &fixture.losses, 1e-4).unwrap();
    println!("gpt: {}", summary(&runs, off));
    all.insert("gpt".to_owned(), json!(runs[0].losses));
    if let Some(path) = std::env::var_os("REMAT_NATIVE_RUNS") {
        std::fs::write(path, json!(all).to_string()).unwrap();
    }
}
