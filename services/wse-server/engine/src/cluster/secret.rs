//! The secret of a cluster without TLS: each side proves that it knows the secret before there is a link.
//!
//! Both hellos have a nonce. A proof is an HMAC-SHA-256 over both hellos and the direction, so one side's proof is not
//! valid for the other side, for another connection, or after a change of a name or a capability. The dialler proves
//! first: an unauthenticated peer that connects learns nothing that would help it guess the secret. A link is not
//! encrypted, and what is sent after the proofs is not authenticated.

use std::fmt::{self, Debug, Formatter};

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use bytes::Bytes;

use super::{
    frame::{self, Frame, Kind},
    hello::{Hello, NONCE_BYTES},
    peer::Side,
};

/// The shortest secret, in bytes: as long as the digest (RFC 2104, 3).
const SHORTEST: usize = 32;
/// Flag of a proof frame: the dialler is refused, because there is a link already.
const REFUSED: u8 = 0x01;

/// The secret is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cluster_secret has {bytes} bytes: give {SHORTEST} or more, from a random generator")]
pub struct ShortSecret {
    /// The length of the secret, in bytes.
    pub bytes: usize,
}

/// The secret that all instances of a cluster share.
#[derive(Clone)]
pub struct ClusterSecret(hmac::Key);

impl Debug for ClusterSecret {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClusterSecret")
    }
}

/// The acceptor's reply to the dialler's proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The connection is a link from now on. The dialler's own proof has this value too.
    Linked,
    /// There is a link already.
    Refused,
}

/// The two hellos of a connection.
#[derive(Clone, Copy)]
pub(super) struct Hellos<'a> {
    pub(super) dialler: &'a Hello,
    pub(super) acceptor: &'a Hello,
}

impl ClusterSecret {
    /// # Errors
    /// [`ShortSecret`] if there are fewer than 32 bytes.
    pub fn new(secret: &[u8]) -> Result<Self, ShortSecret> {
        match secret.len() {
            bytes if bytes < SHORTEST => Err(ShortSecret { bytes }),
            _ => Ok(Self(hmac::Key::new(HMAC_SHA256, secret))),
        }
    }

    /// The frame by which the side `prover` proves that it knows the secret.
    pub(super) fn prove(&self, hellos: Hellos<'_>, prover: Prover, verdict: Verdict) -> Bytes {
        let proof = hmac::sign(&self.0, &transcript(hellos, prover, verdict));
        frame::encode(Kind::Proof, verdict.flags(), b"", proof.as_ref())
    }

    /// The verdict in a proof of the side `prover`; `None` if the frame is not its proof. The comparison takes constant
    /// time.
    pub(super) fn verify(&self, hellos: Hellos<'_>, prover: Prover, frame: &Frame<'_>) -> Option<Verdict> {
        let verdict = [Verdict::Linked, Verdict::Refused].into_iter().find(|one| one.flags() == frame.flags)?;
        let is_proof = frame.kind == Kind::Proof.byte()
            && hmac::verify(&self.0, &transcript(hellos, prover, verdict), frame.payload).is_ok();
        is_proof.then_some(verdict)
    }
}

impl Verdict {
    fn flags(self) -> u8 {
        match self {
            Self::Linked => 0,
            Self::Refused => REFUSED,
        }
    }
}

/// The side that sends a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prover {
    Dialler,
    Acceptor,
}

impl Prover {
    /// The side that the peer has on a connection.
    pub(super) fn of_peer(side: Side) -> Self {
        match side {
            Side::Ours => Self::Acceptor,
            Side::Theirs => Self::Dialler,
        }
    }

    fn label(self) -> &'static [u8] {
        match self {
            Self::Dialler => b"wse-cluster-1 dialler\0",
            Self::Acceptor => b"wse-cluster-1 acceptor\0",
        }
    }
}

/// What a proof is computed over: the direction, both hellos, and the verdict.
fn transcript(hellos: Hellos<'_>, prover: Prover, verdict: Verdict) -> Vec<u8> {
    let mut transcript = prover.label().to_vec();
    for hello in [hellos.dialler, hellos.acceptor] {
        hello.put(&mut transcript);
    }
    transcript.push(verdict.flags());
    transcript
}

