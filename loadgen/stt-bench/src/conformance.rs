//! Whether a speech-to-text gateway keeps its contract (`services/README.md`, "Gateways"), case by case.
//!
//! It starts the gateway with our own scripted inference behind it, plays client and inference at once, and compares what
//! comes out on each side with what went in on the other. Each case has its own result and never judges what another one
//! is about, so that a flaw shows under its own name.
//!
//! | file | what |
//! | --- | --- |
//! | [`command`] | the command line |
//! | [`run`] | one gateway: processes, stages, results |
//! | [`gateway`] | how a gateway is started and told to behave |
//! | [`inference`] | the inference that is told how to answer |
//! | [`cases`] | what is checked, a file per subject |
//! | [`scene`] | what a case finds in front of it: gateway, inference, sessions |
//! | [`client`], [`frames`] | a WebSocket client that can break every rule |
//! | [`payload`] | audio that says whose it is, and what the inference says to it (pure) |
//! | [`answers`] | partials and error frames (pure) |
//! | [`readings`] | the metrics port |
//! | [`level`] | how much of the contract is checked, and exceptions from it |
//! | [`family`] | signals to a gateway of several processes |
//! | [`stage`], [`finding`] | which process a case runs in front of; what it found |
//! | [`case`](mod@case), [`output`] | cases and their results, and how they are printed |

pub mod answers;
pub mod case;
pub mod cases;
pub mod client;
pub mod command;
pub mod family;
pub mod finding;
pub mod frames;
pub mod gateway;
pub mod inference;
pub mod level;
pub mod output;
pub mod payload;
pub mod readings;
pub mod run;
pub mod scene;
pub mod scope;
pub mod stage;
pub mod text;
