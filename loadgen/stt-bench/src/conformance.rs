//! Checks whether a speech-to-text gateway keeps its contract (`services/README.md`, "Gateways"), case by case.
//!
//! The tool starts the gateway with a scripted inference behind it and plays both the client and the inference. It
//! compares what leaves the gateway on each side with what entered on the other. Each case has its own result and does
//! not judge what another case is about, so that a flaw shows under one name.
//!
//! | file | what |
//! | --- | --- |
//! | [`command`] | the command line |
//! | [`run`] | one gateway: processes, stages, results |
//! | [`gateway`] | how a gateway is started and configured |
//! | [`inference`] | the scripted inference: each session's replies are set in advance |
//! | [`cases`] | what is checked, a file per subject |
//! | [`scene`] | what a case gets: gateway, inference, sessions |
//! | [`client`], [`frames`] | a WebSocket client that can break every rule |
//! | [`payload`] | audio that carries its session and frame number, and the inference's result for it (pure) |
//! | [`messages`] | partials and error frames (pure) |
//! | [`readings`] | the metrics port |
//! | [`level`], [`scope`] | how much of the contract is checked, exceptions from it, and which cases that selects |
//! | [`family`] | signals to a gateway of several processes |
//! | [`stage`], [`finding`] | which gateway process a case runs against; what the case found |
//! | [`case`](mod@case), [`output`] | cases and their results, and how they are printed |
//! | [`text`] | texts from the wire, shortened for results |

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
pub mod messages;
pub mod output;
pub mod payload;
pub mod readings;
pub mod run;
pub mod scene;
pub mod scope;
pub mod stage;
pub mod text;
