//! Compiles the network to a static library that the program is linked with.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap());
    let out = env::var("OUT_DIR").unwrap();
    let model = here.join("../digits/model.nnef");
    let library = Path::new(&out).join("libdigits.a");
    let mut command = Command::new(env::var("NNEFC").unwrap_or("nnefc".into()));
    command.arg("compile").arg(&model).args(["--name", "digits", "-o"]).arg(&library);
    if env::var("TARGET").unwrap() != env::var("HOST").unwrap() {
        // another machine: name it as `nnefc targets` does
        command.args(["--target", &env::var("NNEFC_TARGET").expect("set NNEFC_TARGET")]);
    }
    let done = command.status().expect("nnefc is not there: pip install nnefc, or set NNEFC");
    assert!(done.success(), "nnefc could not compile {}", model.display());

    println!("cargo:rerun-if-changed={}", model.display());
    println!("cargo:rerun-if-env-changed=NNEFC");
    println!("cargo:rustc-link-search=native={out}");
    println!("cargo:rustc-link-lib=static=digits");
    println!("cargo:rustc-link-lib=m");
    println!("cargo:rustc-link-lib=pthread");
}
