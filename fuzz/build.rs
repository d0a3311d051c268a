//! Compiles the hooks through which libFuzzer sees the C library's branches.

fn main() {
    println!("cargo:rerun-if-changed=src/hooks.c");
    cc::Build::new().file("src/hooks.c").compile("hooks");
    // libFuzzer ends the program where GCC's instrumentation calls it; ours is called instead.
    println!("cargo:rustc-link-arg-bins=-Wl,--wrap=__sanitizer_cov_trace_pc");
}
