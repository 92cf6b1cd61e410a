//! Ed25519 signatures (RFC 8032): made, and verified.

use ed25519_dalek::{Signature, Signer as _, SigningKey, Verifier as _, VerifyingKey};

const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A private key. Its memory is overwritten when it is dropped.
pub struct Signer(SigningKey);

impl Signer {
    pub fn new(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    pub fn public(&self) -> [u8; 32] {
        self.0.verifying_key().to_bytes()
    }

    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }

    /// Signs a message, and returns the signature as base64 for URLs without padding.
    pub fn sign_base64(&self, message: &[u8]) -> String {
        url_safe_base64(&self.sign(message))
    }
}

/// Whether the key made this signature of the message. It accepts what libsodium accepts: a key or
/// a point of small order, which would vouch for any message, verifies nothing; nor does a second
/// spelling of a key, a point or a number.
pub fn verifies(public: &[u8], signature: &[u8], message: &[u8]) -> bool {
    let (Ok(public), Ok(signature)) = (public.try_into(), signature.try_into()) else {
        return false;
    };
    let signature = Signature::from_bytes(signature);
    // `verify_strict` computes the point to see its order, which takes a tenth as long again. It is
    // compared with another one in its only spelling below, so that the bytes are enough.
    is_canonical(public)
        && !is_of_small_order(signature.r_bytes())
        && VerifyingKey::from_bytes(public)
            .is_ok_and(|key| !key.is_weak() && key.verify(message, &signature).is_ok())
}

/// Whether these are the bytes of one of the eight points whose order divides the cofactor.
fn is_of_small_order(point: &[u8; 32]) -> bool {
    const ORDER_8: [[u8; 31]; 2] = [
        [
            0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef,
            0x98, 0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88,
            0x6d, 0x53, 0xfc,
        ],
        [
            0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10,
            0x67, 0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77,
            0x92, 0xac, 0x03,
        ],
    ];
    let [start @ .., last] = point;
    let [first, middle @ .., _] = point;
    let all = |byte: u8| middle.iter().all(|&one| one == byte);
    match last & 0x7f {
        0x00 => *first <= 1 && all(0),
        0x7f => *first == 0xec && all(0xff),
        0x05 => *start == ORDER_8[0],
        0x7a => *start == ORDER_8[1],
        _ => false,
    }
}

/// Whether the coordinate is less than the field's prime, 2^255 - 19.
fn is_canonical(public: &[u8; 32]) -> bool {
    let [first, middle @ .., last] = public;
    *first < 0xed || last & 0x7f != 0x7f || middle.iter().any(|&byte| byte != 0xff)
}

fn url_safe_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, at| {
            bits << 8 | u32::from(group.get(at).copied().unwrap_or(0))
        });
        for at in 0..=group.len() {
            let digit = bits >> (18 - 6 * at) & 63;
            text.push(char::from(URL_SAFE[digit as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::from_hex;

    #[test]
    fn a_signature_is_that_of_rfc_8032() {
        let seed = [
            0x4c, 0xcd, 0x08, 0x9b, 0x28, 0xff, 0x96, 0xda, 0x9d, 0xb6, 0xc3, 0x46, 0xec, 0x11,
            0x4e, 0x0f, 0x5b, 0x8a, 0x31, 0x9f, 0x35, 0xab, 0xa6, 0x24, 0xda, 0x8c, 0xf6, 0xed,
            0x4f, 0xb8, 0xa6, 0xfb,
        ];
        let signer = Signer::new(&seed);
        assert_eq!(signer.public()[..4], [0x3d, 0x40, 0x17, 0xc3]);
        assert_eq!(signer.sign(b"\x72")[..4], [0x92, 0xa0, 0x09, 0xa9]);
    }

    #[test]
    fn a_signature_verifies_by_its_key_and_message_alone() {
        let (signer, other) = (Signer::new(&[1; 32]), Signer::new(&[2; 32]));
        let (public, signature) = (signer.public(), signer.sign(b"message"));
        assert!(verifies(&public, &signature, b"message"));
        assert!(!verifies(&public, &signature, b"another"));
        assert!(!verifies(&other.public(), &signature, b"message"));
        assert!(!verifies(&public[..31], &signature, b"message"));
        assert!(!verifies(&public, &signature[..63], b"message"));
    }

    #[test]
    fn a_point_of_small_order_is_known_by_its_bytes() {
        let of_order_8 = [
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        ];
        let of_order_2 = "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f";
        let mut points = vec![[0; 32], [0; 32]];
        points[1][0] = 1;
        points.extend([of_order_8[0], of_order_8[1], of_order_2].map(|hex| from_hex(hex).unwrap()));
        for mut point in points {
            assert!(is_of_small_order(&point));
            assert!(VerifyingKey::from_bytes(&point).unwrap().is_weak());
            point[31] ^= 0x80;
            assert!(is_of_small_order(&point));
            point[1] ^= 1;
            assert!(!is_of_small_order(&point));
        }
        for seed in 0..50 {
            assert!(!is_of_small_order(&Signer::new(&[seed; 32]).public()));
        }
    }

    #[test]
    fn a_key_has_one_spelling() {
        let mut prime = [0xff; 32];
        (prime[0], prime[31]) = (0xed, 0x7f);
        assert!(!is_canonical(&prime));
        prime[31] = 0xff;
        assert!(!is_canonical(&prime));
        prime[0] = 0xec;
        assert!(is_canonical(&prime));
        assert!(is_canonical(&[0; 32]));
    }

    #[test]
    fn base64_is_for_urls_and_has_no_padding() {
        for (bytes, text) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v")] {
            assert_eq!(url_safe_base64(bytes.as_bytes()), text);
        }
        assert_eq!(url_safe_base64(&[0xfb, 0xff, 0xfe]), "-__-");
    }
}
