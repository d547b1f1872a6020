//! Events as a provider posts them: signed, in the form of Standard Webhooks.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The key that [`headers`] signs with, in the form in which a provider hands it out.
pub const KEY: &str = "whsec_dHdpY2UgdHdpY2UgdHdpY2UgdHdpY2UgdHdpY2U=";
const KEY_BYTES: &[u8] = b"twice twice twice twice twice";

/// The headers of a genuine delivery.
#[must_use]
pub fn headers(id: &str, seconds: u64, body: &[u8]) -> Vec<(String, String)> {
    let mut mac = Hmac::<Sha256>::new_from_slice(KEY_BYTES).expect("any key is one");
    mac.update(format!("{id}.{seconds}.").as_bytes());
    mac.update(body);
    let signature = base64(&mac.finalize().into_bytes());
    [
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", seconds.to_string()),
        ("webhook-signature", format!("v1,{signature}")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// Base64 with padding, by hand: what is tested decodes it by a library.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit)) as usize & 63;
            text.push(if digit <= chunk.len() { char::from(DIGITS[index]) } else { '=' });
        }
    }
    text
}
