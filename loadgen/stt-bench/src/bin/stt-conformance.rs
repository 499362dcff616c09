//! Checks speech-to-text gateways against their contract.

fn main() -> std::process::ExitCode {
    stt_bench::conformance::command::main()
}
