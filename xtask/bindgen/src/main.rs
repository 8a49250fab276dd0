//! Writes the JavaScript glue of a WebAssembly module: what the `wasm-bindgen`
//! command does with `--target web`, without anything to install.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let (Some(module), Some(out_dir), None) = (args.next(), args.next(), args.next()) else {
        eprintln!("usage: remat-bindgen MODULE.wasm OUT_DIR");
        return ExitCode::from(2);
    };
    match generate(Path::new(&module), Path::new(&out_dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("remat-bindgen: {}: {message}", Path::new(&module).display());
            ExitCode::FAILURE
        }
    }
}

fn generate(module: &Path, out_dir: &Path) -> Result<(), String> {
    let mut bindgen = wasm_bindgen_cli_support::Bindgen::new();
    bindgen
        .input_path(module)
        .web(true)
        .and_then(|bindgen| {
            bindgen
                .typescript(false)
                // `init()` without arguments then finds the module by itself.
                .omit_default_module_path(false)
                .generate(out_dir)
        })
        .map_err(|error| format!("{error:#}"))
}