/// The handshake of two instances with a secret, for fuzzing: `bytes` are the first frame of a dialler. Returns whether
/// it is a hello. In both cases `proof` proves nothing, and the proof of another direction doesn't either.
pub(super) fn greeted(bytes: &[u8], proof: &[u8]) -> bool {
    let first = frame::parse(bytes).ok().flatten();
    let Some(dialler) = first.and_then(|(frame, _)| Hello::parse(&frame).ok()) else { return false };
    let written = dialler.encode();
    let (again, _) = frame::parse(&written).ok().flatten().expect("it was written");
    assert_eq!(Hello::parse(&again).as_ref(), Ok(&dialler));
    let secret = ClusterSecret::new(b"a secret that no input can know!").expect("it is long enough");
    let acceptor = Hello { instance: "acceptor".into(), capabilities: 0, nonce: Some([7; NONCE_BYTES]) };
    let hellos = Hellos { dialler: &dialler, acceptor: &acceptor };
    if let Ok(Some((frame, _))) = frame::parse(proof) {
        assert_eq!(secret.verify(hellos, Prover::Dialler, &frame), None);
    }
    let proved = secret.prove(hellos, Prover::Dialler, Verdict::Linked);
    let (proved, _) = frame::parse(&proved).ok().flatten().expect("it was written");
    assert_eq!(secret.verify(hellos, Prover::Dialler, &proved), Some(Verdict::Linked));
    assert_eq!(secret.verify(hellos, Prover::Acceptor, &proved), None);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

    fn hello(instance: &str, nonce: u8) -> Hello {
        Hello { instance: instance.into(), capabilities: 15, nonce: Some([nonce; NONCE_BYTES]) }
    }

    fn proof(bytes: &Bytes) -> Frame<'_> {
        frame::parse(bytes).unwrap().unwrap().0
    }

    fn secret() -> ClusterSecret {
        ClusterSecret::new(SECRET).unwrap()
    }

    fn verify(hellos: Hellos<'_>, prover: Prover, bytes: &Bytes) -> Option<Verdict> {
        secret().verify(hellos, prover, &proof(bytes))
    }

    #[test]
    fn a_proof_is_the_hmac_that_the_protocol_gives() {
        let (dialler, acceptor) = (hello("one", 1), hello("other", 2));
        let hellos = Hellos { dialler: &dialler, acceptor: &acceptor };
        let hex = |bytes: Bytes| -> String { proof(&bytes).payload.iter().map(|byte| format!("{byte:02x}")).collect() };
        // Computed with Python's `hmac`.
        let expected = "970bc518340b697b5ee4741d5174c07c27bcbdb89efcfa68aef64a1ac48e7e25";
        assert_eq!(hex(secret().prove(hellos, Prover::Dialler, Verdict::Linked)), expected);
        let expected = "5fef0908bd04b147083cdd91ea443292bf78d2be0f16fa1944136ddaf5e12c26";
        assert_eq!(hex(secret().prove(hellos, Prover::Acceptor, Verdict::Refused)), expected);
    }

    #[test]
    fn a_proof_is_valid_for_its_direction_its_hellos_and_its_verdict_only() {
        let (dialler, acceptor) = (hello("one", 1), hello("other", 2));
        let hellos = Hellos { dialler: &dialler, acceptor: &acceptor };
        let proved = secret().prove(hellos, Prover::Dialler, Verdict::Linked);
        assert_eq!(verify(hellos, Prover::Dialler, &proved), Some(Verdict::Linked));
        assert_eq!(verify(hellos, Prover::Acceptor, &proved), None);
        for other in [
            hello("two", 1),
            hello("one", 3),
            Hello { capabilities: 7, ..hello("one", 1) },
            Hello { nonce: None, ..hello("one", 1) },
        ] {
            assert_eq!(verify(Hellos { dialler: &other, acceptor: &acceptor }, Prover::Dialler, &proved), None);
            assert_eq!(verify(Hellos { dialler: &acceptor, acceptor: &other }, Prover::Dialler, &proved), None);
        }
        for at in [5, frame::LENGTH + frame::HEAD, proved.len() - 1] {
            let mut changed = proved.to_vec();
            changed[at] ^= 1;
            assert_eq!(verify(hellos, Prover::Dialler, &changed.into()), None, "{at}");
        }
        let other = ClusterSecret::new(&[b'x'; 32]).unwrap();
        assert_eq!(other.verify(hellos, Prover::Dialler, &proof(&proved)), None);
        let refused = secret().prove(hellos, Prover::Acceptor, Verdict::Refused);
        assert_eq!(verify(hellos, Prover::Acceptor, &refused), Some(Verdict::Refused));
    }

    #[test]
    fn a_secret_is_long_enough_and_not_in_logs() {
        assert!(matches!(ClusterSecret::new(&[b'x'; 31]), Err(ShortSecret { bytes: 31 })));
        assert_eq!(format!("{:?}", secret()), "ClusterSecret");
    }
}
