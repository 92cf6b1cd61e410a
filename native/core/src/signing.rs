//! Ed25519 keys that sign (RFC 8032).

use ed25519_dalek::{Signer as _, SigningKey};

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
    fn base64_is_for_urls_and_has_no_padding() {
        for (bytes, text) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v")] {
            assert_eq!(url_safe_base64(bytes.as_bytes()), text);
        }
        assert_eq!(url_safe_base64(&[0xfb, 0xff, 0xfe]), "-__-");
    }
}
