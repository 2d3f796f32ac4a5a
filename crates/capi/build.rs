//! Names the library as programs that link it look for it.

fn main() {
    // For all 0.x, as long as the C interface only grows.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libforebay.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
